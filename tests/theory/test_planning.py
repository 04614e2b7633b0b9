import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis.strategies import floats, integers, lists

from tidegate.presets import EXPERIMENTS
from tidegate.problem import Problem
from tidegate.theory.bounds import constant_admission_sizes, excess_risk_bound
from tidegate.theory.planning import (
    contraction,
    penalty_weight,
    plan_constant_admission,
    plan_for_horizon,
    search_constant_admission,
    target_admission,
)


@pytest.mark.parametrize(("name", "target"), [("mnist", 10), ("cifar10", 20), ("imagenette", 40)])
def test_the_papers_three_settings(name: str, target: int) -> None:
    # Mean price 5.5, capacities 100·f, budget 55·f: 5.5 * 100 f / 55 f = 10, and 55 f / 5.5.
    plan = plan_constant_admission(EXPERIMENTS[name].problem())
    assert (plan.retention_horizon, plan.target_admission) == (10, target)


def problem_with(capacities: list[int], budget: float, mean_price: float, rounds: int) -> Problem:
    return Problem(
        buffer_capacities=capacities, budget=budget, mean_price=mean_price, num_rounds=rounds
    )


def test_the_hybrids_active_half_alone() -> None:
    # Capacities 50, budget 55, mean price 5.5: K = 5, target 10.
    plan = plan_constant_admission(problem_with([8, 9, 10, 11, 12], 55.0, 5.5, 1000))
    assert (plan.retention_horizon, plan.target_admission) == (5, 10.0)


@settings(max_examples=60, deadline=None)
@given(
    capacities=lists(integers(1, 40), min_size=1, max_size=5),
    budget=floats(1, 500),
    mean_price=floats(0.1, 20),
    rounds=integers(1, 60),
)
def test_a_finite_search_is_brute_force_over_k_and_the_target(
    capacities: list[int], budget: float, mean_price: float, rounds: int
) -> None:
    problem = problem_with(capacities, budget, mean_price, rounds)
    plan = search_constant_admission(problem)
    best = min(
        excess_risk_bound(constant_admission_sizes(target, horizon, rounds), problem.learning)
        for horizon in range(1, min(rounds, 20) + 1)
        for target in np.linspace(0.05, 1.0, 8) * target_admission(problem, horizon)
    )
    assert plan.bound_per_round * rounds <= best * (1 + 1e-12)


@settings(max_examples=100, deadline=None)
@given(
    capacities=lists(integers(1, 40), min_size=1, max_size=5),
    budget=floats(0.5, 500),
    mean_price=floats(0.1, 20),
)
def test_a_plan_never_exceeds_budget_or_memory(
    capacities: list[int], budget: float, mean_price: float
) -> None:
    problem = problem_with(capacities, budget, mean_price, 50)
    for plan in (plan_constant_admission(problem), search_constant_admission(problem)):
        assert plan.target_admission * mean_price <= budget * (1 + 1e-12)
        assert plan.target_admission * plan.retention_horizon <= sum(capacities) * (1 + 1e-12)


def test_the_closed_form_takes_the_better_neighbour() -> None:
    problem = problem_with([10] * 10, 100.0, 5.5, 1000)  # 5.5 between K = 5 and K = 6
    plan = plan_constant_admission(problem)
    bounds = [plan_for_horizon(problem, horizon).bound_per_round for horizon in (5, 6)]
    assert plan.bound_per_round == min(bounds)


def test_a_budget_beyond_the_oracles_keeps_samples_one_round() -> None:
    plan = plan_constant_admission(problem_with([10], 1000.0, 5.5, 100))
    assert (plan.retention_horizon, plan.target_admission) == (1, 10.0)


@pytest.mark.parametrize("function", [penalty_weight, contraction])
@pytest.mark.parametrize("exponent", [0.0, 1.0, -0.5])
def test_exponents_lie_strictly_between_0_and_1(function: object, exponent: float) -> None:
    with pytest.raises(ValueError, match="strictly between 0 and 1"):
        function(100, exponent)  # type: ignore[operator]
