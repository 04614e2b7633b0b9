"""The protocol every admission rule follows: start, decide, settle.

The runner holds the state and hands it back; a rule never changes anything. Nothing here knows a
single client: an order speaks to the fleet, and what comes back are sums over the fleet.
"""

from dataclasses import dataclass
from typing import Protocol, TypeVar


@dataclass(frozen=True)
class FleetOrder:
    """What the whole fleet is asked to do in one round."""

    total_admission: float
    """Λ(t), samples; real-valued, turned into whole samples by ``allocation``."""


@dataclass(frozen=True)
class RoundTotals:
    """What the fleet really did in one round: sums over clients, nothing else.

    What was admitted can differ from what was ordered (device away, stream dry), so every state
    follows these numbers and never the order.
    """

    admitted: int
    """Samples that trained for the first time."""
    spent: float
    """C_t, paid for them."""
    training_size: int
    """n(t), samples stored and trained on."""
    expiring: int
    """Those of them that leave before the next round."""
    prior_uses: int
    """Sum, over the stored samples, of the earlier rounds each was trained on."""


class HasDebt(Protocol):
    """Any state of a rule: it knows the cost debt that the next round begins with."""

    @property
    def cost_debt(self) -> float:
        """Z(t)."""
        ...


State = TypeVar("State", bound=HasDebt)


class AdmissionRule(Protocol[State]):
    """How many samples the fleet takes in."""

    def start(self) -> State:
        """The state before round 1."""
        ...

    def decide(self, state: State, price: float, limit: float) -> FleetOrder:
        """The order for this round.

        Args:
            state: what ``start`` or the last ``settle`` gave.
            price: of one sample, averaged over the clients as the order will be split.
            limit: the most that may be admitted at all (room left in memory under a hard
                capacity), infinity where nothing limits.
        """
        ...

    def settle(self, state: State, totals: RoundTotals) -> State:
        """The state of the next round, once the fleet has reported."""
        ...
