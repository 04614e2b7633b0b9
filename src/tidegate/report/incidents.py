"""What went wrong in a run, and in which rounds, so that a page can mark them."""

import itertools
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from tidegate.runs.reader import RunView
from tidegate.server.fleet_round import FleetRound

RESTART = "R"
"""The mark of a restart."""
MOST_SPANS = 6
"""The most spans of rounds to write out; the others are counted."""
Span = tuple[int, int]
"""The first and the last of consecutive rounds."""


@dataclass(frozen=True)
class Incident:
    """One kind of trouble, and the rounds that had it."""

    mark: str
    """The letter that stands for it in pictures."""
    what: str
    """What happened, and how often."""
    spans: Sequence[Span]

    @property
    def where(self) -> str:
        """The rounds in words."""
        return rounds_in_words(self.spans)


def incidents(view: RunView) -> list[Incident]:
    """Return what went wrong in a run, the worst kinds first.

    Args:
        view: the run's folder.
    """
    found = [
        _restarts(view),
        _failed(view),
        _kind(
            "N",
            _without_models(view),
            lambda _: "no client's model was used, so there was no average",
        ),
        _kind("D", _not_finite(view), lambda _: "a metric was not finite"),
        _kind("P", paused_rounds(view), lambda _: "clients bought nothing: buying was paused"),
        _counted(view, "A", _missing(view), f"node{{s}} did not take part: {_why_missing(view)}"),
        _counted(view, "S", _reported("failing_suppliers"), "supplier{s} failed"),
        _counted(
            view,
            "F",
            _reported("full_spools"),
            "stream{s} had no room for more messages",
        ),
    ]
    return [one for one in found if one.spans]


def restart_round(view: RunView, at: float) -> int:
    """Return the first round of a server that was started at some time."""
    after = [number for number, ended in view.ended_at.items() if ended > at]
    return min(after, default=view.round_number)


def paused_rounds(view: RunView) -> list[int]:
    """Return the rounds in which clients bought nothing because buying was paused."""
    pairs = itertools.pairwise(view.rounds)
    return [after.round_number for before, after in pairs if before.pause]


def rounds_in_words(spans: Sequence[Span]) -> str:
    """Return rounds in words.

    >>> rounds_in_words([(3, 5), (8, 8)])
    'rounds 3 to 5, 8'
    """
    told = [f"{a:,}" if a == b else f"{a:,} to {b:,}" for a, b in spans[:MOST_SPANS]]
    more = sum(b - a + 1 for a, b in spans[MOST_SPANS:])
    single = len(spans) == 1 and spans[0][0] == spans[0][1]
    rest = f" and {more:,} more" if more else ""
    return f"round{'s' * (not single)} {', '.join(told)}{rest}"


def _kind(mark: str, rounds: Sequence[int], words: Callable[[int], str]) -> Incident:
    return Incident(mark, words(len(rounds)), _spans(rounds))


def _reported(name: str) -> Callable[[FleetRound], int]:
    """Return how to read what clients report of themselves in a round."""
    return lambda row: int(row.health.get(name, 0))


def _counted(view: RunView, mark: str, count: Callable[[FleetRound], int], words: str) -> Incident:
    """Return an incident that several clients may have at once."""
    counts = {row.round_number: count(row) for row in view.rounds}
    most = max(counts.values(), default=0)
    numbers = [number for number, one in counts.items() if one]
    up_to = "up to " * (len({one for one in counts.values() if one}) > 1)
    return Incident(mark, f"{up_to}{most:,} {words.format(s='s' * (most > 1))}", _spans(numbers))


def _restarts(view: RunView) -> Incident:
    """Return the restarts, each at its own round; a run that is over has no more."""
    rounds = [restart_round(view, at) for at, _ in view.starts[1:]]
    within = [one for one in rounds if view.num_rounds is None or one <= view.num_rounds]
    words = _times("the server was restarted", len(within))
    return Incident(RESTART, words, [(one, one) for one in sorted(set(within))])


def _without_models(view: RunView) -> list[int]:
    """Return rounds without an average, except those in which no client could train yet."""
    return [
        row.round_number
        for row in view.rounds
        if not view.averaged.get(row.round_number, row.answered)
        and not (row.under_way and not row.training_size)
    ]


def _not_finite(view: RunView) -> list[int]:
    values: Iterable[Mapping[int, float]] = view.metrics.values()
    return [number for one in values for number, value in one.items() if not math.isfinite(value)]


def _missing(view: RunView) -> Callable[[FleetRound], int]:
    """Return a function that counts the nodes of a round that did not take part."""
    everybody = view.fraction_train >= 1  # else a random part of the fleet

    def missing(row: FleetRound) -> int:
        wanted = max(row.fleet, row.orders) if everybody else row.orders
        return max(wanted - row.answered - _failures(view, row), 0)

    return missing


def _why_missing(view: RunView) -> str:
    if all(row.round_number in view.failures for row in view.rounds):
        return "offline, or no reply in time"
    return "offline, no reply in time, or a reply with an error, which server.log names"


def _failed(view: RunView) -> Incident:
    """Return the incident of clients that failed, with the newest error."""
    errors = [error for _, error in view.failures.values() if error]
    words = "client{s} failed"
    found = _counted(view, "E", lambda row: _failures(view, row), words)
    return replace(found, what=f"{found.what}: {errors[-1]}; see server.log") if errors else found


def _failures(view: RunView, row: FleetRound) -> int:
    return view.failures.get(row.round_number, (0, ""))[0]


def _spans(rounds: Iterable[int]) -> list[Span]:
    """Return consecutive rounds as spans."""
    spans: list[Span] = []
    for number in sorted(set(rounds)):
        if spans and number == spans[-1][1] + 1:
            spans[-1] = (spans[-1][0], number)
        else:
            spans.append((number, number))
    return spans


def _times(words: str, count: int) -> str:
    return words if count < 2 else f"{words}, {count:,} times"  # noqa: PLR2004 - once, or several
