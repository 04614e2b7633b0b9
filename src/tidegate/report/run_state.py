"""The progress of a run, whether its server is alive, and what it waits for."""

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Literal, cast

from tidegate.runs.reader import RunView

QUIET_ROUNDS = 5.0
"""A run is quiet if it waits for this many times the usual length of a round."""
FEWEST_SECONDS = 30.0
FIRST_SECONDS = 600.0
"""Seconds until a run is quiet while the length of a round is unknown: nodes and apps start."""

Kind = Literal["over", "judging", "stopped", "starting", "dead", "prices", "answers"]
"""The state of a run; an active one waits for ``prices`` (or nodes) or for ``answers``."""


@dataclass(frozen=True)
class RunState:
    """The progress of a run, and whether it is quiet."""

    kind: Kind
    words: str
    is_quiet: bool = False
    """Whether it has waited for much longer than a round usually takes."""


def run_state(view: RunView, now: float) -> RunState:
    """Return the progress of a run.

    Args:
        view: the run's folder.
        now: the time, in seconds since 1970.
    """
    of = "" if view.num_rounds is None else f" of {view.num_rounds:,}"
    place = f"round {len(view.rounds):,}{of}"
    ends = [view.ended_at[number] for number in sorted(view.ended_at)]
    if view.is_over:
        return RunState("over", f"{place}, over" + (f" since {clock(ends[-1])}" if ends else ""))
    for kind, holds, words in (
        ("judging", view.is_played, "its last model is being evaluated"),
        ("starting", view.ending and view.is_served, "a server is resuming it"),
        ("stopped", view.ending, "its server has stopped before the end"),
        ("dead", view.is_gone, "its server is gone; start it again with this folder to resume"),
    ):
        if holds:
            return RunState(cast("Kind", kind), f"{place}, {words}")
    return _waiting(view, now, place, ends)


def _waiting(view: RunView, now: float, place: str, ends: Sequence[float]) -> RunState:
    """Return what an active run waits for, and whether that takes longer than usual."""
    begun = view.begun_at.get(view.round_number)
    usual = _usual_seconds(view, ends, waits_for_answers=begun is not None)
    started = [at for at, _ in view.starts[-1:]]
    last = max([*ends[-1:], *started, *([] if begun is None else [begun])], default=now)
    since = max(now - last, 0.0)
    waits_for = "an evaluation, the next price or nodes" if begun is None else "answers"
    told = f"{place}, waiting for {waits_for} for {since:,.0f} s"
    kind: Kind = "prices" if begun is None else "answers"
    if usual is None and since > FIRST_SECONDS:
        return RunState(kind, f"{told}: QUIET", is_quiet=True)
    if usual is not None and since > max(QUIET_ROUNDS * usual, FEWEST_SECONDS):
        return RunState(kind, f"{told}: QUIET, a round takes {usual:,.3g} s", is_quiet=True)
    return RunState(kind, told)


def _usual_seconds(
    view: RunView, ends: Sequence[float], *, waits_for_answers: bool
) -> float | None:
    """Return how long a round usually takes; None if it is not known yet.

    The first round says how long answers take, and not how long a price or nodes take.
    """
    if len(ends) > 1:
        return statistics.median(gains(ends)[1:])
    first = min(view.ended_at, default=0)
    if not waits_for_answers or first not in view.begun_at:
        return None
    return max(ends[0] - view.begun_at[first], 0.0)


def server_in_a_word(view: RunView) -> str:
    """Return the state of a run's server: ``alive``, ``dead``, ``ended`` or ``not known``."""
    if view.is_served:
        return "alive"
    if view.is_gone:
        return "dead"
    if view.ending:
        return "ended"
    return "not known"


def gains(totals: Sequence[float]) -> list[float]:
    """Return what each round added to a total."""
    return [after - before for before, after in zip([0.0, *totals], totals, strict=False)]


def clock(seconds: float) -> str:
    """Return a time in words."""
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M UTC")
