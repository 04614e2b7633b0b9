"""The regret chain: ACDPP's bound, step by step, down to the costless oracle's.

    Ē^ACDPP  -Ω1->  Σp  -(T/V)->  Σp̄^CK  -Ω2->  Σp̄∞^CK  -Ω3->  Ē^oracle

The paper's claims for the three steps, and what was measured, stand in ``docs/theory.md``.
"""

from dataclasses import dataclass

import numpy as np

from tidegate._internal.arrays import FloatArray
from tidegate.problem import LearningConstants
from tidegate.theory.bounds import SampleSizes, bound_terms, costless_oracle_sizes
from tidegate.theory.guarantees import IntervalEnds, comparison_penalty
from tidegate.theory.penalty import surrogate_penalty


def infinite_horizon_penalty(
    target_admission: float, retention_horizon: int, num_rounds: int, learning: LearningConstants
) -> FloatArray:
    """p̄∞^CK(t): n = K·Λ̄ and N = Λ̄·t in every round.

    For t < K the printed 1/(Λ̄K) - 1/(Λ̄t) is negative: N counts as at least n, the gap as 0.
    """
    distinct = target_admission * np.arange(1, num_rounds + 1, dtype=np.float64)
    stored = np.full(num_rounds, target_admission * retention_horizon)
    return surrogate_penalty(np.minimum(stored, distinct), distinct, learning)


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
    ends: IntervalEnds,
    retention_horizon: int,
    total_capacity: int,
    learning: LearningConstants,
) -> ComparisonTerms:
    """Ω1, Ω2 (with p̄^CK as printed) and Ω3 after each round of one run.

    Args:
        sizes: what the policy did (for expectations: average the results over runs).
        ends: its interval in each round.
        retention_horizon: K.
        total_capacity: ΣB_m, for the oracle.
        learning: the constants of the bound.
    """
    rounds = len(sizes.training_size)
    bound = bound_terms(sizes, learning).total
    surrogate = surrogate_penalty(sizes.training_size, sizes.distinct_samples, learning)
    finite = comparison_penalty(ends, retention_horizon, learning, as_printed=True)
    infinite = infinite_horizon_penalty(ends.target_admission, retention_horizon, rounds, learning)
    oracle = bound_terms(costless_oracle_sizes(total_capacity, rounds), learning).total
    return ComparisonTerms(
        reuse=np.cumsum(bound - surrogate),
        interval=np.cumsum(finite - infinite),
        freshness=np.cumsum(infinite - oracle),
    )
