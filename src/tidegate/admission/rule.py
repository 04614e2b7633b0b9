"""The protocol every admission rule follows: start, learn, decide, settle.

The runner holds the state and hands it back; a rule never changes anything. Nothing here knows a
single client: an order speaks to the fleet, and what comes back are sums over the fleet.
"""

import math
from dataclasses import dataclass
from typing import Protocol, TypeVar

from tidegate.arrays import FloatArray
from tidegate.prices import Price


@dataclass(frozen=True, eq=False)
class Quote:
    """What a sample costs in one round."""

    price: float
    """c(t), averaged over the clients as an order will be split."""
    own: FloatArray | None = None
    """Each client's price, where they differ."""

    @classmethod
    def of(cls, price: Price, shares: FloatArray) -> "Quote":
        """A price for all, or each client's own, averaged by their shares of an order."""
        if isinstance(price, float):
            return cls(price)
        if price.min() == price.max():
            return cls(float(price[0]))
        return cls(float(shares @ price), price)

    @property
    def highest(self) -> float:
        """What no client pays more than."""
        return self.price if self.own is None else float(self.own.max())

    def affordable(self, money: float) -> float:
        """Whole samples that the money pays for, whoever takes them; infinity where they are free.

        >>> Quote(2.5).affordable(11.0)
        4.0
        """
        if not self.highest:
            return math.inf
        return float(max(math.floor(money / self.highest), 0))


def within_money(quote: Quote, money: float, limit: float) -> tuple[float, int | None]:
    """A limit that money sets, too, and the whole samples that it pays for; none where free.

    >>> within_money(Quote(2.5), money=11.0, limit=9.0)
    (4.0, 4)
    """
    paid_for = quote.affordable(money)
    return min(limit, paid_for), None if math.isinf(paid_for) else int(paid_for)


@dataclass(frozen=True)
class FleetOrder:
    """What the whole fleet is asked to do in one round: admit a total, or follow a rule."""

    total_admission: float
    """Λ(t), samples; real-valued, turned into whole samples by ``allocation``. Beside a rule the
    most that it may lead to, infinity for no limit."""
    thresholds: tuple[float, ...] = ()
    """A rule: the price up to which a slot takes a fresh sample, as in ``wire.Order``."""


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

    def learn(self, state: State, quote: Quote) -> State:
        """The state once the round's price is known; the same for a rule that does not learn."""
        ...

    def decide(self, state: State, quote: Quote, limit: float) -> FleetOrder:
        """The order for this round.

        Args:
            state: what ``learn`` gave.
            quote: the round's price.
            limit: the most that may be admitted at all (room left in memory under a hard
                capacity, money left under strict spending), infinity where nothing limits.
        """
        ...

    def settle(self, state: State, totals: RoundTotals) -> State:
        """The state of the next round, once the fleet has reported."""
        ...
