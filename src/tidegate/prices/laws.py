"""Laws that prices are drawn from: one number a round for all clients, or one a client."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from tidegate._internal.arguments import check_number
from tidegate._internal.arrays import FloatArray
from tidegate.errors import ConfigurationError
from tidegate.wire import LARGEST_AMOUNT

Price = float | FloatArray
"""One price for all clients, or an array with one a client."""


def as_price(value: object) -> Price:
    """Return a price as a float or an array of floats.

    >>> as_price(5)
    5.0
    """
    prices: FloatArray = np.asarray(value, dtype=np.float64)
    return prices if prices.ndim else float(prices)


class PriceLaw(Protocol):
    """Draws prices."""

    def mean(self, num_rounds: int) -> Price:
        """Return c̄_T, the average price over so many rounds, in all or for each client."""
        ...

    def rounds(self, draw: np.random.Generator, size: int | None = None) -> Iterator[Price]:
        """Yield prices of rounds 1, 2, ...: one for all, or one for each of ``size`` clients."""
        ...


def _check_price(name: str, value: float) -> None:
    limit = f"0 or more and at most {LARGEST_AMOUNT:g}"
    check_number(name, value, limit, lambda given: 0 <= given <= LARGEST_AMOUNT)


@dataclass(frozen=True)
class ConstantPrice:
    """The same price in every round.

    >>> next(ConstantPrice(5.5).rounds(np.random.default_rng()))
    5.5
    """

    value: float

    def __post_init__(self) -> None:
        _check_price("the constant price", self.value)

    def mean(self, num_rounds: int) -> float:
        """Return the price itself."""
        return float(self.value)

    def rounds(self, draw: np.random.Generator, size: int | None = None) -> Iterator[Price]:
        """Yield the price for ever."""
        while True:
            yield float(self.value) if size is None else np.full(size, float(self.value))


@dataclass(frozen=True)
class UniformPrice:
    """Independent prices, uniform on [low, high]: the paper's Unif[1, 10]."""

    low: float
    high: float

    def __post_init__(self) -> None:
        _check_price("the lowest price", self.low)
        _check_price("the highest price", self.high)
        if self.low > self.high:
            raise ConfigurationError(
                f"the lowest price {self.low} is above the highest {self.high}; exchange them"
            )

    def mean(self, num_rounds: int) -> float:
        """Return (low + high) / 2."""
        return (self.low + self.high) / 2

    def rounds(self, draw: np.random.Generator, size: int | None = None) -> Iterator[Price]:
        """Yield a new draw each round."""
        while True:
            yield draw.uniform(self.low, self.high, size)


@dataclass(frozen=True)
class MarkovPrice:
    """Two prices; each stays for a while: calm spells and expensive spells.

    ``stay_low`` and ``stay_high`` are the probabilities of the same price again next round. The
    first round is drawn from the long-run shares, so the mean is the same in every round.

    >>> MarkovPrice(low=2.0, high=8.0, stay_low=0.75, stay_high=0.5).mean(num_rounds=1)
    4.0
    """

    low: float
    high: float
    stay_low: float
    stay_high: float

    def __post_init__(self) -> None:
        _check_price("the low price", self.low)
        _check_price("the high price", self.high)
        if self.low > self.high:
            raise ConfigurationError(
                f"the low price {self.low} is above the high price {self.high}; exchange them, "
                "and also stay_low and stay_high: "
                f"markov:{self.high:g},{self.low:g},{self.stay_high:g},{self.stay_low:g}"
            )
        for name in ("stay_low", "stay_high"):
            value, remedy = getattr(self, name), "1 would never leave"
            check_number(name, value, "in [0, 1)", lambda given: 0 <= given < 1, remedy)

    @property
    def _share_high(self) -> float:
        return (1 - self.stay_low) / (2 - self.stay_low - self.stay_high)

    def mean(self, num_rounds: int) -> float:
        """Return the average over the long-run shares of the two prices."""
        return self.low + self._share_high * (self.high - self.low)

    def rounds(self, draw: np.random.Generator, size: int | None = None) -> Iterator[Price]:
        """Yield one chain for all, or one independent chain a client."""
        high = np.asarray(draw.random(size) < self._share_high)
        while True:
            prices = np.where(high, float(self.high), float(self.low))
            yield float(prices) if size is None else prices
            stay = np.where(high, self.stay_high, self.stay_low)
            high = np.where(draw.random(size) < stay, high, ~high)
