"""The regret chain: ACDPP's bound, step by step, down to the costless oracle's.

    Ē^ACDPP  -Ω1->  Σp  -(T/V)->  Σp̄^CK  -Ω2->  Σp̄∞^CK  -Ω3->  Ē^oracle

The paper's claims for the three steps, and what was measured, stand in ``docs/theory.md``.
"""

from dataclasses import dataclass

import numpy as np

from tidegate._internal.arrays import FloatArray
from tidegate.problem import LearningConstants
from tidegate.theory.bounds import SampleSizes, bound_terms, costless_oracle_sizes
from tidegate.theory.penalty import penalty_terms, surrogate_penalty


@dataclass(frozen=True)
class OperatingPoint:
    """(Λ̄, K) of the constant-admission policy that ACDPP is compared with."""

    target_admission: float
    retention_horizon: int


def infinite_horizon_penalty(
    point: OperatingPoint, num_rounds: int, learning: LearningConstants
) -> FloatArray:
    """p̄∞^CK(t): n = K·Λ̄ and N = Λ̄·t in every round.

    For t < K the printed 1/(Λ̄K) - 1/(Λ̄t) is negative: N counts as at least n, the gap as 0.
    """
    distinct = point.target_admission * np.arange(1, num_rounds + 1, dtype=np.float64)
    stored = np.full(num_rounds, point.target_admission * point.retention_horizon)
    return surrogate_penalty(np.minimum(stored, distinct), distinct, learning)


def finite_horizon_penalty(
    point: OperatingPoint, lower: FloatArray, upper: FloatArray, learning: LearningConstants
) -> FloatArray:
    """p̄^CK(t) of the T-slot bound, from the ends of the admission interval in each round.

    n is at least (K-1)·Λmin(t-K) + Λ̄ and N at least Σ_{τ<t} Λmin(τ) + Λ̄; the logarithm takes
    N's upper end. Before round K+1 the printed Λmin(t-K) has no round to refer to: it counts 0.
    """
    horizon, rounds = point.retention_horizon, len(lower)
    past = np.concatenate([np.zeros(min(horizon, rounds)), lower[: max(rounds - horizon, 0)]])
    stored = (horizon - 1) * past + point.target_admission
    fewest = np.concatenate([[0.0], np.cumsum(lower)[:-1]]) + point.target_admission
    most = np.concatenate([[0.0], np.cumsum(upper)[:-1]]) + point.target_admission
    # Theorem 1's shape with N's two ends in it: the most inside the logarithm, the fewest outside.
    return penalty_terms(stored, most, learning, effective_samples=fewest).total


@dataclass(frozen=True)
class ComparisonTerms:
    """Ω1, Ω2 and Ω3 after each round."""

    reuse: FloatArray
    """Ω1(t): bound minus surrogate penalty; what uneven reuse costs."""
    interval: FloatArray
    """Ω2(t): what the open interval costs before it has closed."""
    freshness: FloatArray
    """Ω3(t): what the constant rate loses against a costless oracle."""


def comparison_terms(
    sizes: SampleSizes,
    point: OperatingPoint,
    ends: tuple[FloatArray, FloatArray],
    total_capacity: int,
    learning: LearningConstants,
) -> ComparisonTerms:
    """Ω1, Ω2 and Ω3 after each round of one run.

    Args:
        sizes: what the policy did (for expectations: average the results over runs).
        point: the (Λ̄, K) that its interval closes on.
        ends: Λmin(t) and Λmax(t) of each round.
        total_capacity: ΣB_m, for the oracle.
        learning: the constants of the bound.
    """
    rounds = len(sizes.training_size)
    bound = bound_terms(sizes, learning).total
    surrogate = surrogate_penalty(sizes.training_size, sizes.distinct_samples, learning)
    finite = finite_horizon_penalty(point, ends[0], ends[1], learning)
    infinite = infinite_horizon_penalty(point, rounds, learning)
    oracle = bound_terms(costless_oracle_sizes(total_capacity, rounds), learning).total
    return ComparisonTerms(
        reuse=np.cumsum(bound - surrogate),
        interval=np.cumsum(finite - infinite),
        freshness=np.cumsum(infinite - oracle),
    )
