"""The guarantees of ACDPP as numbers: regret, cost violation and buffer violation after T rounds.

With L = Z²/2, the drift of a round is at most Z (C_t - C) + B_t, where B_t bounds (C_t - C)²/2.
ACDPP minimises J, so that no total in the interval has a lower one, Λ̄ neither. Summed over the
rounds, if prices are independent of the past and Λ̄ costs at most C on average (Lemma 1):

    E[L(T+1)] + V Σ E[p(t)]  <=  Σ B_t + V Σ p̄(t)

Here p̄(t) bounds the penalty of a round that admits Λ̄, after any past within the interval. As
printed, B_t is one constant for all rounds, and p̄ is no bound; ``docs/theory.md`` has both repairs,
and the proof. Totals are real numbers here, as in the paper.
"""

import math
from dataclasses import dataclass

import numpy as np

from tidegate._internal.arrays import FloatArray
from tidegate.problem import NOTHING, EarlierSamples, LearningConstants, Problem
from tidegate.theory.bounds import bound_terms, costless_oracle_sizes
from tidegate.theory.parameters import plan_constant_admission
from tidegate.theory.penalty import GENERALISATION_FACTOR, generalisation_term, penalty_terms
from tidegate.theory.reuse import earlier_reuse


@dataclass(frozen=True, eq=False)
class IntervalEnds:
    """[Λmin(t), Λmax(t)] of every round, and the Λ̄ that they close on."""

    target_admission: float
    """Λ̄."""
    lower: FloatArray
    """Λmin(t)."""
    upper: FloatArray
    """Λmax(t)."""

    @classmethod
    def closing(cls, target: float, contraction: float, num_rounds: int) -> "IntervalEnds":
        """Return [Λ̄(1 - ρ^t), Λ̄ / (1 - ρ^t)] for t = 1..T.

        >>> IntervalEnds.closing(10.0, contraction=0.5, num_rounds=3).upper.round(2)
        array([20.  , 13.33, 11.43])
        """
        with np.errstate(divide="ignore"):  # ρ is 0 in a run of one round
            closed = -np.expm1(np.arange(1, num_rounds + 1) * np.log(contraction))
        return cls(target, target * closed, target / closed)


def drift_constants(
    ends: IntervalEnds, lowest_price: float, highest_price: float, budget: float
) -> FloatArray:
    """Return B_t for t = 1..T: the largest (C_t - C)²/2 that the interval and the prices allow.

    >>> ends = IntervalEnds.closing(10.0, contraction=0.5, num_rounds=3)
    >>> drift_constants(ends, lowest_price=1.0, highest_price=10.0, budget=55.0).round(1)
    array([10512.5,  3068.1,  1757.4])
    """
    furthest = np.maximum(highest_price * ends.upper - budget, budget - lowest_price * ends.lower)
    constants: FloatArray = furthest**2 / 2
    return constants


def comparison_penalty(
    ends: IntervalEnds,
    retention_horizon: int,
    learning: LearningConstants,
    earlier: EarlierSamples = NOTHING,
    *,
    as_printed: bool = False,
) -> FloatArray:
    """Return p̄(t) for t = 1..T, a bound of p(t) if round t admits Λ̄.

    1/n - 1/N falls with n and rises with N, so it is largest at the fewest stored and the most
    distinct samples; the last term falls with N. As printed, the first two terms have the fewest
    distinct samples as well, and the last one has the most inside its logarithm; before round K+1
    the printed Λmin(t-K) has no round to refer to and counts as 0.
    """
    horizon, target, rounds = retention_horizon, ends.target_admission, len(ends.lower)
    begun = earlier.distinct_samples + target
    fewest = np.cumsum(ends.lower) - ends.lower + begun
    most = np.cumsum(ends.upper) - ends.upper + begun
    still_stored = earlier_reuse(earlier, horizon, _rounds(rounds)).training_size
    if as_printed:
        past = np.concatenate([np.zeros(horizon), ends.lower])[:rounds]
        stored = (horizon - 1) * past + target + still_stored
        return penalty_terms(stored, most, learning, effective_samples=fewest).total
    carried = _of_the_last(ends.lower, horizon) - ends.lower
    reuse = penalty_terms(carried + target + still_stored, most, learning)
    last = generalisation_term(fewest, fewest, learning)
    penalty: FloatArray = reuse.gradient_mismatch + reuse.gradient_variance + last
    return penalty


def reuse_excess(
    ends: IntervalEnds,
    retention_horizon: int,
    learning: LearningConstants,
    earlier: EarlierSamples = NOTHING,
) -> FloatArray:
    """Return for t = 1..T a bound of Ω1's part: the bound of Theorem 1 less the surrogate penalty.

    Uneven reuse adds to the last term alone: g(N)/√Ṽ, at most 10B, in place of g(N). If no use
    count exceeds U, Ṽ is at least ΣA / (UN); U is K, or more if an earlier sample was used more.
    Without earlier samples that is 1 - D⁽¹⁾/(KN).
    """
    horizon, rounds = retention_horizon, len(ends.lower)
    most_uses = max(horizon, earlier.most_uses)
    fewest = np.cumsum(ends.lower) + earlier.distinct_samples
    uses = earlier_reuse(earlier, horizon, _rounds(rounds)).total_uses
    lacking = np.convolve(ends.upper, np.arange(horizon)[::-1])[:rounds]
    lacking += most_uses * earlier.distinct_samples - uses
    # A ratio of two linear functions of the samples admitted is lowest at an end of their range.
    uniformity = np.ones(rounds)
    for admitted in (ends.lower, ends.upper):
        new = np.cumsum(admitted)
        short = (lacking + (most_uses - horizon) * new) / (new + earlier.distinct_samples)
        uniformity = np.minimum(uniformity, np.maximum(1 - short / most_uses, 0.0))
    most = GENERALISATION_FACTOR * learning.loss_bound
    with np.errstate(divide="ignore"):
        grown = (1 / np.sqrt(uniformity) - 1) * generalisation_term(fewest, fewest, learning)
    excess: FloatArray = np.minimum(grown, most * (1 - np.sqrt(uniformity)))
    return excess


@dataclass(frozen=True)
class Guarantees:
    """Upper bounds for ACDPP after T rounds, in expectation over prices."""

    drift_constant: float
    """B of (C_t - C)²/2: as printed one for all rounds, repaired the mean of B_t."""
    surrogate_penalty: float
    """Of Σ E[p(t)]."""
    regret: float
    """Of Reg(T)."""
    cost_violation: float
    """Of Vio^S(T), and of E[Z(T+1)]."""
    buffer_violation: float
    """Of Vio^B(T), if orders are split in proportion to capacities."""


def acdpp_guarantees(
    problem: Problem,
    *,
    lowest_price: float,
    highest_price: float,
    penalty_weight: float,
    contraction: float,
    retention_horizon: int | None = None,
    as_printed: bool = False,
) -> Guarantees:
    """Return the bounds of Lemma 1, Theorems 2 and 3, and Remark 2 for the planned Λ̄.

    Args:
        problem: capacities, budget, mean price, rounds and learning constants; all clients take
            part in every round.
        lowest_price: no price is lower.
        highest_price: no price is higher.
        penalty_weight: V.
        contraction: ρ.
        retention_horizon: K; the planned one by default.
        as_printed: with one drift constant for all rounds, and the printed p̄, which is no bound.

    >>> paper = Problem(buffer_capacities=[100], budget=55.0, mean_price=5.5, num_rounds=1000)
    >>> bounds = acdpp_guarantees(
    ...     paper, lowest_price=1, highest_price=10, penalty_weight=1000**0.5,
    ...     contraction=1 - 1000**-0.5,
    ... )
    >>> round(bounds.cost_violation)
    4234
    """
    if problem.mean_fraction_train < 1:
        raise ValueError("the guarantees assume that all clients take part in every round")
    plan = plan_constant_admission(problem, retention_horizon)
    learning = problem.learning
    horizon, rounds = plan.retention_horizon, problem.num_rounds
    ends = IntervalEnds.closing(plan.target_admission, contraction, rounds)
    drift = drift_constants(ends, lowest_price, highest_price, problem.budget)
    drift_constant = float(drift.max() if as_printed else drift.mean())
    earlier = problem.earlier
    comparison = comparison_penalty(ends, horizon, learning, earlier, as_printed=as_printed).sum()
    penalty = float(comparison) + drift_constant * rounds / penalty_weight
    oracle_sizes = costless_oracle_sizes(problem.total_capacity, rounds, earlier)
    oracle = bound_terms(oracle_sizes, learning).total.sum()
    stored = problem.capacity_shares * _of_the_last(ends.upper, horizon).sum()
    if earlier.distinct_samples:
        held = earlier.within(horizon)
        stored += held @ np.minimum(horizon - np.arange(held.shape[1]), rounds)
    return Guarantees(
        drift_constant=drift_constant,
        surrogate_penalty=penalty,
        regret=penalty + float(reuse_excess(ends, horizon, learning, earlier).sum() - oracle),
        cost_violation=math.sqrt(2 * penalty_weight * penalty),
        buffer_violation=float(np.maximum(stored - rounds * problem.capacities, 0.0).sum()),
    )


def _rounds(count: int) -> FloatArray:
    """Return 1, ..., T."""
    return np.arange(1, count + 1, dtype=np.float64)


def _of_the_last(values: FloatArray, count: int) -> FloatArray:
    """Return the sum of each value and the ``count - 1`` before it."""
    sums = np.cumsum(values)
    sums[count:] -= sums[:-count].copy()
    return sums
