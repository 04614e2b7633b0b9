"""The costless oracle: it refills every buffer in every round, and uses each sample once."""

from tidegate.admission.constant import ConstantAdmission
from tidegate.admission.rule import ServerState
from tidegate.policies.joint import JointPolicy
from tidegate.policies.options import DEFAULT_OPTIONS, ControlOptions
from tidegate.problem import Problem
from tidegate.retention.k_step import KStepRetention


def costless_oracle(
    problem: Problem, options: ControlOptions = DEFAULT_OPTIONS
) -> JointPolicy[ServerState]:
    """Return the policy that regret is measured against; it ignores prices and the budget."""
    return JointPolicy(
        admission=ConstantAdmission(float(problem.total_capacity), problem.budget),
        retention=KStepRetention(1),
        shares=problem.capacity_shares,
        hard_capacity=True,  # a client that takes part fills its own buffer
        spend_ahead=options.spend_ahead,
    )
