"""Clients with prices of their own: the cheapest first, and the least that each buys.

A price rule buys where samples are cheap. A client whose price is always high would hold no sample,
and if no other client has similar data, the model would never see them. Tidegate therefore reserves
for each client a part of its share of the budget, by memory. The client spends it at its own price,
whatever the rule says.
"""

import numpy as np

from tidegate._internal.arrays import FloatArray, IntArray
from tidegate.wire import LARGEST_CAPACITY

LEAST_SHARE = 0.25
"""The part of its share of the budget, by memory, that is reserved for each client."""
FIRST_AFTER = 10
"""Rounds after which a client that holds no sample may buy its first one on credit."""
CREDIT = 20
"""The first sample on credit costs at most the client's reserved money of this many rounds."""


def cheapest_first(wanted: IntArray, prices: FloatArray, money: float, turn: int = 0) -> IntArray:
    """Return how many of the wanted samples each client buys, the cheapest first.

    Args:
        wanted: samples, for each client.
        prices: each client's own.
        money: the most that all clients may spend together.
        turn: which client comes first among those with the same price; the next one next time.

    >>> cheapest_first(np.array([4, 4, 4]), np.array([3.0, 1.0, 2.0]), money=9.0).tolist()
    [0, 4, 2]
    """
    order = np.lexsort(((np.arange(len(prices)) - turn) % max(len(prices), 1), prices))
    count, price = wanted[order], prices[order]
    left = money - (np.cumsum(count * price) - count * price)
    paid_for = np.full(len(count), np.inf)
    with np.errstate(over="ignore"):  # at a price near 0 the money pays for any number
        np.divide(left, price, out=paid_for, where=price > 0)
    counts = np.empty_like(wanted)
    counts[order] = np.clip(np.floor(paid_for), 0, count).astype(wanted.dtype)
    return counts


def least_counts(
    least_share: float,
    money: FloatArray,
    prices: FloatArray,
    spent: FloatArray,
    stored: IntArray,
    round_number: int,
) -> IntArray:
    """Return how many samples each client buys at least in a round.

    Args:
        least_share: the reserved part of each client's money, from 0 to 1.
        money: each client's part of the budget of a round.
        prices: each client's own.
        spent: what each client has spent so far.
        stored: samples of each client, stored or under way.
        round_number: t.

    >>> money, prices, spent = np.full(3, 4.0), np.array([1.0, 6.0, 60.0]), np.array([9.0, 0, 0])
    >>> least_counts(0.25, money, prices, spent, np.array([9, 0, 0]), round_number=7).tolist()
    [0, 1, 0]
    """
    rate = least_share * money
    most = np.maximum(CREDIT * rate, prices)  # a client that has just joined is not owed the past
    owed = np.clip(rate * round_number - spent, 0.0, most)
    with np.errstate(over="ignore"):  # at a price near 0 the money pays for any number
        count = np.floor(np.divide(owed, prices, out=np.zeros_like(owed), where=prices > 0))
    if round_number > FIRST_AFTER:
        is_first = (stored == 0) & (spent == 0) & (prices <= CREDIT * rate)
        count = np.where(is_first, np.maximum(count, 1), count)
    return np.minimum(count, LARGEST_CAPACITY).astype(np.int64)


def with_least(
    wanted: IntArray, least: IntArray, prices: FloatArray, money: float, turn: int = 0
) -> tuple[IntArray, IntArray]:
    """Return how many samples each client buys, and how many of them only to reach its least.

    Clients whose least exceeds what the rule gives them come first, then the lowest prices, as far
    as the money goes.

    Args:
        wanted: samples that each client buys by the rule.
        least: the least that each client buys.
        prices: each client's own.
        money: the most that all clients may spend together; infinity for no limit.
        turn: as in ``cheapest_first``.

    >>> counts = with_least(np.array([4, 0]), np.array([0, 1]), np.array([1.0, 5.0]), money=7.0)
    >>> [count.tolist() for count in counts]
    [[2, 1], [0, 1]]
    """
    owed = np.where(least > wanted, least, 0)
    others = np.where(owed > 0, 0, wanted)
    if not np.isinf(money):
        owed = cheapest_first(owed, prices, money, turn)
        others = cheapest_first(others, prices, money - float(owed @ prices), turn)
    return owed + others, owed
