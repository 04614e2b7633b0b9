"""The decision of a round: rule, state, what the fleet holds, prices and cash in; counts out.

A running fleet and a simulated one decide here. The rule gives a total or price thresholds by age;
the total is split among the clients; and what comes out is priced once, by each client's own price,
so that it costs no more than the cash. Where clients have their own prices and the cash does not
pay for all, it buys where samples are cheapest.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from tidegate._internal.arrays import EVERYONE, FloatArray, IntArray, Members
from tidegate.admission.allocation import Allocation
from tidegate.admission.debt import ROUNDING
from tidegate.admission.floor import cheapest_first, least_counts, with_least
from tidegate.admission.rule import FleetOrder, Quote, State
from tidegate.policies.joint import JointPolicy


class Stock(Protocol):
    """What the clients that take part hold, one entry a client."""

    def room(self) -> IntArray:
        """Return how many samples each can buy within its capacity."""
        ...

    def total_room(self) -> float:
        """Return how many samples all can buy within their capacities."""
        ...

    def wanted(self, thresholds: Sequence[float], prices: FloatArray) -> IntArray:
        """Return how many samples each buys under a rule by age."""
        ...

    def reserves(self) -> tuple[FloatArray, IntArray, IntArray]:
        """Return what each has paid, how many samples it holds, and the most reserved for it."""
        ...


@dataclass(frozen=True, eq=False)
class Decision:
    """What the clients that take part may buy in a round."""

    total: float
    """Λ(t), real-valued; infinity where a rule has no limit."""
    thresholds: tuple[float, ...]
    """A rule by age, the same for all; empty for counts."""
    counts: IntArray | None
    """The most that each client buys; None where only the rule limits it."""
    owed: IntArray | None
    """Samples that a client buys whatever the rule says; None where clients pay the same."""
    allocation: Allocation
    """After the round."""


def cash(budget: float, round_number: int, overspend: float, ahead: float = 0.0) -> float:
    """Return the money for round t if the run may spend at most C·t by its end, plus ``ahead``.

    It adds one part in 10¹², so that a price that divides the budget buys whole samples: three
    samples at 0.1 cost a little more than 0.3 in floating point.

    Args:
        budget: C.
        round_number: t.
        overspend: Σ (C_τ - C) over the rounds before, including what they may still cost.
        ahead: money of later rounds that the run may spend in advance: s·C for s rounds.

    >>> round(cash(budget=55.0, round_number=3, overspend=-10.0), 6)
    65.0
    >>> round(cash(budget=55.0, round_number=3, overspend=-10.0, ahead=110.0), 6)
    175.0
    >>> cash(budget=0.3, round_number=1, overspend=0.0) >= 3 * 0.1
    True
    """
    rounding = ROUNDING * (budget * round_number + ahead)
    return max(budget + ahead - overspend + rounding, 0.0)


def decide(  # noqa: PLR0913 - all but three are given by name
    policy: JointPolicy[State],
    state: State,
    quote: Quote,
    *,
    stock: Stock,
    allocation: Allocation,
    round_number: int,
    who: Members = EVERYONE,
    cash: float = math.inf,
    unsettled: float = 0.0,
    budget: float | None = None,
    paused: bool = False,
) -> Decision:
    """Decide a round.

    Args:
        policy: whose rule decides.
        state: of the rule, after it has learned the round's prices.
        quote: the round's prices, for the clients that take part.
        stock: what these clients hold.
        allocation: what each client of the fleet was ordered so far.
        round_number: t.
        who: the clients that take part.
        cash: the most that the round may cost.
        unsettled: what earlier orders without a reply may still cost.
        budget: C, of which a part is reserved for each client; the rule's own by default.
        paused: buy nothing.
    """
    room, limit = None, math.inf
    if policy.hard_capacity:
        room, limit = stock.room(), stock.total_room()
    order = policy.admission.decide(state, quote, limit)
    if paused:
        order = FleetOrder(0.0)
    money = min(cash, order.money - unsettled)
    total, most, rule = order.total_admission, 0 if paused else None, order.thresholds
    if not len(policy.shares[who]):
        nobody = np.zeros(0, dtype=np.int64)
        return Decision(0.0 if math.isinf(total) else total, (), nobody, None, allocation)
    counts: IntArray
    if quote.own is None:
        paid_for = quote.affordable(money)
        if not math.isinf(paid_for) and not (rule and paid_for >= limit):
            total, most = min(total, paid_for), int(paid_for)
        if math.isinf(total):
            return Decision(total, rule, None, None, allocation)
        split, allocation = allocation.allocate(total, room, most, who)
        return Decision(total, rule, split.astype(np.int64), None, allocation)
    if rule and total:
        wanted = stock.wanted(rule, quote.own)
        paid, held, reserved = stock.reserves()
        share = (policy.admission.budget if budget is None else budget) * policy.shares[who]
        least = least_counts(policy.least_share, share, quote.own, paid, held, round_number)
        least = np.minimum(least, reserved)
        counts, owed = with_least(wanted, least, quote.own, money, round_number)
        return Decision(total, rule, counts, owed, allocation)
    split, allocation = allocation.allocate(total, room, most, who)
    counts = split.astype(np.int64)
    if not math.isinf(money):
        counts = cheapest_first(counts, quote.own, money, round_number)
    return Decision(total, rule, counts, None, allocation)
