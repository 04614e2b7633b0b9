from dataclasses import replace

import pytest

from tidegate.policies.presets import EXPERIMENTS
from tidegate.prices import RecordedPrices, UniformPrice
from tidegate.problem import Problem
from tidegate.simulation.offline import Candidate, candidate_horizons, select_offline, try_horizons


@pytest.mark.no_cover
@pytest.mark.long
def test_offline_selection_agrees_with_the_closed_form_on_the_papers_setting() -> None:
    # The budget pays for 10 a round; 10 rounds of them are 100, which memory holds; 11 are not.
    mnist = EXPERIMENTS["mnist"]
    problem = mnist.problem(num_rounds=600)
    candidates = try_horizons(problem, mnist.price, horizons=range(6, 15), seeds=(0, 1))
    bounded = {one.retention_horizon for one in candidates if one.bounded}
    assert bounded == set(range(6, 11))
    assert select_offline(candidates).retention_horizon == 10


def test_an_unbounded_violation_grows_by_what_does_not_fit() -> None:
    # K = 12 stores 120 where 100 are allowed: 20 a round, over the second half of 400 rounds.
    mnist = EXPERIMENTS["mnist"]
    problem = mnist.problem(num_rounds=400)
    (one,) = try_horizons(problem, mnist.price, horizons=[12])
    assert one.final_violation - one.halfway_violation == pytest.approx(20 * 200, rel=0.05)


def test_a_large_budget_is_capped_by_memory() -> None:
    mnist = EXPERIMENTS["mnist"]
    problem = replace(mnist.problem(num_rounds=100), budget=5000.0)
    candidates = try_horizons(problem, mnist.price, horizons=[1, 2])
    assert [one.bounded for one in candidates] == [True, False]


def test_a_slow_start_does_not_hide_an_overflow() -> None:
    """200 clients with 10 slots, 10 samples a round: K = 210 stores 2,100 from round 210 on.

    Over the whole run its average stays below capacity, and Vio^B is 0.
    """
    problem = Problem(buffer_capacities=[10] * 200, budget=55.0, mean_price=5.5, num_rounds=1000)
    fits, overflows = try_horizons(problem, UniformPrice(1.0, 10.0), horizons=[200, 210])
    assert fits.bounded
    assert overflows.final_violation == 0
    assert not overflows.bounded


def test_prices_may_differ_by_client() -> None:
    problem = Problem(buffer_capacities=[6, 6], budget=9.0, mean_price=[1.0, 2.0], num_rounds=40)
    trace = RecordedPrices([[1.0, 2.0]] * 40)
    candidates = try_horizons(problem, trace, horizons=[1, 2], price_per_client=True)
    assert select_offline(candidates).retention_horizon == 2


def test_candidates_go_to_twice_the_closed_form() -> None:
    assert candidate_horizons(EXPERIMENTS["mnist"].problem()) == range(1, 21)
    assert candidate_horizons(EXPERIMENTS["mnist"].problem(num_rounds=6)) == range(1, 7)


def test_no_bounded_candidate_is_an_error_with_a_remedy() -> None:
    with pytest.raises(ValueError, match="no candidate K keeps its buffer violation bounded"):
        select_offline([Candidate(3, 1.0, 99.0, bounded=False, bound_per_round=1.0)])


def test_one_round_has_no_halves() -> None:
    problem = Problem(buffer_capacities=[5], budget=10.0, mean_price=2.0, num_rounds=1)
    with pytest.raises(ValueError, match="at least 2 rounds"):
        try_horizons(problem, UniformPrice(1.0, 3.0), horizons=[1])
