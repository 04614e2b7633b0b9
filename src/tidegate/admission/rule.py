"""The protocol of admission rules (start, learn, decide, settle), and the state of the paper's.

The runner holds the state and passes it to the rule; a rule is immutable. Nothing here depends on
single clients: an order is for the fleet, and a rule gets sums over the fleet back.
"""

import math
from dataclasses import dataclass
from typing import Protocol, TypeVar, runtime_checkable

import numpy as np

from tidegate._internal.arrays import FloatArray
from tidegate.admission.debt import ROUNDING, next_cost_debt
from tidegate.prices import Price, as_price


@dataclass(frozen=True, eq=False)
class Quote:
    """The price of a sample in one round, and the slots that are empty."""

    price: float
    """c(t); if clients have their own prices, the average by their parts of an order."""
    own: FloatArray | None = None
    """The price of each client that takes part; None if all have the same."""
    parts: FloatArray | None = None
    """The part of an order that each of these clients gets."""
    empty_slots: int | None = None
    """Empty slots of the clients that take part, under oldest-first retention; None if not known.
    Slots of clients whose stream has run dry do not count."""
    ahead: tuple[float, ...] = ()
    """The prices of the next rounds, as far as they are known."""
    delay: int = 0
    """d: what is bought in round t trains from round t + d on, as far as is known."""

    @classmethod
    def of(cls, price: Price, shares: FloatArray) -> "Quote":
        """Return the quote of one price for all, or of each client's own.

        Args:
            price: one, or one for each client that takes part (at least one).
            shares: the weights of these clients; if all are 0, each counts the same.
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
        """The highest price that a client pays."""
        return self.price if self.own is None else float(self.own.max())

    def affordable(self, money: float) -> float:
        """Return how many samples the money pays for at the price; infinity if it is 0.

        >>> Quote(2.5).affordable(11.0)
        4.0
        >>> Quote(0.1).affordable(0.3)  # 2.9999999999999996 in floating point
        3.0
        """
        count = money / self.price * (1 + ROUNDING) if self.price else math.inf
        return float(max(math.floor(count), 0)) if math.isfinite(count) else math.inf


@dataclass(frozen=True)
class FleetOrder:
    """An order to the whole fleet for one round: admit a total, or follow a rule."""

    total_admission: float
    """Λ(t), samples; real-valued, ``allocation`` makes whole samples of it. With a rule, the most
    samples that the rule may admit; infinity for no limit."""
    thresholds: tuple[float, ...] = ()
    """A rule: the prices up to which a slot takes a fresh sample, as in ``wire.Order``."""
    money: float = math.inf
    """The most that the fleet may spend on the order."""


@dataclass(frozen=True)
class RoundTotals:
    """What the fleet did in one round, as sums over clients.

    Clients may admit less than the order (device away, stream dry), so every state follows these
    numbers and never the order.
    """

    admitted: int
    """Samples that trained for the first time."""
    spent: float
    """C_t, paid for them."""
    training_size: int
    """n(t), samples stored and trained on."""
    prior_uses: int
    """The earlier uses of all stored samples together."""
    carried: int
    """Samples in the plan (``tidegate.buffer``) that stay for the next round: those that are stored
    or under way, without those that expire."""
    slots: int = 0
    """The slots of all clients that took part, whether they replied or not; 0 if not known."""
    bought: int = 0
    """Samples that were bought, whether they have arrived or not."""


@dataclass(frozen=True)
class ServerState:
    """The state that all of the paper's rules share: four numbers for a fleet of any size.

    >>> totals = RoundTotals(admitted=9, spent=60.0, training_size=9, prior_uses=0, carried=9)
    >>> ServerState().settled(totals, budget=55.0)
    ServerState(round_number=2, cost_debt=5.0, distinct_samples=9, carried_samples=9)
    """

    round_number: int = 1
    """t, the round that comes next."""
    cost_debt: float = 0.0
    """Z(t), with Z(1) = 0."""
    distinct_samples: int = 0
    """N(t-1)."""
    carried_samples: int = 0
    """n(t-1) - Λ(t-K): the stored samples that have not expired when the round begins."""

    def settled(self, totals: RoundTotals, budget: float) -> "ServerState":
        """Return the state one round later.

        Reports may be late: a sample that is stored counts as distinct even before its admission
        was reported.
        """
        return ServerState(
            round_number=self.round_number + 1,
            cost_debt=next_cost_debt(self.cost_debt, totals.spent, budget),
            distinct_samples=max(self.distinct_samples + totals.admitted, totals.carried),
            carried_samples=totals.carried,
        )


class HasDebt(Protocol):
    """The state of a rule, which has the cost debt at the start of the next round."""

    @property
    def cost_debt(self) -> float:
        """Z(t)."""
        ...


State = TypeVar("State", bound=HasDebt)


class AdmissionRule(Protocol[State]):
    """A rule for how many samples the fleet admits."""

    @property
    def budget(self) -> float:
        """C, the most that a round may cost in the long run."""
        ...

    def start(self) -> State:
        """Return the state before round 1."""
        ...

    def learn(self, state: State, quote: Quote) -> State:
        """Return the state after the round's price; the same state if the rule does not learn."""
        ...

    def decide(self, state: State, quote: Quote, limit: float) -> FleetOrder:
        """Return the order for this round.

        Args:
            state: the state that ``learn`` returned.
            quote: the round's price.
            limit: the room for samples under a hard capacity, infinity without one. (A rule by age
                never admits more than there is room for.)
        """
        ...

    def settle(self, state: State, totals: RoundTotals) -> State:
        """Return the state of the next round, after the fleet's report."""
        ...


@runtime_checkable
class GrantedRule(AdmissionRule[State], Protocol[State]):
    """A rule that gets its budget round by round, as in a shard."""

    def granted(self, budget: float, expected: float) -> "GrantedRule[State]":
        """Return the rule with this round's budget, and the expected budget of each later round."""
        ...

    def earned(self, state: State) -> float:
        """Return the sum of the budgets of all rounds so far."""
        ...

    def worth(self, state: State) -> tuple[float, float] | None:
        """Return the planned cost of a round, and the worth of one more unit; None if not known."""
        ...
