"""p(t), the penalty of one round in learning error, and its three terms.

    p(t) = Dσ √(1/n - 1/N)  +  ησ² (1/n - 1/N)  +  10B √(Pdim/N) √(1 + log(N/Pdim))

n is the number of samples trained on in the round, N the number of distinct samples so far. The
bound of Theorem 1 has the effective sample size N_eff in place of N, except inside the logarithm.

Two extensions make every term real and finite, and monotone along the action (more whole samples
admitted, less penalty); both are tested and explained in ``docs/theory.md``:

* For N <= Pdim the last term is 10B, and it never exceeds 10B. As printed it is not real below
  Pdim/e and rises up to Pdim. A loss within [0, B] makes the cap harmless.
* 1/n - 1/N_eff is negative while nothing has expired (n = N >= N_eff); it counts as 0. In a round
  without samples it counts as 1, the largest value of a round with whole samples.
"""

from dataclasses import dataclass

import numpy as np

from tidegate._internal.arrays import FloatArray
from tidegate.problem import LearningConstants

GENERALISATION_FACTOR = 10.0
"""The 10 in front of the generalisation term."""


@dataclass(frozen=True)
class PenaltyTerms:
    """The three terms of the penalty, one entry a round."""

    gradient_mismatch: FloatArray
    """Dσ √(1/n - 1/N)."""
    gradient_variance: FloatArray
    """ησ² (1/n - 1/N)."""
    generalisation: FloatArray
    """10B √(Pdim/N) √(1 + log(N/Pdim))."""

    @property
    def total(self) -> FloatArray:
        """p(t)."""
        return self.gradient_mismatch + self.gradient_variance + self.generalisation


def reuse_gap(training_size: FloatArray, sample_size: FloatArray) -> FloatArray:
    """Return 1/n - 1/N, at least 0, and 1 if n = 0; ``sample_size`` is N, or N_eff in Theorem 1.

    Computed as (N - n) / (nN), which avoids cancellation if n and N are nearly equal.

    >>> reuse_gap(np.array([10.0, 10.0]), np.array([40.0, 8.0]))
    array([0.075, 0.   ])
    """
    with np.errstate(divide="ignore", invalid="ignore"):
        gap = (sample_size - training_size) / training_size / sample_size
    return np.where(training_size > 0, np.maximum(gap, 0.0), 1.0)


def generalisation_term(
    distinct_samples: FloatArray, effective_samples: FloatArray, learning: LearningConstants
) -> FloatArray:
    """Return 10B √(Pdim/N_eff) √(1 + log(N/Pdim)), at most 10B, and 10B while N <= Pdim.

    >>> generalisation_term(np.array([5.0, 100.0]), np.array([5.0, 100.0]), LearningConstants())
    array([10., 10.])
    """
    ratio = np.maximum(distinct_samples / learning.pseudo_dimension, 1.0)
    effective = np.where(distinct_samples > learning.pseudo_dimension, effective_samples, np.inf)
    root = np.sqrt(learning.pseudo_dimension / effective * (1 + np.log(ratio)))
    share = np.where(np.isinf(effective), 1.0, np.minimum(root, 1.0))
    return GENERALISATION_FACTOR * learning.loss_bound * share


def penalty_terms(
    training_size: FloatArray,
    distinct_samples: FloatArray,
    learning: LearningConstants,
    *,
    effective_samples: FloatArray | None = None,
) -> PenaltyTerms:
    """Return the three terms for each round.

    Args:
        training_size: n(t).
        distinct_samples: N(t).
        learning: the constants D, σ, η, B and Pdim.
        effective_samples: N_eff(t), for the bound of Theorem 1; N(t) by default, for the surrogate
            penalty that the policy minimises.
    """
    if np.any(training_size < 0) or np.any(distinct_samples < training_size):
        raise ValueError("need 0 <= n <= N: a stored sample is also a distinct one")
    effective = distinct_samples if effective_samples is None else effective_samples
    gap = reuse_gap(training_size, effective)
    return PenaltyTerms(
        gradient_mismatch=learning.domain_diameter * learning.gradient_noise * np.sqrt(gap),
        gradient_variance=learning.learning_rate * learning.gradient_noise**2 * gap,
        generalisation=generalisation_term(distinct_samples, effective, learning),
    )


def surrogate_penalty(
    training_size: FloatArray, distinct_samples: FloatArray, learning: LearningConstants
) -> FloatArray:
    """Return p(t) for each round.

    >>> sizes = np.array([100.0]), np.array([400.0])
    >>> surrogate_penalty(*sizes, LearningConstants()).round(3)
    array([7.814])
    """
    return penalty_terms(training_size, distinct_samples, learning).total
