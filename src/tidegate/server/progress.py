"""How far a run has come: what changes from round to round besides books, fleet and policy."""

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from tidegate._internal.saving import plain
from tidegate.server.buying_pause import BuyingPause
from tidegate.server.fleet_round import Decision
from tidegate.theory.reuse import ReuseTally
from tidegate.wire import LARGEST_INTEGER


@dataclass(frozen=True)
class Progress:
    """The progress of one run."""

    round_number: int = 1
    """The next round, or the one under way."""
    tally: ReuseTally = field(default_factory=ReuseTally)
    overspend: float = 0.0
    """Σ (C_τ - C) up to the last round."""
    decision: Decision | None = None
    """The decision of the round under way."""
    pause: BuyingPause = field(default_factory=BuyingPause)

    def to_record(self) -> dict[str, Any]:
        """Return everything, for JSON."""
        return asdict(self)

    @classmethod
    def from_record(cls, record: Mapping[str, Any]) -> "Progress":
        """Restore from ``to_record``; other parts of the record are ignored."""
        number, overspend, tally = record["round_number"], record["overspend"], record["tally"]
        if type(number) is not int or not 1 <= number <= LARGEST_INTEGER:
            raise ValueError(f"rounds must be whole numbers, got {number!r}")
        if not math.isfinite(overspend):
            raise ValueError(f"overspend must be finite, got {overspend}")
        decision = record["decision"]
        return cls(
            round_number=number,
            tally=plain(ReuseTally, tally),
            overspend=overspend,
            decision=None if decision is None else plain(Decision, decision),
            pause=plain(BuyingPause, record["pause"]),
        )
