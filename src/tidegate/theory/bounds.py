"""The excess-risk bound of Theorem 1, its two special cases, regret and violations."""

import math
from dataclasses import dataclass

import numpy as np

from tidegate._internal.arrays import FloatArray
from tidegate.problem import NOTHING, EarlierSamples, LearningConstants
from tidegate.theory.penalty import PenaltyTerms, penalty_terms
from tidegate.theory.reuse import (
    constant_admission_uniformity,
    constant_admission_uses,
    earlier_reuse,
)


@dataclass(frozen=True)
class SampleSizes:
    """The sample sizes of a run that the bound depends on, one entry a round."""

    training_size: FloatArray
    """n(t)."""
    distinct_samples: FloatArray
    """N(t)."""
    effective_samples: FloatArray
    """N_eff(t)."""


def constant_admission_sizes(
    target_admission: float,
    retention_horizon: int,
    num_rounds: int,
    fraction_train: float = 1.0,
    earlier: EarlierSamples = NOTHING,
) -> SampleSizes:
    """Return the sizes under π^CK: Λ̄ samples admitted in each round, and kept for K rounds.

    They are exact in every round if all clients take part; the paper's corollary sets n = K·Λ̄ from
    round 1 on, which holds only after K rounds. With cohorts a client takes part in fewer rounds,
    and each client counts with its average number.

    Args:
        target_admission: Λ̄.
        retention_horizon: K, rounds of a client.
        num_rounds: T.
        fraction_train: q, the chance that a client takes part in a round.
        earlier: what clients hold before round 1.
    """
    rounds = np.arange(1, num_rounds + 1, dtype=np.float64)
    clocks = 1 + fraction_train * (rounds - 1)
    uniformity = constant_admission_uniformity(clocks, retention_horizon)
    distinct = target_admission * rounds
    sizes = SampleSizes(
        training_size=target_admission * np.minimum(clocks, retention_horizon),
        distinct_samples=distinct,
        effective_samples=distinct * uniformity,
    )
    if not earlier.distinct_samples:
        return sizes
    uses, squares = constant_admission_uses(clocks, retention_horizon)
    before, share = earlier_reuse(earlier, retention_horizon, clocks), distinct / clocks
    return SampleSizes(
        training_size=sizes.training_size + before.training_size,
        distinct_samples=distinct + earlier.distinct_samples,
        effective_samples=(share * uses + before.total_uses) ** 2
        / (share * squares + before.squared_uses),
    )


def costless_oracle_sizes(
    total_capacity: int, num_rounds: int, earlier: EarlierSamples = NOTHING
) -> SampleSizes:
    """Return the sizes under the costless oracle, which uses each sample once in full buffers.

    Earlier samples that were never used are part of what fills the buffers in round 1.
    """
    if not earlier.distinct_samples:
        return constant_admission_sizes(float(total_capacity), 1, num_rounds)
    fresh = total_capacity * np.arange(1, num_rounds + 1, dtype=np.float64)
    return SampleSizes(
        training_size=np.full(num_rounds, float(total_capacity)),
        distinct_samples=earlier.distinct_samples + fresh - earlier.within(1).sum(),
        effective_samples=(earlier.total_uses + fresh) ** 2 / (earlier.squared_uses + fresh),
    )


def bound_terms(sizes: SampleSizes, learning: LearningConstants) -> PenaltyTerms:
    """Return the three terms of Theorem 1 in each round, without its constant terms.

    >>> oracle = bound_terms(costless_oracle_sizes(100, 1000), LearningConstants())
    >>> round(float(oracle.total.mean()), 2)
    1.61
    """
    return penalty_terms(
        sizes.training_size,
        sizes.distinct_samples,
        learning,
        effective_samples=sizes.effective_samples,
    )


def constant_terms(learning: LearningConstants, num_rounds: int) -> float:
    """Return the sum over the run of the terms that Theorem 1 calls C_2; no policy changes them.

    D²/(2η) once, and ηC_1/2 + η³C_2/2 in every round, with the appendix's
    C_1 = G (5G + 2LD √(2(1 - 1/E))) and C_2 = 4L²G² (1 - 1/E).

    >>> round(constant_terms(LearningConstants(local_steps=1), num_rounds=10), 6)
    13.5
    """
    spread = 1 - 1 / learning.local_steps
    rate, gradient = learning.learning_rate, learning.gradient_bound
    first = gradient * (
        5 * gradient + 2 * learning.smoothness * learning.domain_diameter * math.sqrt(2 * spread)
    )
    second = 4 * learning.smoothness**2 * gradient**2 * spread
    once = learning.domain_diameter**2 / (2 * rate)
    return once + num_rounds * (rate * first / 2 + rate**3 * second / 2)


def excess_risk_bound(
    sizes: SampleSizes, learning: LearningConstants, *, with_constants: bool = False
) -> float:
    """Return Ē_T(π), the bound of Theorem 1 on the cumulative excess risk.

    By default without the constant terms, which are the same for every policy and would hide the
    differences.
    """
    total = float(bound_terms(sizes, learning).total.sum())
    if with_constants:
        total += constant_terms(learning, len(sizes.training_size))
    return total


def regret(
    sizes: SampleSizes,
    total_capacity: int,
    learning: LearningConstants,
    earlier: EarlierSamples = NOTHING,
) -> FloatArray:
    """Return Reg(1), ..., Reg(T): the bound so far minus that of the costless oracle."""
    oracle = costless_oracle_sizes(total_capacity, len(sizes.training_size), earlier)
    difference = bound_terms(sizes, learning).total - bound_terms(oracle, learning).total
    return np.cumsum(difference)


def cost_violation(mean_spent: FloatArray, budget: float) -> float:
    """Return Vio^S(T) = [Σ_t (E[C_t] - C)]⁺, given each round's spending averaged over runs.

    >>> cost_violation(np.array([60.0, 40.0, 62.0]), budget=50.0)
    12.0
    """
    return max(float(np.sum(mean_spent - budget)), 0.0)


def buffer_violation(mean_excess: FloatArray) -> float:
    """Return Vio^B(T) = Σ_m [Σ_t (E[n_m(t)] - B_m)]⁺ over the rounds that each client is in.

    Args:
        mean_excess: each client's sum of n_m(t) - B_m, averaged over runs.

    >>> buffer_violation(np.array([10.0, -30.0]))
    10.0
    """
    return float(np.maximum(mean_excess, 0).sum())
