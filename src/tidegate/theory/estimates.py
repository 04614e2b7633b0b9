"""Estimates of D, σ, G and B from the gradients of single samples, along a run.

The assumptions of Theorem 1 bound what happens at every model, so a constant is the largest value
at any model of the run. An estimate from a part of the population, or of the models, can be too
small.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Self

import numpy as np

from tidegate._internal.arrays import FloatArray
from tidegate.problem import LearningConstants


@dataclass(frozen=True)
class ModelEstimates:
    """What one model shows of the constants."""

    distance: float
    """From the best model if it is known, otherwise from the first model of the run."""
    gradient_noise: float
    """√E‖g - E g‖² over samples with gradients g."""
    gradient_bound: float
    """The largest ‖g‖."""
    largest_loss: float

    @classmethod
    def of(
        cls,
        distance: float,
        squared_norms: FloatArray,
        mean_gradient: FloatArray,
        losses: FloatArray,
    ) -> Self:
        """Return the estimates at a model: σ² = E‖g‖² - ‖E g‖², so no gradient need be kept.

        Args:
            distance: of this model from the best one, or from the first.
            squared_norms: ‖g‖² of each sample's gradient.
            mean_gradient: E g.
            losses: of each sample.

        >>> gradients = np.array([[3.0, 4.0], [-3.0, 4.0]])
        >>> ModelEstimates.of(1.0, (gradients**2).sum(1), gradients.mean(0), np.array([0.5, 2.0]))
        ModelEstimates(distance=1.0, gradient_noise=3.0, gradient_bound=5.0, largest_loss=2.0)
        """
        variance = float(squared_norms.mean() - np.sum(mean_gradient**2))
        return cls(
            distance=distance,
            gradient_noise=math.sqrt(max(variance, 0.0)),
            gradient_bound=math.sqrt(squared_norms.max()),
            largest_loss=float(losses.max()),
        )


def estimated_constants(
    estimates: Sequence[ModelEstimates],
    constants: LearningConstants,
    *,
    from_best: bool = False,
) -> LearningConstants:
    """Return constants with D, σ, G and B as they were largest along a run.

    Args:
        estimates: one a model.
        constants: where η, Pdim, L and E come from.
        from_best: whether distances are from the best model. D is then the largest of them;
            otherwise it is the diameter of the ball around the first model that holds all others,
            and the best model may lie outside.
    """
    farthest = max(one.distance for one in estimates)
    return replace(
        constants,
        domain_diameter=farthest if from_best else 2 * farthest,
        gradient_noise=max(one.gradient_noise for one in estimates),
        gradient_bound=max(one.gradient_bound for one in estimates),
        loss_bound=max(one.largest_loss for one in estimates),
    )
