"""Show Flower's log as a progress bar: the current round, and the latest metrics."""

import logging
import re
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from time import monotonic
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.text import Text

from tidegate.cli.running import BETWEEN_LINES
from tidegate.errors import ConfigurationError
from tidegate.flower.flower_internals import (
    LOGGER,
    is_last_record,
    metrics_in,
    nodes_awaited,
    round_in,
    rounds_asked,
)
from tidegate.flower.local_grid import LONGEST_REASON, Answers
from tidegate.flower.log_lines import RESUMING

LONG = 80
"""Characters of a client's error that is shown once; shorter ones are repeated."""


class Rounds(logging.Handler):
    """Follows the rounds in Flower's log; shows each kind of warning and error once.

    Lines that differ only in numbers, such as those of a client or a round, are of one kind.

    Args:
        progress: the bar.
        answers: of the grid on which the app runs.
        which: what stands before a round, to tell two runs apart.
        tells: whether to print lines.
    """

    def __init__(self, progress: Progress, answers: Answers, *, which: str, tells: bool) -> None:
        super().__init__()
        self._which = which
        self._answers = answers
        self._tells = tells
        self._progress = progress
        self._task = progress.add_task("starting", total=None)
        self._shown: dict[str, str] = {}
        """The first text shown of each kind."""
        self._runs, self._before = 0, 0
        """Runs that have started, and the rounds of the newest one before this start."""
        self._said_at = monotonic()
        self.measured: list[str] = []
        """Metrics of the last finished round, as text."""
        self.begun = 0
        """Rounds that have begun, counted as those that have finished."""
        self.finished = 0
        """Rounds that have finished, over all starts of a strategy; none from before a resume."""
        self.asked_for_none = False
        """Whether a strategy was asked for zero rounds, and not because all were done."""
        self.repeated: Counter[str] = Counter()
        """How many more were like one that was shown, of another client or round."""

    def emit(self, record: logging.LogRecord) -> None:
        """Handle one record of the log; end a run that would wait for ever."""
        try:
            self._follow(record)
        except ConfigurationError:
            raise
        except Exception:
            self.handleError(record)

    def _follow(self, record: logging.LogRecord) -> None:
        if (awaited := nodes_awaited(record)) is not None:
            there, wanted = awaited
            raise ConfigurationError(
                f"the app's strategy waits for {wanted} nodes, but this process has only {there}: "
                f"add --clients {wanted}, or lower its min_train_nodes, min_evaluate_nodes and "
                "min_available_nodes"
            )
        if (asked := rounds_asked(record)) is not None:
            started, self._runs = self._answers.runs[self._runs :], len(self._answers.runs)
            self._before = started[-1].rounds_before if started else 0
            if self._before:
                self._show(RESUMING % (started[-1].name, self._before))
            self.asked_for_none |= asked < 1 and not self._before
        if record.levelno >= logging.WARNING:
            self._tell(record)
        elif (begins := round_in(record)) is not None:
            number, rounds = (count + self._before for count in begins)
            self._say(number, rounds)
            self.finished, self.measured = self.begun, []
            self.begun += 1
            called = f"{self._which}round"
            self._progress.update(self._task, description=called, completed=number, total=rounds)
        elif is_last_record(record):
            self.finished = self.begun
        self.measured += [f"{name} {_short(value)}" for name, value in metrics_in(record).items()]

    def _say(self, number: int, rounds: int) -> None:
        """Print a line about the current round now and then, if there is no bar."""
        if not self._tells or not self._progress.disable:
            return
        if monotonic() - self._said_at >= BETWEEN_LINES:
            self._said_at = monotonic()
            line = "; ".join([f"{self._which}round {number} of {rounds}", *self.measured])
            self._progress.console.print(Text(line), soft_wrap=True)

    def once(self, text: str) -> str:
        """Return a text without the long errors of clients that were shown before it."""
        for error in self._answers.errors:
            if len(error) >= LONG and any(error in shown for shown in self._shown.values()):
                for part in (error, error[:LONGEST_REASON]):
                    text = text.replace(part, "the error above")
        return text

    def _tell(self, record: logging.LogRecord) -> None:
        whole = self.format(record).strip()
        text = self.once(whole)
        text = text if text == whole else text.partition("\n")[0]  # the trace was above, too
        alike = re.sub(r"\d+", "0", text)
        if alike in self._shown:
            self.repeated[self._shown[alike].partition("\n")[0]] += self._tells
            return
        self._shown[alike] = text
        self._show(f"{record.levelname.lower()}: {text}")

    def _show(self, text: str) -> None:
        if self._tells:
            self._progress.console.print(Text(text), soft_wrap=True)


@contextmanager
def rounds_followed(answers: Answers, *, which: str, verbose: bool) -> Iterator[Rounds]:
    """Follow the rounds, with a bar instead of Flower's log if standard error is a terminal."""
    shown = Console(stderr=True)
    columns = TextColumn("{task.description}"), MofNCompleteColumn(), BarColumn()
    bar = Progress(
        *columns,
        TimeRemainingColumn(),
        console=shown,
        transient=True,
        disable=verbose or not shown.is_terminal,
    )
    logger = logging.getLogger(LOGGER)
    others, rounds = list(logger.handlers), Rounds(bar, answers, which=which, tells=not verbose)
    logger.handlers[:] = [*others, rounds] if verbose else [rounds]
    try:
        with bar:
            yield rounds
    finally:
        logger.handlers[:] = others


def _short(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)
