"""What every client is bought in any case, where clients have prices of their own.

A rule by price buys where samples are cheap. A client whose price is always high would hold no
sample at all, and if its data are like nobody else's, the model never sees them. So a part of the
money that a client would get if all were treated alike, by memory, is spent on it at its own price,
whatever the rule says.
"""

import numpy as np

from tidegate._internal.arrays import FloatArray, IntArray
from tidegate.admission.allocation import cheapest_first
from tidegate.wire import LARGEST_CAPACITY

LEAST_SHARE = 0.25
"""Of the money that a client would get if all were treated alike."""
FIRST_AFTER = 10
"""Rounds after which a client that holds nothing may have its first sample on credit."""
CREDIT = 20
"""Rounds: that sample costs no more than its client's least money of so many."""


def least_counts(
    least_share: float,
    money: FloatArray,
    prices: FloatArray,
    spent: FloatArray,
    stored: IntArray,
    round_number: int,
) -> IntArray:
    """Samples that each client is bought at least in a round.

    Args:
        least_share: of its part of the budget, from 0 to 1.
        money: each client's part of the budget of a round.
        prices: of each client's own.
        spent: on each client so far.
        stored: samples that each holds, or that are under way to it.
        round_number: t.

    >>> money, prices, spent = np.full(3, 4.0), np.array([1.0, 6.0, 60.0]), np.array([9.0, 0, 0])
    >>> least_counts(0.25, money, prices, spent, np.array([9, 0, 0]), round_number=7).tolist()
    [0, 1, 0]
    """
    rate = least_share * money
    most = np.maximum(CREDIT * rate, prices)  # who has just joined is not owed the past
    owed = np.clip(rate * round_number - spent, 0.0, most)
    with np.errstate(over="ignore"):  # next to nothing pays for any number
        count = np.floor(np.divide(owed, prices, out=np.zeros_like(owed), where=prices > 0))
    if round_number > FIRST_AFTER:
        is_first = (stored == 0) & (spent == 0) & (prices <= CREDIT * rate)
        count = np.where(is_first, np.maximum(count, 1), count)
    return np.minimum(count, LARGEST_CAPACITY).astype(np.int64)


def with_least(
    wanted: IntArray, least: IntArray, prices: FloatArray, money: float
) -> tuple[IntArray, IntArray]:
    """What each client buys, and how much of it because it is the least that it is owed.

    Who is owed more than it wants comes first, then the lowest prices, as far as money goes.

    Args:
        wanted: samples that a rule leads to.
        least: samples that each is bought in any case.
        prices: of each client's own.
        money: what all may spend together; infinity for no limit.

    >>> counts = with_least(np.array([4, 0]), np.array([0, 1]), np.array([1.0, 5.0]), money=7.0)
    >>> [count.tolist() for count in counts]
    [[2, 1], [0, 1]]
    """
    owed = np.where(least > wanted, least, 0)
    others = np.where(owed > 0, 0, wanted)
    if not np.isinf(money):
        owed = cheapest_first(owed, prices, money)
        others = cheapest_first(others, prices, money - float(owed @ prices))
    return owed + others, owed
