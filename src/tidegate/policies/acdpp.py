"""ACDPP: drift-plus-penalty within an interval that closes on the planned admission."""

import math

from tidegate.admission.drift_plus_penalty import DriftPlusPenalty
from tidegate.admission.interval import ClosingInterval
from tidegate.admission.rule import ServerState
from tidegate.policies.joint import JointPolicy
from tidegate.policies.options import DEFAULT_OPTIONS, ControlOptions
from tidegate.problem import LearningConstants, Problem
from tidegate.retention.k_step import KStepRetention
from tidegate.theory import parameters


def acdpp(  # noqa: PLR0913 - all but two are given by name
    problem: Problem,
    options: ControlOptions = DEFAULT_OPTIONS,
    *,
    retention_horizon: int | None = None,
    target_admission: float | None = None,
    penalty_exponent: float = parameters.PENALTY_EXPONENT,
    contraction_exponent: float = parameters.CONTRACTION_EXPONENT,
    penalty_weight: float | None = None,
    contraction: float | None = None,
    admission_cap: float = math.inf,
    learning: LearningConstants | None = None,
) -> JointPolicy[ServerState]:
    """Return the paper's policy (Zhao and Liang, 2026, Algorithm 1).

    The defaults follow the paper: K and Λ̄ from the plan, V = T^γ, ρ = 1 - T^-φ, and capacity
    limits only the average.

    Args:
        problem: capacities, budget, mean price, rounds and learning constants.
        options: K, hard capacity and limits of spending.
        retention_horizon: K of a preset; overrides that of the options.
        target_admission: Λ̄; the planned one by default.
        penalty_exponent: γ; a larger one gives learning more weight, and debt less.
        contraction_exponent: φ; a larger one keeps the interval open longer.
        penalty_weight: V, in place of T^γ.
        contraction: ρ, in place of 1 - T^-φ.
        admission_cap: an upper end that the interval never exceeds.
        learning: the constants of the penalty; the problem's own by default.
    """
    wanted = options.retention_horizon if retention_horizon is None else retention_horizon
    plan = parameters.plan_constant_admission(problem, wanted)
    if target_admission is None:
        target_admission = plan.target_admission
    if penalty_weight is None:
        penalty_weight = parameters.penalty_weight(problem.num_rounds, penalty_exponent)
    if contraction is None:
        contraction = parameters.contraction(problem.num_rounds, contraction_exponent)
    return JointPolicy(
        admission=DriftPlusPenalty(
            budget=problem.budget,
            penalty_weight=penalty_weight,
            interval=ClosingInterval(target_admission, contraction, admission_cap),
            learning=problem.learning if learning is None else learning,
            distinct_samples=problem.earlier.distinct_samples,
            carried_samples=int(problem.earlier.within(plan.retention_horizon).sum()),
        ),
        retention=KStepRetention(plan.retention_horizon),
        shares=problem.capacity_shares,
        hard_capacity=options.hard_capacity,
        spend_ahead=options.spend_ahead,
    )
