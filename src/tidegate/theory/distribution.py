"""The distribution of prices, without their order; the limit depends on it."""

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from tidegate._internal.arrays import FloatArray
from tidegate.errors import ConfigurationError
from tidegate.prices import ConstantPrice, MarkovPrice, PriceLaw, RecordedPrices, UniformPrice


class PriceDistribution(Protocol):
    """The distribution of a price that is drawn independently in every round."""

    @property
    def mean(self) -> float:
        """E[c]."""
        ...

    @property
    def highest(self) -> float:
        """The highest price."""
        ...

    def up_to(self, price: float) -> tuple[float, float]:
        """Return P(c <= price), and E[c; c <= price]."""
        ...


class PriceSample:
    """The distribution of prices that were seen, equally likely or weighted.

    >>> PriceSample([3.0, 1.0]).up_to(2.0)
    (0.5, 0.5)
    """

    def __init__(
        self,
        values: Sequence[float] | FloatArray,
        weights: Sequence[float] | FloatArray | None = None,
    ) -> None:
        given = np.asarray(values, dtype=np.float64)
        share = np.ones(len(given)) if weights is None else np.asarray(weights, dtype=np.float64)
        if given.ndim != 1 or not len(given) or share.shape != given.shape:
            raise ValueError("a sample needs at least one price, and a weight for each if weighted")
        if not (np.all(np.isfinite(given)) and given.min() >= 0):
            raise ValueError("prices must be 0 or more and finite")
        if not (np.all(np.isfinite(share)) and share.min() >= 0 and share.sum() > 0):
            raise ValueError("weights must be 0 or more, finite, and not all 0")
        order = np.argsort(given, kind="stable")
        given, share = given[order], share[order] / share.sum()
        self._values: list[float] = given.tolist()
        below, cost = np.cumsum(share), np.cumsum(share * given)
        below[-1] = 1.0
        self._sums: list[tuple[float, float]] = [
            (0.0, 0.0),
            *zip(below.tolist(), cost.tolist(), strict=True),
        ]

    @property
    def mean(self) -> float:
        """The weighted mean."""
        return self._sums[-1][1]

    @property
    def highest(self) -> float:
        """The highest price."""
        return self._values[-1]

    def up_to(self, price: float) -> tuple[float, float]:
        """Return both values by looking up cumulative sums."""
        return self._sums[bisect_right(self._values, price)]


@dataclass(frozen=True)
class UniformDistribution:
    """Uniform on [lowest, highest].

    >>> UniformDistribution(1.0, 10.0).up_to(5.5)
    (0.5, 1.625)
    """

    lowest: float
    highest: float

    @property
    def mean(self) -> float:
        """The middle of the range."""
        return (self.lowest + self.highest) / 2

    def up_to(self, price: float) -> tuple[float, float]:
        """Return both integrals."""
        top = min(max(price, self.lowest), self.highest)
        width = self.highest - self.lowest
        return (top - self.lowest) / width, (top**2 - self.lowest**2) / (2 * width)


def price_distribution(law: PriceLaw, num_rounds: int) -> PriceDistribution:
    """Return the distribution of a law's prices over a run of this length.

    >>> price_distribution(UniformPrice(1, 10), num_rounds=100)
    UniformDistribution(lowest=1, highest=10)
    """
    if isinstance(law, UniformPrice) and law.low < law.high:
        return UniformDistribution(law.low, law.high)
    if isinstance(law, UniformPrice | ConstantPrice):
        return PriceSample([float(law.mean(num_rounds))])
    if isinstance(law, MarkovPrice):
        high = (law.mean(num_rounds) - law.low) / (law.high - law.low) if law.high > law.low else 0
        return PriceSample([law.low, law.high], [1 - high, high])
    if isinstance(law, RecordedPrices):
        if law.num_columns > 1:
            raise ConfigurationError(
                f"the trace has {law.num_columns} columns; a limit is known for one price for all: "
                "name one column"
            )
        return PriceSample(np.asarray(law.values)[:num_rounds].ravel().tolist())
    raise ConfigurationError(f"no distribution of one price is known for {law!r}")
