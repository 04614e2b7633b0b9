"""Detect a lasting change of the price level: compare the newest prices with those before.

The test compares ranks, so that a single extreme price counts no more than any other. It signals a
change if the mean rank of the newest prices lies far outside the range of as many independent
prices. If prices depend on those before them, as in seasons and spells, it uses the spread of
earlier stretches of that length instead, so that it does not mistake a season for a change.
"""

import math

import numpy as np

from tidegate._internal.arrays import FloatArray

EVERY = 4
"""Rounds between two tests; a test takes a tenth of the time of a decision."""
STRETCHES = (16, 32, 64, 128, 256)
"""How many of the newest prices are compared with those before, in rounds."""
OLDER = 3
"""The least number of stretches of that length before the newest one."""
ALARM = 5.0
"""Standard deviations of a change. Independent prices give under 1 false alarm in 10,000 rounds."""
DEPENDENT = 4.0
"""Standard deviations of the autocorrelation from which on prices count as dependent."""
FEW = 6.0
"""How much to widen a spread that was estimated from few stretches."""
SAME = 0.01
"""Prices whose variance is below this part of that of all ranks count as constant."""
SHORTEST = 8
"""The least number of rounds of a new level."""


def rounds_since_change(prices: FloatArray) -> int | None:
    """Return how many of the last prices belong to a new level; None without a change.

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
    """Return the standard deviation of a stretch's mean rank around the mean of those before."""
    count, centred = len(ranks), ranks - ranks.mean()
    variance = float(centred @ centred) / count
    if variance < SAME * overall:
        variance = overall  # one different price after many equal ones is not a new level
    by_chance = math.sqrt(variance * (1 / stretch + 1 / count))
    followed = float(centred[1:] @ centred[:-1]) / count
    if followed < DEPENDENT * variance / math.sqrt(count):
        return by_chance
    sums = np.concatenate([[0.0], np.cumsum(centred)])
    means = (sums[stretch:] - sums[:-stretch]) / stretch
    return max(by_chance, float(means.std()) * (1 + FEW * stretch / count))


def _begun(sums: FloatArray, farthest: int) -> int:
    """Return the most likely number of rounds since the change: where both sides differ most."""
    count = len(sums) - 1
    new = np.arange(SHORTEST, min(farthest, count - SHORTEST) + 1)
    old = count - new
    apart = (sums[count] - sums[old]) / new - sums[old] / old
    return int(new[np.argmax(np.abs(apart) * np.sqrt(new * old))])
