"""What Tide learns from prices: their law, lasting changes, and how good forecasts are.

*The law.* Prices seen so far are kept in bounded memory.

*A lasting change.* The newest prices are compared with those before. The test compares ranks, so
that a single extreme price counts no more than any other. It signals a change if the mean rank of
the newest prices lies far outside the range of as many independent prices. If prices depend on
those before them, as in seasons and spells, it uses the spread of earlier stretches of that length
instead, so that it does not mistake a season for a change.

*Forecasts.* A price that is known ahead may be certain, as in a day-ahead market, or a forecast
with an error. The lowest of many forecasts is often low because of its error, so a rule that trusts
it waits for low prices that never come. The slope β of the regression of prices on their forecasts
measures how good they are: 1 if they were right, lower the larger their errors are beside the
changes of prices. Tide uses forecasts as far ahead as β is high enough. (We also tried mean + β ·
(forecast - mean); it is worse, because it ignores what the present price says about the next ones.)
"""

import math
from dataclasses import dataclass, field, replace

import numpy as np

from tidegate._internal.arrays import FloatArray
from tidegate.theory.distribution import PriceSample

SIZE = 512
"""The most values kept; above that, neighbours are merged into half as many."""
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
ROUNDS = 1024
"""Rounds whose forecasts are kept, including rounds to come."""
FAR = 24
"""How many rounds ahead the second kind of forecast is."""
LEARNED_FROM = 256
"""The last rounds that β is computed from."""
BELIEVED = 5
"""β starts as if this many forecasts had been right."""
LEAST_SLOPE = 0.6
"""The least β with which forecasts are used; it means errors of about half of the price."""
NONE = -1.0


@dataclass(frozen=True, eq=False)
class PriceMemory:
    """At most ``SIZE`` prices, and how often each was seen.

    Merging keeps the total weight and the mean, and moves the share of prices up to any price by at
    most 1 % (tested on 20,000 prices).

    >>> memory = PriceMemory().with_prices(np.array([4.0]), np.ones(1))
    >>> memory.distribution().mean  # 4.0 was seen once, and 2.0 is added
    3.0
    """

    values: FloatArray = field(default_factory=lambda: np.zeros(SIZE))
    weights: FloatArray = field(default_factory=lambda: np.zeros(SIZE))
    """How often each was seen; 0 for unused places."""

    def with_prices(self, prices: FloatArray, weights: FloatArray) -> "PriceMemory":
        """Return a memory that also holds the prices of one round.

        Args:
            prices: one for all, or those of some clients.
            weights: the weight of each; they sum to 1.
        """
        used = self.weights > 0
        values = np.concatenate([self.values[used], prices])
        counts = np.concatenate([self.weights[used], weights])
        if len(values) > SIZE:
            values, counts = _merged(values, counts, SIZE // 2)
        unused = np.zeros(SIZE - len(values))
        return PriceMemory(np.concatenate([values, unused]), np.concatenate([counts, unused]))

    def distribution(self) -> PriceSample:
        """Return the estimated price law.

        If all orders of prices are equally likely, the next price is the lowest of t + 1 with a
        probability of 1 / (t + 1). So one price is added: half of the lowest.
        """
        used = self.weights > 0
        values, counts = self.values[used], self.weights[used]
        return PriceSample(np.append(values, values.min() / 2), np.append(counts, 1.0))

    @property
    def mean(self) -> float:
        """The average of the prices seen; of equal prices exactly their value."""
        seen, average = self.values[self.weights > 0], self.values @ self.weights
        return float(np.clip(average / self.weights.sum(), seen.min(), seen.max()))

    @property
    def is_constant(self) -> bool:
        """Whether all prices seen were equal."""
        seen = self.values[self.weights > 0]
        return bool(seen.min() == seen.max())


def _merged(values: FloatArray, weights: FloatArray, most: int) -> tuple[FloatArray, FloatArray]:
    """Merge neighbouring prices into at most ``most`` groups of similar weight, at their means.

    Equal prices stay exactly equal.
    """
    order = np.argsort(values, kind="stable")
    values, weights = values[order], weights[order]
    middle = np.cumsum(weights) - weights / 2
    group = (middle / weights.sum() * most).astype(np.int64)
    total, paid = np.zeros(most), np.zeros(most)
    np.add.at(total, group, weights)
    np.add.at(paid, group, weights * values)
    kept = np.flatnonzero(total)
    lowest = values[np.searchsorted(group, kept, side="left")]
    highest = values[np.searchsorted(group, kept, side="right") - 1]
    return np.clip(paid[kept] / total[kept], lowest, highest), total[kept]


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


def _nothing() -> FloatArray:
    return np.full(ROUNDS, NONE)


@dataclass(frozen=True, eq=False)
class Forecasts:
    """Forecasts of each round's price; that of round t is at (t - 1) mod ``ROUNDS``."""

    near: FloatArray = field(default_factory=_nothing)
    """One round ahead."""
    far: FloatArray = field(default_factory=_nothing)
    """``FAR`` rounds ahead."""

    def heard(self, round_number: int, ahead: tuple[float, ...]) -> "Forecasts":
        """Remember the forecasts that a round gets for later rounds."""
        if not ahead and (self.near == NONE).all():
            return self
        near, far = self.near.copy(), self.far.copy()
        near[round_number % ROUNDS] = ahead[0] if ahead else NONE
        far[(round_number + FAR - 1) % ROUNDS] = ahead[FAR - 1] if len(ahead) >= FAR else NONE
        return replace(self, near=near, far=far)

    def believed(
        self, ahead: tuple[float, ...], round_number: int, prices: FloatArray
    ) -> tuple[float, ...]:
        """Return forecasts of the next rounds, as far ahead as recent ones were good enough.

        Args:
            ahead: all forecasts.
            round_number: t.
            prices: the last prices in order, including that of round t.
        """
        if not ahead:
            return ahead
        prices = prices[-LEARNED_FROM:]
        rounds = np.arange(round_number - len(prices), round_number) % ROUNDS
        near, far = (_slope(forecasts[rounds], prices) for forecasts in (self.near, self.far))
        if near < LEAST_SLOPE:
            return ()
        if far >= LEAST_SLOPE:
            return ahead
        return ahead[: 1 + int((FAR - 1) * (near - LEAST_SLOPE) / (near - far))]


def _slope(forecasts: FloatArray, prices: FloatArray) -> float:
    """Return β, the slope of prices on their forecasts, both around the mean price."""
    mean, known = float(prices.mean()), forecasts != NONE
    forecast, price = forecasts[known] - mean, prices[known] - mean
    right = BELIEVED * float(np.mean((prices - mean) ** 2))
    square = float(forecast @ forecast) + right
    return (float(forecast @ price) + right) / square if square else 1.0
