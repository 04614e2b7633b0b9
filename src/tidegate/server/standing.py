"""The state of a run: everything that its next step depends on."""

from dataclasses import dataclass, field
from typing import Any

from tidegate.server.buying_pause import BuyingPause
from tidegate.server.fleet import Fleet, Terms
from tidegate.server.fleet_round import Decision
from tidegate.server.ledger import Ledger
from tidegate.theory.reuse import ReuseTally


@dataclass(frozen=True)
class Progress:
    """How far a run has come: what changes from round to round besides ledger, fleet and rule."""

    round_number: int = 1
    """The next round, or the one under way."""
    tally: ReuseTally = field(default_factory=ReuseTally)
    overspend: float = 0.0
    """Σ (C_τ - C) up to the last round."""
    decision: Decision | None = None
    """The decision of the round under way."""
    pause: BuyingPause = field(default_factory=BuyingPause)


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
