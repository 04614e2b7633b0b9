"""How far prices that are told ahead are to be believed: learned from those that have come.

A price that is told ahead may be known, as in a day-ahead market, or a forecast that errs. Of many
forecasts the lowest is lowest because it errs, so a rule that believes them waits for bargains that
never come. How good they are is the slope β of the regression of prices on their forecasts: 1 where
they were right, lower the more they err beside how prices move. Forecasts are believed as far ahead
as β is high enough. (To expect mean + β · (told - mean) instead was tried, and is worse: it forgets
what the present price alone says of the next ones.)
"""

from dataclasses import dataclass, field, replace

import numpy as np

from tidegate._internal.arrays import FloatArray

ROUNDS = 1024
"""Rounds that forecasts are remembered for, those to come included."""
FAR = 24
"""Rounds: how far ahead the second kind of forecasts was told."""
LEARNED_FROM = 256
"""Rounds, the last ones."""
BELIEVED = 5
"""Forecasts that count as if they had been right, before any have come."""
LEAST_SLOPE = 0.6
"""β below which it is better not to look: where forecasts err by half of the price, about."""
NONE = -1.0


def _nothing() -> FloatArray:
    return np.full(ROUNDS, NONE)


@dataclass(frozen=True, eq=False)
class Forecasts:
    """What was told of each round's price; that of round t in place (t - 1) mod ``ROUNDS``."""

    near: FloatArray = field(default_factory=_nothing)
    """One round ahead."""
    far: FloatArray = field(default_factory=_nothing)
    """``FAR`` rounds ahead."""

    def told(self, round_number: int, ahead: tuple[float, ...]) -> "Forecasts":
        """Remember what is told in a round of those that come after it."""
        if not ahead and (self.near == NONE).all():
            return self
        near, far = self.near.copy(), self.far.copy()
        near[round_number % ROUNDS] = ahead[0] if ahead else NONE
        far[(round_number + FAR - 1) % ROUNDS] = ahead[FAR - 1] if len(ahead) >= FAR else NONE
        return replace(self, near=near, far=far)

    def believed(
        self, ahead: tuple[float, ...], round_number: int, prices: FloatArray
    ) -> tuple[float, ...]:
        """What is told of the next rounds, as far ahead as it was good enough lately.

        Args:
            ahead: what is told.
            round_number: t.
            prices: the last ones, in order, that of round t included.
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
    """β: how prices differed from their mean where forecasts did."""
    mean, known = float(prices.mean()), told != NONE
    told, come = told[known] - mean, prices[known] - mean
    right = BELIEVED * float(np.mean((prices - mean) ** 2))
    square = float(told @ told) + right
    return (float(told @ come) + right) / square if square else 1.0
