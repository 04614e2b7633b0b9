"""The state of a run: everything that its next step depends on."""

from dataclasses import dataclass, field, replace
from typing import Any

from tidegate.admission.arrivals import Arrivals
from tidegate.server.fleet import Fleet, Terms
from tidegate.server.ledger import Ledger
from tidegate.theory.reuse import ReuseTally

LONGEST_PAUSE = 5
"""Pauses last 1, 2, 4 and finally 2 ** 5 rounds. They end, because clients that hold nothing yet
may be the ones whose models can be used."""


@dataclass(frozen=True)
class BuyingPause:
    """Rounds without purchases, after rounds whose purchases could not be used.

    Clients buy samples before they train. A mistake in the client's code, a model that is not
    finite or a strategy that returns no average would therefore waste a whole run's budget. (If
    samples arrive later, rounds in which no client has samples yet do not count.)

    >>> pause = BuyingPause().after_round(used=False, spent=3.0)
    >>> pause.rounds_left, pause.after_round(used=False, spent=0.0).rounds_left
    (1, 0)
    >>> pause.after_round(used=True, spent=0.0)
    BuyingPause(failures=0, rounds_left=0)
    """

    failures: int = 0
    """Rounds with purchases since a model was last used."""
    rounds_left: int = 0
    """Coming rounds in which clients buy nothing."""

    def after_round(self, *, used: bool, spent: float) -> "BuyingPause":
        """Return the pause after one more round.

        Args:
            used: whether any client's model was used.
            spent: what the round cost, including what orders without a reply may have cost; 0 if
                everything that was bought is still under way.
        """
        if used:
            return BuyingPause()
        if self.rounds_left:
            return replace(self, rounds_left=self.rounds_left - 1)
        if not spent:
            return self
        return BuyingPause(self.failures + 1, 2 ** min(self.failures, LONGEST_PAUSE))


@dataclass(frozen=True)
class RoundUnderWay:
    """A round that has been decided and not yet closed."""

    price: float
    ordered: float | None
    """None where the order is a rule."""
    budget: float
    """C; for a shard, its grant for this round."""
    expected: float
    """What each of the coming rounds will get."""
    orders: int
    slots: int
    """Of the clients that were sent one."""
    answered: int = 0
    exhausted: int = 0


@dataclass(frozen=True)
class Progress:
    """How far a run has come: what changes from round to round besides ledger, fleet and rule."""

    round_number: int = 1
    """The next round, or the one under way."""
    tally: ReuseTally = field(default_factory=ReuseTally)
    overspend: float = 0.0
    """Σ (C_τ - C) up to the last round."""
    decision: RoundUnderWay | None = None
    """The decision of the round under way."""
    pause: BuyingPause = field(default_factory=BuyingPause)
    arrivals: Arrivals = field(default_factory=Arrivals)


@dataclass(frozen=True)
class Standing:
    """The state of one run."""

    terms: Terms
    at: Progress
    ledger: Ledger
    fleet: Fleet
    rule_state: Any = None
    """Of the admission rule; none before the first round."""

    @classmethod
    def start(cls, terms: Terms, run: str) -> "Standing":
        """Return the state before the first round."""
        ledger = Ledger(run)
        return cls(terms, Progress(), ledger, Fleet(terms, ledger))
