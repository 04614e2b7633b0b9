"""The classical drift-plus-penalty rule: ACDPP without its closing interval, as the ablation."""

from tidegate.admission.drift_plus_penalty import DriftPlusPenalty
from tidegate.admission.interval import FixedInterval
from tidegate.admission.rule import ServerState
from tidegate.policies.joint import JointPolicy
from tidegate.policies.options import DEFAULT_OPTIONS, ControlOptions
from tidegate.problem import Problem
from tidegate.retention.k_step import KStepRetention
from tidegate.theory import parameters


def drift_plus_penalty(
    problem: Problem,
    options: ControlOptions = DEFAULT_OPTIONS,
    *,
    penalty_exponent: float = parameters.PENALTY_EXPONENT,
) -> JointPolicy[ServerState]:
    """Return the policy that minimises J_t over [0, ΣB_m] and keeps samples for the planned K.

    The classical rule needs a bounded set of actions: a round can at most refill every buffer, as
    the costless oracle always does.

    Args:
        problem: capacities, budget, mean price, rounds and learning constants.
        options: K, hard capacity and limits of spending.
        penalty_exponent: γ of V = T^γ.
    """
    plan = parameters.plan_constant_admission(problem, options.retention_horizon)
    return JointPolicy(
        admission=DriftPlusPenalty(
            budget=problem.budget,
            penalty_weight=parameters.penalty_weight(problem.num_rounds, penalty_exponent),
            interval=FixedInterval(problem.slots_a_round),
            learning=problem.learning,
            distinct_samples=problem.earlier.distinct_samples,
            carried_samples=int(problem.earlier.within(plan.retention_horizon).sum()),
        ),
        retention=KStepRetention(plan.retention_horizon),
        shares=problem.capacity_shares,
        hard_capacity=options.hard_capacity,
        spend_ahead=options.spend_ahead,
    )
