"""The decision of a round, by itself: what may be bought is priced once, by each client's price."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate._internal.arrays import FloatArray, IntArray
from tidegate.admission.allocation import Allocation
from tidegate.admission.rule import FleetOrder, Quote, RoundTotals
from tidegate.policies import ControlOptions, JointPolicy
from tidegate.policies.decision import Decision, cash, decide
from tidegate.policies.presets import make_policy
from tidegate.problem import Problem

CLIENTS = 5
CAPACITY = 8
RULE = (math.inf, 0.0)


@dataclass(frozen=True)
class Says:
    """A rule that orders what it is made with."""

    order: FleetOrder
    budget: float = 10.0

    def start(self) -> Any:
        return None

    def learn(self, state: Any, quote: Quote) -> Any:
        return state

    def decide(self, state: Any, quote: Quote, limit: float) -> FleetOrder:
        if self.order.thresholds:
            return self.order
        return replace(self.order, total_admission=min(self.order.total_admission, limit))

    def settle(self, state: Any, totals: RoundTotals) -> Any:
        return state


@dataclass(frozen=True)
class Empty:
    """Clients of which each wants so many, and has room for as many."""

    wants: tuple[int, ...]

    def room(self) -> IntArray:
        return np.array(self.wants, dtype=np.int64)

    def total_room(self) -> float:
        return float(sum(self.wants))

    def wanted(self, thresholds: Sequence[float], prices: FloatArray) -> IntArray:
        return np.where(prices <= thresholds[0], self.room(), 0)

    def reserves(self) -> tuple[FloatArray, IntArray, IntArray]:
        return np.zeros(len(self.wants)), np.zeros(len(self.wants), dtype=np.int64), self.room()


def policy(order: FleetOrder) -> JointPolicy[Any]:
    problem = Problem(
        buffer_capacities=[CAPACITY] * CLIENTS, budget=10.0, mean_price=1.0, num_rounds=9
    )
    made = make_policy("tide", problem, ControlOptions(hard_capacity=True))
    return replace(made, admission=Says(order))


def decided(
    order: FleetOrder, prices: Sequence[float], wants: Sequence[int], **limits: Any
) -> Decision:
    made = policy(order)
    quote = Quote.of(np.array(prices, dtype=np.float64), made.shares)
    return decide(
        made,
        None,
        quote,
        stock=Empty(tuple(wants)),
        allocation=Allocation.start(made.shares),
        round_number=1,
        **limits,
    )


def bought(decision: Decision, prices: Sequence[float], wants: Sequence[int]) -> IntArray:
    """What clients buy that have room for so many; what they are owed, at any price."""
    wanted = np.array(wants, dtype=np.int64)
    if decision.thresholds:
        buys = np.array(prices) <= decision.thresholds[0]
        if decision.owed is not None:
            buys |= decision.owed > 0
        wanted = np.where(buys, wanted, 0)
    return wanted if decision.counts is None else np.minimum(wanted, decision.counts)


PRICES = st.lists(st.sampled_from([0.0, 0.3, 1.0, 2.5, 1000.0]), min_size=5, max_size=5)
WANTS = st.lists(st.integers(0, CAPACITY), min_size=CLIENTS, max_size=CLIENTS)
ORDERS = st.builds(
    FleetOrder,
    total_admission=st.floats(0, 50),
    money=st.floats(0, 40) | st.just(math.inf),
) | st.builds(
    FleetOrder,
    total_admission=st.just(math.inf),
    thresholds=st.sampled_from([RULE, (1.0, 0.5), (2.5, 9.0)]),
    money=st.floats(0, 40) | st.just(math.inf),
)


@given(ORDERS, PRICES, WANTS, st.floats(0, 60), st.floats(0, 20))
def test_no_more_is_bought_than_there_is_money_for(
    order: FleetOrder, prices: list[float], wants: list[int], cash: float, unsettled: float
) -> None:
    decision = decided(order, prices, wants, cash=cash, unsettled=unsettled)
    counts = bought(decision, prices, wants)
    money = max(min(cash, order.money - unsettled), 0.0)
    assert float(counts @ np.array(prices)) <= money * (1 + 1e-9)
    assert counts.sum() <= max(decision.total, 0.0) + 1e-9


def test_money_of_later_rounds_pays_for_whole_samples_to_the_last() -> None:
    assert 0.1 + 0.7 < 8 * 0.1  # as floats
    assert cash(budget=0.1, round_number=1, overspend=0.0, ahead=0.7) >= 8 * 0.1


@given(ORDERS, PRICES, WANTS)
def test_nothing_is_bought_in_a_pause(
    order: FleetOrder, prices: list[float], wants: list[int]
) -> None:
    decision = decided(order, prices, wants, paused=True)
    assert not bought(decision, prices, wants).any()


@given(ORDERS, PRICES, WANTS, st.floats(0, 60), st.sampled_from([2.6, 7.0, 1e6, 1e15]))
def test_the_dearest_client_takes_nothing_from_the_others(
    order: FleetOrder, prices: list[float], wants: list[int], cash: float, dear: float
) -> None:
    """Each of them buys as much as if the dear one wanted nothing, whatever its price."""
    prices = [min(price, 2.5) for price in prices[:-1]] + [dear]
    decisions = [
        bought(decided(order, all_prices, wants, cash=cash), all_prices, wants)
        for all_prices in (prices, [*prices[:-1], 2.55])
    ]
    assert decisions[0][:-1].tolist() == decisions[1][:-1].tolist()
    assert decisions[0][-1] <= decisions[1][-1]


@pytest.mark.parametrize("thresholds", [(), RULE])
def test_what_money_does_not_pay_for_is_bought_where_it_is_cheapest(
    thresholds: tuple[float, ...],
) -> None:
    order = FleetOrder(math.inf if thresholds else 40.0, thresholds)
    decision = decided(order, [5.0, 1.0, 1000.0, 2.0, 3.0], [8] * 5, cash=8 + 16 + 3 * 4 + 1.0)
    assert decision.counts is not None
    assert decision.counts.tolist() == [0, 8, 0, 8, 4]


def test_a_rule_without_a_limit_is_sent_as_it_is() -> None:
    """Where all pay the same and there is money, no number goes with it."""
    decision = decided(FleetOrder(math.inf, RULE), [2.0] * 5, [3] * 5, cash=31.0)
    assert (decision.counts, decision.owed, decision.thresholds) == (None, None, RULE)
    limited = decided(FleetOrder(math.inf, RULE), [2.0] * 5, [3] * 5, cash=20.0)
    assert limited.counts is not None
    assert limited.counts.sum() == 10
