"""J_t as a function of one number, the total admission, with its derivative.

    J(Λ) = Z·c·Λ + V·p(n₀ + Λ, N₀ + Λ)

(the constant -Z·C does not move the minimum). With d = N₀ - n₀ the samples already expired,
1/n - 1/N = d/(n·N), which needs no subtraction of nearly equal numbers. The penalty is that of
``theory.penalty`` in plain floats, because a decision evaluates it dozens of times; a test compares
the two. They differ only at n = 0: here the value is infinity, the limit of the formula, so that
the rule avoids empty rounds.
"""

import math
from dataclasses import dataclass

from tidegate.problem import LearningConstants
from tidegate.theory.penalty import GENERALISATION_FACTOR

INFLECTION = math.exp((math.sqrt(7) - 1) / 3)
"""The generalisation term is concave in N from Pdim to 1.7308 Pdim, and convex beyond."""


@dataclass(frozen=True)
class Objective:
    """J_t, split into parts whose shape is known."""

    cost_slope: float
    """Z(t)·c(t): the cost of one more sample, weighted by the debt (several budgets would add up
    here)."""
    penalty_weight: float
    """V."""
    carried_samples: float
    """n₀, stored before the round's admission."""
    distinct_samples: float
    """N₀, distinct before the round's admission."""
    learning: LearningConstants

    def __post_init__(self) -> None:
        if not 0 <= self.carried_samples <= self.distinct_samples:
            raise ValueError(
                "need 0 <= n0 <= N0: a stored sample is also a distinct one, "
                f"got n0={self.carried_samples}, N0={self.distinct_samples}"
            )
        if not (self.cost_slope >= 0 and self.penalty_weight > 0):
            raise ValueError(
                "need a cost slope of 0 or more and a positive penalty weight, "
                f"got {self.cost_slope} and {self.penalty_weight}"
            )

    def value(self, admission: float) -> float:
        """Return J at this total admission; infinity if the round would train on nothing."""
        gap = self._gap(admission)
        learning = self.learning
        reuse = (
            learning.domain_diameter * learning.gradient_noise * math.sqrt(gap)
            + learning.learning_rate * learning.gradient_noise**2 * gap
        )
        ratio = (self.distinct_samples + admission) / learning.pseudo_dimension
        share = 1.0 if ratio <= 1 else math.sqrt((1 + math.log(ratio)) / ratio)
        generalisation = GENERALISATION_FACTOR * learning.loss_bound * share
        return self.cost_slope * admission + self.penalty_weight * (reuse + generalisation)

    def reuse_slope(self, admission: float) -> float:
        """Return the derivative of V times the first two terms: negative, and rising."""
        gap = self._gap(admission)
        if math.isinf(gap):
            return -math.inf
        if not gap:
            return 0.0
        learning = self.learning
        stored, distinct = self.carried_samples + admission, self.distinct_samples + admission
        return (
            -self.penalty_weight
            * (1 / stored + 1 / distinct)
            * (
                learning.domain_diameter * learning.gradient_noise * math.sqrt(gap) / 2
                + learning.learning_rate * learning.gradient_noise**2 * gap
            )
        )

    def generalisation_slope(self, admission: float) -> float:
        """Return the derivative of V times the last term: 0 up to Pdim, then negative."""
        ratio = (self.distinct_samples + admission) / self.learning.pseudo_dimension
        if ratio <= 1:
            return 0.0
        root = math.sqrt((1 + math.log(ratio)) / ratio)
        slope = -math.log(ratio) / (2 * ratio**2 * root * self.learning.pseudo_dimension)
        return self.penalty_weight * GENERALISATION_FACTOR * self.learning.loss_bound * slope

    def slope(self, admission: float) -> float:
        """Return J'."""
        return self.cost_slope + self.reuse_slope(admission) + self.generalisation_slope(admission)

    def _gap(self, admission: float) -> float:
        """Return 1/n - 1/N."""
        expired = self.distinct_samples - self.carried_samples
        if not expired:
            return 0.0
        stored = self.carried_samples + admission
        return expired / stored / (self.distinct_samples + admission) if stored else math.inf
