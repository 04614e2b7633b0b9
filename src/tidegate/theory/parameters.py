"""Choose K and the target admission before the run, and V and ρ from its length.

For a fixed K every term of the constant-admission bound falls with the admission, so the best
target is the most that memory and budget allow: Λ̄ = min(q·ΣB/K, C/c̄). Here q·ΣB are the slots
that a round reaches: all of them, unless it reaches only a cohort. Only K needs a search.
"""

import math
from dataclasses import dataclass

from tidegate.errors import ConfigurationError
from tidegate.problem import Problem
from tidegate.theory.bounds import constant_admission_sizes, excess_risk_bound

PENALTY_EXPONENT = 0.5
"""The default γ of V = T^γ."""
CONTRACTION_EXPONENT = 0.5
"""The default φ of ρ = 1 - T^-φ."""

ROUNDING = 1e-9
"""Rounds. A K that is nearer to a whole number counts as that number."""


@dataclass(frozen=True)
class Plan:
    """An operating point of constant admission, and its bound over the run."""

    retention_horizon: int
    """K."""
    target_admission: float
    """Λ̄, samples a round."""
    bound_per_round: float
    """Ē_T(π^CK) / T, without constant terms."""


def target_admission(problem: Problem, retention_horizon: int) -> float:
    """Return Λ̄(K) = min(q·ΣB/K, C/c̄), the most that memory and budget allow for this K."""
    return min(problem.slots_a_round / retention_horizon, problem.affordable_admission)


def plan_for_horizon(problem: Problem, retention_horizon: int) -> Plan:
    """Return the best plan with this K."""
    target = target_admission(problem, retention_horizon)
    sizes = constant_admission_sizes(
        target,
        retention_horizon,
        problem.num_rounds,
        problem.mean_fraction_train,
        problem.earlier,
    )
    return Plan(
        retention_horizon=retention_horizon,
        target_admission=target,
        bound_per_round=excess_risk_bound(sizes, problem.learning) / problem.num_rounds,
    )


def plan_constant_admission(problem: Problem, retention_horizon: int | None = None) -> Plan:
    """Return the plan with K* of the infinite-horizon closed form, or with a given K.

    K* is the better whole number next to c̄·q·ΣB / C, and at most T: no sample outlasts the run.

    >>> paper = Problem(buffer_capacities=[10] * 10, budget=55.0, mean_price=5.5, num_rounds=1000)
    >>> plan = plan_constant_admission(paper)
    >>> plan.retention_horizon, plan.target_admission
    (10, 10.0)
    """
    if retention_horizon is not None:
        return plan_for_horizon(problem, retention_horizon)
    balance = problem.slots_a_round / problem.affordable_admission
    neighbours = math.floor(balance + ROUNDING), math.ceil(balance - ROUNDING)
    return _best(problem, {min(max(one, 1), problem.num_rounds) for one in neighbours})


def search_constant_admission(problem: Problem) -> Plan:
    """Return the plan with the best finite-horizon bound over all whole K.

    The search ends at four times the closed form's K, or 20 if that is more, and never exceeds the
    number of rounds.
    """
    closed = plan_constant_admission(problem)
    largest = min(max(20, 4 * closed.retention_horizon), problem.num_rounds)
    found = _best(problem, set(range(1, largest + 1)))
    # If plans differ only by rounding, prefer that of the closed form.
    return found if found.bound_per_round < closed.bound_per_round * (1 - 1e-9) else closed


def _best(problem: Problem, horizons: set[int]) -> Plan:
    plans = [plan_for_horizon(problem, horizon) for horizon in sorted(horizons)]
    return min(plans, key=lambda plan: plan.bound_per_round)


def penalty_weight(num_rounds: int, penalty_exponent: float) -> float:
    """Return V = T^γ, the weight of learning against debt.

    >>> penalty_weight(10_000, penalty_exponent=0.5)
    100.0
    """
    _check_exponent("gamma", penalty_exponent)
    return math.pow(num_rounds, penalty_exponent)


def contraction(num_rounds: int, contraction_exponent: float) -> float:
    """Return ρ = 1 - T^-φ; the larger it is, the more slowly the admission interval closes.

    >>> contraction(10_000, contraction_exponent=0.5)
    0.99
    """
    _check_exponent("phi", contraction_exponent)
    return 1 - math.pow(num_rounds, -contraction_exponent)


def _check_exponent(symbol: str, value: float) -> None:
    if not 0 < value < 1:
        raise ConfigurationError(f"{symbol} must lie strictly between 0 and 1, got {value}")
