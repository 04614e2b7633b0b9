"""Whether the level of prices has changed for good: the newest prices against those before.

What is compared are ranks, so that one price out of all bounds counts no more than any other. The
mean rank of the last prices must lie far outside of what chance would give to as many independent
prices. Where prices resemble those before them, as in seasons and spells, it must lie far outside
of what stretches of that length really had, so that no season is taken for a change.
"""

import math

import numpy as np

from tidegate._internal.arrays import FloatArray

EVERY = 4
"""Rounds after which it is asked again; asking takes a tenth of the time of a decision."""
STRETCHES = (16, 32, 64, 128, 256)
"""Lengths, in rounds, of the newest prices that are held against those before."""
OLDER = 3
"""Stretches of that length at least that there must have been before."""
ALARM = 5.0
"""Standard deviations. With independent prices, fewer than one false alarm in 10,000 rounds."""
DEPENDENT = 4.0
"""Standard deviations by which prices must resemble those before them, to be taken for dependent.
"""
FEW = 6.0
"""How much wider a spread is taken for that was seen in few stretches."""
SAME = 0.01
"""Of the variance of all ranks: prices with less of it were all the same."""
SHORTEST = 8
"""Rounds that a new level lasts at least, when it is noticed."""


def rounds_since_change(prices: FloatArray) -> int | None:
    """How many of these prices, from the last one back, belong to a new level; none for all.

    Args:
        prices: one a round, in order.

    >>> before, after = np.tile([2.0, 9.0, 4.0], 100), np.tile([12.0, 24.0, 18.0], 10)
    >>> rounds_since_change(before), rounds_since_change(np.append(before, after))
    (None, 30)
    """
    count = len(prices)
    if count < (OLDER + 1) * STRETCHES[0]:
        return None
    ordered = np.sort(prices)
    ranks = (np.searchsorted(ordered, prices) + np.searchsorted(ordered, prices, "right")) / 2
    sums = np.concatenate([[0.0], np.cumsum(ranks)])
    for stretch in STRETCHES:
        older = count - stretch
        if older < OLDER * stretch:
            return None
        apart = abs((sums[count] - sums[older]) / stretch - sums[older] / older)
        if apart > ALARM * _spread(ranks[:older], stretch, float(ranks.var())):
            return _begun(sums, 2 * stretch)
    return None


def _spread(ranks: FloatArray, stretch: int, overall: float) -> float:
    """The standard deviation of the mean of so many ranks, from the mean of those before."""
    count, centred = len(ranks), ranks - ranks.mean()
    variance = float(centred @ centred) / count
    if variance < SAME * overall:
        variance = overall  # one other price after many that were the same is not a new level
    by_chance = math.sqrt(variance * (1 / stretch + 1 / count))
    followed = float(centred[1:] @ centred[:-1]) / count
    if followed < DEPENDENT * variance / math.sqrt(count):
        return by_chance
    sums = np.concatenate([[0.0], np.cumsum(centred)])
    means = (sums[stretch:] - sums[:-stretch]) / stretch
    return max(by_chance, float(means.std()) * (1 + FEW * stretch / count))


def _begun(sums: FloatArray, farthest: int) -> int:
    """The most likely number of rounds since the change: where both sides differ most."""
    count = len(sums) - 1
    new = np.arange(SHORTEST, min(farthest, count - SHORTEST) + 1)
    old = count - new
    apart = (sums[count] - sums[old]) / new - sums[old] / old
    return int(new[np.argmax(np.abs(apart) * np.sqrt(new * old))])
