"""The prices seen so far, in bounded space: what a rule learns a price law from."""

from dataclasses import dataclass, field

import numpy as np

from tidegate._internal.arrays import FloatArray
from tidegate.theory.distribution import PriceSample

SIZE = 512
"""Values kept; when they do not suffice, neighbours are merged into half as many."""


@dataclass(frozen=True, eq=False)
class PriceMemory:
    """Prices and how often each was seen; never more than ``SIZE`` of them.

    Merging keeps the total weight and the mean; the share of prices up to any price moves by
    1 % at most (tested on 20,000 prices).

    >>> memory = PriceMemory().with_prices(np.array([4.0]), np.ones(1))
    >>> memory.distribution().mean  # 4.0 was seen once; so a lower one may come
    3.0
    """

    values: FloatArray = field(default_factory=lambda: np.zeros(SIZE))
    weights: FloatArray = field(default_factory=lambda: np.zeros(SIZE))
    """0 where nothing is kept."""

    def with_prices(self, prices: FloatArray, weights: FloatArray) -> "PriceMemory":
        """Remember the prices of one round, too.

        Args:
            prices: one, or some clients' own.
            weights: of each; they sum to 1.
        """
        used = self.weights > 0
        values = np.concatenate([self.values[used], prices])
        counts = np.concatenate([self.weights[used], weights])
        if len(values) > SIZE:
            values, counts = _merged(values, counts, SIZE // 2)
        unused = np.zeros(SIZE - len(values))
        return PriceMemory(np.concatenate([values, unused]), np.concatenate([counts, unused]))

    def distribution(self) -> PriceSample:
        """The price law as far as it is known.

        Prices in any order being equally likely, the next of t + 1 is the lowest with a chance of
        1 in t + 1. So one price more counts as seen: half of the lowest.
        """
        used = self.weights > 0
        values, counts = self.values[used], self.weights[used]
        return PriceSample(np.append(values, values.min() / 2), np.append(counts, 1.0))

    @property
    def mean(self) -> float:
        """Average of the prices seen."""
        return float(self.values @ self.weights / self.weights.sum())


def _merged(values: FloatArray, weights: FloatArray, most: int) -> tuple[FloatArray, FloatArray]:
    """Neighbouring prices in at most so many groups of about equal weight, each at its mean."""
    order = np.argsort(values, kind="stable")
    values, weights = values[order], weights[order]
    middle = np.cumsum(weights) - weights / 2
    group = (middle / weights.sum() * most).astype(np.int64)
    total, paid = np.zeros(most), np.zeros(most)
    np.add.at(total, group, weights)
    np.add.at(paid, group, weights * values)
    kept = total > 0
    return paid[kept] / total[kept], total[kept]
