"""Show Flower's log as a progress bar: the current round, and the latest metrics."""

import logging
import re
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
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
from tidegate.flower.local_grid import LONGEST_REASON, NODE_FAILED
from tidegate.runs.folder import NOTHING_USED, RESUMING, SAVING, SPENT

LONG = 80
"""Characters of a client's error that is shown once; shorter ones are repeated."""


class Rounds(logging.Handler):
    """Follows the rounds in Flower's log; shows each kind of warning and error once.

    Lines that differ only in numbers, such as those of a client or a round, are of one kind.
    """

    def __init__(self, progress: Progress, *, tells: bool) -> None:
        super().__init__()
        self._tells = tells
        self._progress = progress
        self._task = progress.add_task("starting", total=None)
        self._told: dict[str, str] = {}
        """The first line shown of each kind."""
        self._errors: list[str] = []
        """Long errors of clients that were shown in full."""
        self._resumed_after, self._before = 0, 0
        """The last round before a strategy resumed: as it is told, and once the strategy starts."""
        self._resumes = False
        self._said_at = monotonic()
        self.measured: list[str] = []
        """Metrics of the last finished round, as text."""
        self.begun = 0
        """Rounds that have begun, counted as those that have finished."""
        self.finished = 0
        """Rounds that have finished, over all starts of a strategy; none from before a resume."""
        self.in_vain = 0
        """Those in which no client's model was used."""
        self.asked_for_none = False
        """Whether a strategy was asked for zero rounds, and not because all were done."""
        self.folders: list[Path] = []
        """Where runs are saved."""
        self.money: list[tuple[str, float, float]] = []
        """Of each run that has ended: samples bought, what was spent, what was allowed."""
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
        text = str(record.msg)
        self.in_vain += text == NOTHING_USED
        if text == SAVING and isinstance(record.args, tuple):
            self.folders += {Path(str(record.args[0]))} - set(self.folders)
        if text == SPENT and isinstance(record.args, tuple):
            samples, _, spent, allowed = map(str, record.args)
            self.money.append((samples, float(spent), float(allowed)))
        if (awaited := nodes_awaited(record)) is not None:
            there, wanted = awaited
            raise ConfigurationError(
                f"the app's strategy waits for {wanted} nodes, but this process has only {there}: "
                f"add --clients {wanted}, or lower its min_train_nodes, min_evaluate_nodes and "
                "min_available_nodes"
            )
        if text == RESUMING and isinstance(record.args, tuple):
            self._resumes, self._resumed_after = True, int(str(record.args[1]))
        if (asked := rounds_asked(record)) is not None:
            self._before, self._resumed_after = self._resumed_after, 0
            self.asked_for_none |= asked < 1 and not self._resumes
        if record.levelno >= logging.WARNING or text == RESUMING:
            self._tell(record)
        elif (begins := round_in(record)) is not None:
            now, rounds = (number + self._before for number in begins)
            self._say(now, rounds)
            self.finished, self.measured = self.begun, []
            self.begun += 1
            self._progress.update(self._task, description="round", completed=now, total=rounds)
        elif is_last_record(record):
            self.finished = self.begun
        self.measured += [f"{name} {_short(value)}" for name, value in metrics_in(record).items()]

    def _say(self, now: int, rounds: int) -> None:
        """Print a line about the current round now and then, if there is no bar."""
        if not self._tells or not self._progress.disable:
            return
        if monotonic() - self._said_at >= BETWEEN_LINES:
            self._said_at = monotonic()
            told = "; ".join([f"round {now} of {rounds}", *self.measured])
            self._progress.console.print(Text(told), soft_wrap=True)

    def once(self, text: str) -> str:
        """Return a text without the long errors of clients that were shown before it."""
        for error in self._errors:
            text = text.replace(error, "the error above")
        return text

    def _tell(self, record: logging.LogRecord) -> None:
        text = self.once(self.format(record).strip())
        alike = re.sub(r"\d+", "0", text)
        if not self._tells:
            return
        if alike in self._told:
            self.repeated[self._told[alike]] += 1
            return
        self._told[alike] = text.partition("\n")[0]
        if record.msg == NODE_FAILED and isinstance(record.args, tuple):
            error = str(record.args[-1])
            self._errors += [error, error[:LONGEST_REASON]] * (len(error) >= LONG)
        kind = "" if record.levelno < logging.WARNING else f"{record.levelname.lower()}: "
        self._progress.console.print(Text(kind + text), soft_wrap=True)


@contextmanager
def rounds_followed(*, verbose: bool) -> Iterator[Rounds]:
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
    others, rounds = list(logger.handlers), Rounds(bar, tells=not verbose)
    logger.handlers[:] = [*others, rounds] if verbose else [rounds]
    try:
        with bar:
            yield rounds
    finally:
        logger.handlers[:] = others


def _short(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)
