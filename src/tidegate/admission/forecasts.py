"""How far ahead Tide uses forecasts of prices, learned from past forecasts and prices.

A price that is known ahead may be certain, as in a day-ahead market, or a forecast with an error.
The lowest of many forecasts is often low because of its error, so a rule that trusts it waits for
low prices that never come. The slope β of the regression of prices on their forecasts measures how
good they are: 1 if they were right, lower the larger their errors are beside the changes of prices.
Tide uses forecasts as far ahead as β is high enough. (We also tried mean + β · (forecast - mean);
it is worse, because it ignores what the present price says about the next ones.)
"""

from dataclasses import dataclass, field, replace

import numpy as np

from tidegate._internal.arrays import FloatArray

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


def _nothing() -> FloatArray:
    return np.full(ROUNDS, NONE)


@dataclass(frozen=True, eq=False)
class Forecasts:
    """Forecasts of each round's price; that of round t is at (t - 1) mod ``ROUNDS``."""

    near: FloatArray = field(default_factory=_nothing)
    """One round ahead."""
    far: FloatArray = field(default_factory=_nothing)
    """``FAR`` rounds ahead."""

    def told(self, round_number: int, ahead: tuple[float, ...]) -> "Forecasts":
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
        near, far = (_slope(told[rounds], prices) for told in (self.near, self.far))
        if near < LEAST_SLOPE:
            return ()
        if far >= LEAST_SLOPE:
            return ahead
        return ahead[: 1 + int((FAR - 1) * (near - LEAST_SLOPE) / (near - far))]


def _slope(told: FloatArray, prices: FloatArray) -> float:
    """Return β, the slope of prices on their forecasts, both around the mean price."""
    mean, known = float(prices.mean()), told != NONE
    told, come = told[known] - mean, prices[known] - mean
    right = BELIEVED * float(np.mean((prices - mean) ** 2))
    square = float(told @ told) + right
    return (float(told @ come) + right) / square if square else 1.0
