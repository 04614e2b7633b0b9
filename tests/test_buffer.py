"""The rule of a buffer on counts, against samples one by one, and against the fleet's arrays."""

import math
from collections import Counter
from collections.abc import Sequence

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from tidegate import buffer
from tidegate._internal.arrays import EVERYONE
from tidegate.retention.k_step import KStepRetention
from tidegate.retention.oldest_first import OldestFirst
from tidegate.wire import MOST_AGES, NO_LIMIT, Order

CAPACITY = 6
ages = st.lists(st.integers(1, 9), max_size=CAPACITY)
prices = st.integers(1, 9).map(float)
rules = st.builds(
    lambda empty, old: (empty, *sorted(old)), prices, st.lists(prices, min_size=1, max_size=6)
)


def counted(ages: Sequence[int]) -> buffer.Holding:
    """A holding of samples of these ages."""
    return buffer.holding(Counter(ages))


def order(price: float, thresholds: tuple[float, ...] = (), count: int = NO_LIMIT) -> Order:
    return Order(
        run="r",
        round_number=1,
        price=price,
        retention="oldest_first",
        count=count,
        thresholds=thresholds,
    )


@given(ages, prices, rules, st.integers(0, 9))
def test_what_a_rule_wants_is_counted_slot_by_slot(
    held: list[int], price: float, rule: tuple[float, ...], count: int
) -> None:
    slots = [0] * (CAPACITY - len(held)) + held
    taken = sum(price <= rule[min(age, len(rule) - 1)] for age in slots)
    wanted = buffer.wanted(order(price, rule, count), counted(held), CAPACITY)
    assert wanted == min(taken, count)


@given(ages, st.integers(0, CAPACITY))
def test_what_is_bought_fills_empty_slots_and_then_replaces_the_oldest(
    held: list[int], bought: int
) -> None:
    stays = sorted(held)[: CAPACITY - bought]
    expected = [1] * bought + [age + 1 for age in stays]
    assert buffer.after(counted(held), bought, CAPACITY) == buffer.holding(Counter(expected))


@given(ages, st.integers(2, 9))
def test_what_is_kept_is_younger_than_the_horizon(held: list[int], horizon: int) -> None:
    younger = [age for age in held if age < horizon]
    kept = buffer.kept(counted(held), horizon, expiring=0)
    assert sum(kept) == len(younger)
    assert buffer.both(kept, ()) == counted(younger)
    assert buffer.kept(counted(held), math.inf, expiring=3) == buffer.holding(Counter(held))


def test_ages_beyond_the_last_that_is_told_apart_are_one() -> None:
    old = counted([MOST_AGES, MOST_AGES + 7])
    assert len(old) == MOST_AGES
    assert old[-1] == 2
    assert buffer.after(old, bought=1, capacity=9)[-1] == 2
    assert buffer.kept(old, MOST_AGES + 5, expiring=1) == counted([MOST_AGES])


@given(ages, st.integers(0, CAPACITY), st.integers(0, 3), st.data())
def test_a_plan_may_follow_exactly_where_no_sample_is_older_than_it_can_be(
    held: list[int], bought: int, under_way: int, data: st.DataObject
) -> None:
    before = counted(held)
    assert buffer.may_follow(buffer.after(before, bought, CAPACITY), before, bought, under_way)
    claimed = data.draw(ages)
    tails = [
        (sum(age >= least + 1 for age in claimed), sum(age >= least for age in held))
        for least in range(1, 12)
    ]
    possible = all(now <= earlier + under_way for now, earlier in tails)
    possible &= claimed.count(1) <= bought
    assert buffer.may_follow(counted(claimed), before, bought, under_way) == possible


@given(st.integers(1, CAPACITY), st.lists(st.tuples(prices, rules), max_size=12), st.integers(0, 4))
def test_oldest_first_buffers_of_a_fleet_follow_the_rule(
    capacity: int, rounds: list[tuple[float, tuple[float, ...]]], most_uses: int
) -> None:
    fleet = OldestFirst(most_uses).buffers(np.array([capacity]), len(rounds))
    held: buffer.Holding = ()
    for price, rule in rounds:
        kept = buffer.kept(held, most_uses or math.inf, expiring=0)
        (wanted,) = fleet.wanted(EVERYONE, rule, price).tolist()
        assert wanted == buffer.wanted(order(price, rule), kept, capacity)
        stored = fleet.step(EVERYONE, np.array([wanted], dtype=np.int32))
        held = buffer.after(kept, wanted, capacity)
        assert stored.occupancy.tolist() == [sum(held)]
        uses = sum(age * count for age, count in enumerate(held, start=1))
        assert stored.prior_uses == uses - sum(held)


@given(st.integers(1, 5), st.lists(st.integers(0, CAPACITY), max_size=12))
def test_k_step_buffers_of_a_fleet_follow_the_rule(horizon: int, admissions: list[int]) -> None:
    fleet = KStepRetention(horizon).buffers(np.array([CAPACITY]), len(admissions))
    held: buffer.Holding = ()
    for count in admissions:
        kept = buffer.kept(held, horizon, expiring=0)
        asked = Order(run="r", round_number=1, price=1.0, retention_horizon=horizon, count=count)
        wanted = buffer.wanted(asked, kept, CAPACITY)
        assert wanted == min(count, *fleet.room(EVERYONE).tolist())
        stored = fleet.step(EVERYONE, np.array([wanted], dtype=np.int32))
        held = buffer.after(kept, wanted, CAPACITY)
        assert stored.occupancy.tolist() == [sum(held)]
        assert stored.expiring.tolist() == [sum(held[horizon - 1 :])]
