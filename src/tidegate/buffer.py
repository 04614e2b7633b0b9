"""The rule of a buffer, on counts by age: what an order wants, what leaves, what stays.

A buffer is planned: a purchase counts from the order that made it, whether its sample has arrived
or not, and its age is the number of orders since. What it replaces in the plan stays and trains
until an arrival takes its place. Without a delay, plan and buffer are the same, and the age of a
sample is the number of rounds that it has trained in.

Server, gate and experiments call these functions; ``retention`` has the same rule for whole fleets
in arrays.
"""

import math
from bisect import bisect_left
from collections import Counter
from collections.abc import Mapping

from tidegate.wire import MOST_AGES, Order

Holding = tuple[int, ...]
"""Samples by age, from age 1 on; at ``MOST_AGES`` it ends with all that are as old or older."""


def holding(ages: Mapping[int, int]) -> Holding:
    """Return how many samples there are of each age, given them by age in any order.

    >>> holding({3: 1, 1: 2})
    (2, 0, 1)
    """
    counts = [0] * min(max(ages, default=0), MOST_AGES)
    for age, count in ages.items():
        counts[min(age, MOST_AGES) - 1] += count
    return tuple(counts)


def without_oldest(held: Holding, count: int) -> Holding:
    """Return what stays when so many of the oldest samples leave.

    >>> without_oldest((2, 0, 1), 2)
    (1,)
    """
    left = list(held)
    while left and (count or not left[-1]):
        leaving = min(left[-1], count)
        left[-1] -= leaving
        count -= leaving
        if not left[-1]:
            left.pop()
    return tuple(left)


def kept(held: Holding, horizon: float, expiring: int) -> Holding:
    """Return what is still planned when an order comes.

    Args:
        held: after the order before.
        horizon: the age at which samples leave, by the order that comes; infinity for none.
        expiring: how many leave by the order before, which counts if no age is told apart from it.

    >>> kept((2, 0, 1), horizon=3, expiring=1)
    (2,)
    """
    if horizon <= MOST_AGES:
        return without_oldest(held[: int(horizon) - 1], 0)
    return held if math.isinf(horizon) else without_oldest(held, expiring)


def both(some: Holding, others: Holding) -> Holding:
    """Return two holdings as one."""
    longer, shorter = sorted((some, others), key=len, reverse=True)
    return tuple(
        count + (shorter[place] if place < len(shorter) else 0)
        for place, count in enumerate(longer)
    )


def less(some: Holding, others: Holding) -> Holding:
    """Return what the first holding has more of, by age.

    >>> less((2, 3), (4, 1, 1))
    (0, 2)
    """
    return tuple(
        max(count - (others[place] if place < len(others) else 0), 0)
        for place, count in enumerate(some)
    )


def aged(held: Holding, fresh: int = 0) -> Holding:
    """Return a holding one order later, with fresh samples of age 1."""
    if not held:
        return (fresh,) if fresh else ()
    older = (fresh, *held)
    return older if len(older) <= MOST_AGES else (*older[: MOST_AGES - 1], older[-2] + older[-1])


def wanted(order: Order, kept: Holding, capacity: int) -> int:
    """Return how many samples an order asks a buffer to buy.

    A count fills empty slots; under ``oldest_first`` also those of stored samples. A rule fills the
    empty slots, and those of samples that are old enough for the price.

    Args:
        order: with a count or thresholds.
        kept: what is planned once the expired samples have left.
        capacity: B_m.

    >>> rule = Order(run="r", round_number=1, price=2.0, retention="oldest_first",
    ...              thresholds=(9.0, 1.0, 3.0), count=9)
    >>> wanted(rule, kept=(4, 3, 1), capacity=10)
    6
    """
    stored = sum(kept)
    empty = max(capacity - stored, 0)
    if not order.thresholds:
        return min(order.count, max(capacity, stored) if order.evicts else empty)
    rule, last = order.thresholds, len(order.thresholds) - 1
    # From the second threshold on they do not fall: whatever is older is taken, too.
    youngest = bisect_left(rule, order.price, lo=min(1, last))
    old = sum(kept[max(youngest, 1) - 1 :]) if youngest <= last else 0
    return min(order.count, empty * (order.price <= rule[0]) + old)


def after(kept: Holding, bought: int, capacity: int) -> Holding:
    """Return the plan after a round: what is bought fills empty slots, then replaces the oldest.

    Args:
        kept: what was planned when the order came, without the expired samples.
        bought: for the order.
        capacity: B_m; what is planned beyond it leaves.

    >>> after((2, 0, 1), bought=2, capacity=4)
    (2, 2)
    """
    return aged(without_oldest(kept, max(sum(kept) + bought - capacity, 0)), bought)


def leaving(held: Mapping[tuple[int, str], int], count: int) -> Counter[tuple[int, str]]:
    """Return which samples make room for so many others.

    Those with the greatest age times the square of how many of their group are held; of equal ones,
    the oldest. A sample without a group is the only one of its kind: without groups the oldest go.

    Args:
        held: samples by age and group; an empty name stands for none.
        count: of the samples that leave.

    >>> dict(leaving({(5, "rare"): 1, (3, "common"): 2, (1, "common"): 1}, 2))
    {(3, 'common'): 2}
    >>> dict(leaving({(5, ""): 1, (3, ""): 2}, 2))
    {(5, ''): 1, (3, ''): 1}
    """
    ages = dict[str, list[int]]()
    sizes = Counter[str]()
    for age, group in sorted(held):
        ages.setdefault(group, []).append(age)
        sizes[group] += held[age, group]

    def next_to_go(group: str) -> tuple[int, int, str]:
        age = ages[group][-1]
        return age * (sizes[group] ** 2 if group else 1), age, group

    going = Counter[tuple[int, str]]()
    while count and ages:
        _, age, group = max(map(next_to_go, ages))
        left = held[age, group] - going[age, group]
        leaves = 1 if group else min(left, count)
        going[age, group] += leaves
        sizes[group] -= leaves
        count -= leaves
        if leaves == left:
            ages[group].pop()
        if not ages[group]:
            del ages[group]
    return going


def planned(held: Mapping[tuple[int, str], int], capacity: int) -> dict[int, int]:
    """Return the plan, by age: all that is stored or under way, without what makes room.

    >>> planned({(5, ""): 1, (1, ""): 1, (2, ""): 3}, capacity=2)
    {1: 1, 2: 1}
    """
    going = leaving(held, max(sum(held.values()) - capacity, 0))
    plan = dict[int, int]()
    for age, group in sorted(held):
        count = held[age, group] - going[age, group]
        if count:
            plan[age] = plan.get(age, 0) + count
    return plan


def may_follow(reported: Holding, held: Holding, bought: int, under_way: int) -> bool:
    """Return whether a plan can be that after an order.

    Nothing becomes older than it is: at most as many samples have an age of a + 1 or more as had a
    or more before. What the plan had replaced may come back where a purchase under way is refused.

    Args:
        reported: as a receipt tells it after the order.
        held: as the receipt before told it, with the samples that have expired since: where a
            horizon grows, these may stay.
        bought: for the order.
        under_way: purchases under way before the order.

    >>> may_follow((2, 2), held=(2, 1), bought=2, under_way=0)
    True
    >>> may_follow((2, 1, 2), held=(2, 1), bought=2, under_way=0)
    False
    """
    if reported and reported[0] > bought:
        return False
    older, before = sum(reported[1:]), sum(held)
    for place in range(1, len(reported)):
        if older > before + under_way:
            return False
        older -= reported[place]
        before -= held[place - 1] if place <= len(held) else 0
    return True
