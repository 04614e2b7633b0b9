"""Spend limited money where samples are cheapest."""

import numpy as np

from tidegate._internal.arrays import FloatArray, IntArray


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
    given = np.empty_like(wanted)
    given[order] = np.clip(np.floor(paid_for), 0, count).astype(wanted.dtype)
    return given
