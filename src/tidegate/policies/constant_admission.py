"""Constant admission: the planned number of samples in every round, whatever the price."""

from tidegate.admission.constant import ConstantAdmission
from tidegate.admission.rule import ServerState
from tidegate.policies.joint import JointPolicy
from tidegate.policies.options import DEFAULT_OPTIONS, ControlOptions
from tidegate.problem import Problem
from tidegate.retention.k_step import KStepRetention
from tidegate.theory import parameters


def constant_admission(
    problem: Problem, options: ControlOptions = DEFAULT_OPTIONS
) -> JointPolicy[ServerState]:
    """Return π^CK with the planned K and target admission."""
    plan = parameters.plan_constant_admission(problem, options.retention_horizon)
    return JointPolicy(
        admission=ConstantAdmission(plan.target_admission, problem.budget),
        retention=KStepRetention(plan.retention_horizon),
        shares=problem.capacity_shares,
        hard_capacity=options.hard_capacity,
        spend_ahead=options.spend_ahead,
    )
