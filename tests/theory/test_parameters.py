import math
import sys
from dataclasses import replace

import numpy as np
import pytest
from check_size import at_size
from hypothesis import example, given, settings
from hypothesis.strategies import floats, integers, lists

from tidegate.policies.presets import EXPERIMENTS
from tidegate.problem import LearningConstants, Problem
from tidegate.theory.bounds import constant_admission_sizes, excess_risk_bound
from tidegate.theory.parameters import (
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


@settings(max_examples=at_size(12, 60), deadline=None)
@given(
    capacities=lists(integers(1, 40), min_size=1, max_size=5),
    budget=floats(1, 500),
    mean_price=floats(0.1, 20),
    rounds=integers(1, 60),
)
@example(capacities=[1, 1, 40], budget=42.0, mean_price=5.0, rounds=6)  # K = 5 and 6 are equal
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
    # The search names the closed form's K if no other is better by 1e-9. And where n = N_eff, the
    # bound takes the root of what rounding leaves of 1/n - 1/N_eff: a few ε/n, in every round.
    rounding = rounds * math.sqrt(8 * sys.float_info.epsilon / plan.target_admission)
    assert plan.bound_per_round * rounds <= best * (1 + 1e-9) + rounding


@settings(max_examples=at_size(20, 100), deadline=None)
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


def test_v_and_rho_follow_their_own_exponents() -> None:
    assert penalty_weight(10_000, 0.25) == pytest.approx(10.0)
    assert contraction(10_000, 0.25) == pytest.approx(0.9)


def test_the_search_goes_beyond_twenty() -> None:
    # c̄·ΣB/C = 40 rounds; K = 20 would leave half of the memory unused.
    problem = problem_with([10] * 8, 11.0, 5.5, 4000)
    assert search_constant_admission(problem).retention_horizon > 30


def test_no_sample_is_kept_beyond_the_run() -> None:
    problem = problem_with([1000], 0.01, 5.5, 50)  # c̄·ΣB/C = 550,000
    assert plan_constant_admission(problem).retention_horizon == 50
    assert search_constant_admission(problem).retention_horizon <= 50


def test_equal_plans_are_told_as_agreement() -> None:
    quiet = LearningConstants(gradient_noise=1e-9)  # N stays below Pdim: every K is as good
    problem = replace(problem_with([10], 11.0, 5.5, 4), learning=quiet)
    assert search_constant_admission(problem) == plan_constant_admission(problem)


def test_prices_of_each_client_count_by_its_share() -> None:
    # 9 of 10 samples cost 1, one costs 10: 1.9 on average, and 55 pays for 28.9 of them.
    problem = Problem(
        buffer_capacities=[90, 10], budget=55.0, mean_price=[1.0, 10.0], num_rounds=100
    )
    assert problem.average_price == pytest.approx(1.9)
    assert target_admission(problem, 1) == pytest.approx(55 / 1.9)
    assert problem.among(1).average_price == 1.0


@pytest.mark.parametrize("function", [penalty_weight, contraction])
@pytest.mark.parametrize("exponent", [0.0, 1.0, -0.5])
def test_exponents_lie_strictly_between_0_and_1(function: object, exponent: float) -> None:
    with pytest.raises(ValueError, match="strictly between 0 and 1"):
        function(100, exponent)  # type: ignore[operator]
