"""The protocol every admission rule follows: start, learn, decide, settle.

The runner holds the state and hands it back; a rule never changes anything. Nothing here knows a
single client: an order speaks to the fleet, and what comes back are sums over the fleet.
"""

import math
from dataclasses import dataclass, replace
from typing import Protocol, TypeVar, runtime_checkable

import numpy as np

from tidegate._internal.arrays import FloatArray
from tidegate.admission.debt import ROUNDING
from tidegate.prices import Price, as_price


@dataclass(frozen=True, eq=False)
class Quote:
    """What a sample costs in one round, and what there is to fill."""

    price: float
    """c(t), averaged over the clients as an order will be split."""
    own: FloatArray | None = None
    """The price of each client that takes part, where they differ."""
    parts: FloatArray | None = None
    """Beside these, each client's part of an order."""
    empty_slots: int | None = None
    """Of the clients that take part, where samples stay until others take their place; none where
    that is not known. Slots of clients whose stream has run dry do not count."""
    delay: float = 0.0
    """Rounds that a purchase takes, on average so far."""
    ahead: tuple[float, ...] = ()
    """The prices of the next rounds, as far as they are known."""

    @classmethod
    def of(cls, price: Price, shares: FloatArray) -> "Quote":
        """A price for all, or each client's own, averaged by their parts of an order.

        Args:
            price: one, or one for each client that takes part; there is at least one.
            shares: of these clients, as weights; where all are 0 each counts the same.
        """
        price = as_price(price)
        if isinstance(price, float):
            return cls(price)
        if price.min() == price.max():
            return cls(float(price[0]))
        total = float(shares.sum())
        parts = shares / total if total else np.full(len(price), 1 / len(price))
        return cls(float(parts @ price), price, parts)

    @property
    def highest(self) -> float:
        """What no client pays more than."""
        return self.price if self.own is None else float(self.own.max())

    def affordable(self, money: float, up_to: float = math.inf) -> float:
        """Whole samples that the money pays for, whoever takes them; infinity where they are free.

        Args:
            money: what may be spent.
            up_to: nobody takes a sample at a higher price.

        >>> Quote(2.5).affordable(11.0)
        4.0
        >>> Quote(0.1).affordable(0.3)  # 2.9999999999999996 in floating point
        3.0
        """
        price = self.highest
        if self.own is not None and price > up_to:
            price = float(self.own.max(where=self.own <= up_to, initial=0.0))
        count = money / price * (1 + ROUNDING) if price else math.inf
        return float(max(math.floor(count), 0)) if math.isfinite(count) else math.inf


@dataclass(frozen=True)
class FleetOrder:
    """What the whole fleet is asked to do in one round: admit a total, or follow a rule."""

    total_admission: float
    """Λ(t), samples; real-valued, turned into whole samples by ``allocation``. Beside a rule the
    most that it may lead to, infinity for no limit."""
    thresholds: tuple[float, ...] = ()
    """A rule: the price up to which a slot takes a fresh sample, as in ``wire.Order``."""
    money: float = math.inf
    """What the fleet may spend on it at most, where clients have prices of their own."""

    @property
    def highest_price(self) -> float:
        """At which any sample is taken."""
        return max(self.thresholds, default=math.inf)

    def each_pays_its_own(self, quote: Quote) -> bool:
        """Whether a rule meets prices of clients' own: what it costs is then counted for each."""
        return bool(self.thresholds) and quote.own is not None

    def within(self, money: float, quote: Quote, limit: float) -> tuple["FleetOrder", int | None]:
        """An order that money pays for, and the whole samples that it may lead to; none for all.

        Args:
            money: what may be spent.
            quote: the round's price.
            limit: samples that there is room for.

        >>> FleetOrder(9.0).within(11.0, Quote(2.5), limit=100.0)
        (FleetOrder(total_admission=4.0, thresholds=(), money=inf), 4)
        """
        paid_for = quote.affordable(money, self.highest_price)
        if math.isinf(paid_for) or (self.thresholds and paid_for >= limit):
            return self, None
        return replace(self, total_admission=min(self.total_admission, paid_for)), int(paid_for)


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
    slots: int = 0
    """Of all clients that took part, answered or not; 0 where that is not known."""


class HasDebt(Protocol):
    """Any state of a rule: it knows the cost debt that the next round begins with."""

    @property
    def cost_debt(self) -> float:
        """Z(t)."""
        ...


State = TypeVar("State", bound=HasDebt)


class AdmissionRule(Protocol[State]):
    """How many samples the fleet takes in."""

    @property
    def budget(self) -> float:
        """C, what a round may cost in the long run."""
        ...

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
            limit: samples that there is room for under a hard capacity, infinity without one.
                (A rule by age leads to no more than there is room for, whatever it says.)
        """
        ...

    def settle(self, state: State, totals: RoundTotals) -> State:
        """The state of the next round, once the fleet has reported."""
        ...


@runtime_checkable
class GrantedRule(AdmissionRule[State], Protocol[State]):
    """A rule whose budget is granted round by round, as that of a shard is."""

    def granted(self, budget: float, expected: float) -> "GrantedRule[State]":
        """The rule for a round that may cost so much, with what rounds to come will get each."""
        ...

    def earned(self, state: State) -> float:
        """What all rounds so far were granted."""
        ...

    def worth(self, state: State) -> tuple[float, float] | None:
        """What a round is planned to cost, and what one unit more would be worth; if known."""
        ...
