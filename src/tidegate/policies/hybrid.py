"""Hybrid: half of the clients keep stale samples, the others follow constant admission."""

import numpy as np

from tidegate.admission.constant import ConstantAdmission
from tidegate.admission.rule import ServerState
from tidegate.policies.joint import JointPolicy
from tidegate.policies.options import DEFAULT_OPTIONS, ControlOptions, NotApplicable
from tidegate.problem import Problem
from tidegate.retention.k_step import KStepRetention
from tidegate.retention.partly_frozen import PartlyFrozenRetention
from tidegate.theory import parameters


def hybrid(
    problem: Problem,
    options: ControlOptions = DEFAULT_OPTIONS,
    *,
    retention_horizon: int | None = None,
    charge_prefill: bool = False,
) -> JointPolicy[ServerState]:
    """Return the paper's baseline after Marfoq et al. (2023).

    The second half of the clients have full buffers before round 1 and never change them. The plan
    covers only the first half, and gives it the whole budget.

    Args:
        problem: capacities of at least two clients, budget, mean price and rounds.
        options: K of the first half, and hard capacity.
        retention_horizon: K of a preset; the target admission stays as planned.
        charge_prefill: pay for the stale samples, at the price of their client's first round;
            free by default.
    """
    frozen_clients = problem.num_clients // 2
    if not frozen_clients:
        raise NotApplicable("hybrid needs at least 2 clients, one of them stale; got 1")
    if charge_prefill and options.limits_spending:
        raise NotApplicable(
            "hybrid cannot pay for its stale samples before round 1 if spending ahead is "
            "limited; leave out charge_prefill, or the limit"
        )
    active = problem.num_clients - frozen_clients
    planned = parameters.plan_constant_admission(problem.among(active), options.retention_horizon)
    shares = np.where(np.arange(problem.num_clients) < active, problem.capacities, 0)
    horizon = planned.retention_horizon if retention_horizon is None else retention_horizon
    return JointPolicy(
        admission=ConstantAdmission(planned.target_admission, problem.budget),
        retention=PartlyFrozenRetention(KStepRetention(horizon), frozen_clients),
        shares=shares / shares.sum(),
        hard_capacity=options.hard_capacity,
        spend_ahead=options.spend_ahead,
        charge_prefill=charge_prefill,
    )
