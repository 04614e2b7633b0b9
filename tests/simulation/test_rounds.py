import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidegate.errors import ConfigurationError
from tidegate.policies import ControlOptions
from tidegate.policies.acdpp import acdpp
from tidegate.policies.constant_admission import constant_admission
from tidegate.policies.hybrid import hybrid
from tidegate.policies.presets import make_policy
from tidegate.prices import ConstantPrice, RecordedPrices, UniformPrice
from tidegate.problem import Problem
from tidegate.simulation.rounds import begin, play_round, simulate

PROBLEM = Problem(buffer_capacities=[8, 12], budget=10.0, mean_price=2.0, num_rounds=40)
UNIFORM = UniformPrice(1.0, 3.0)


def test_money_is_price_times_samples() -> None:
    prices = np.linspace(1, 3, 40)
    run = simulate(acdpp(PROBLEM), PROBLEM, RecordedPrices(prices), 0)
    assert run.columns["spent"] == pytest.approx(prices * run.columns["admitted"])
    assert run.columns["overspend"] == pytest.approx(np.cumsum(run.columns["spent"] - 10.0))


def test_the_name_of_a_policy_is_not_a_policy() -> None:
    with pytest.raises(ConfigurationError, match=r"got 'tide'; tidegate.make_policy\('tide'"):
        simulate("tide", PROBLEM, UNIFORM, 0)  # type: ignore[arg-type]


def test_each_client_pays_its_own_price() -> None:
    prices = np.array([[1.0, 4.0]] * 40)
    policy = constant_admission(PROBLEM)
    state = begin(policy, PROBLEM)
    after, row = play_round(policy, PROBLEM, state, prices[0])
    one, two = after.allocation.ordered
    assert row.spent == one * 1.0 + two * 4.0
    assert row.price == pytest.approx(0.4 * 1.0 + 0.6 * 4.0)
    run = simulate(policy, PROBLEM, RecordedPrices(prices), 0, price_per_client=True)
    assert run.columns["spent"].mean() == pytest.approx(5 * 2.8, rel=0.05)


def test_two_policies_meet_the_same_prices() -> None:
    first = simulate(acdpp(PROBLEM), PROBLEM, UNIFORM, 4)
    second = simulate(constant_admission(PROBLEM), PROBLEM, UNIFORM, 4)
    assert np.array_equal(first.columns["price"], second.columns["price"])


def test_different_seeds_differ() -> None:
    first, second = (simulate(acdpp(PROBLEM), PROBLEM, UNIFORM, seed) for seed in (1, 2))
    assert not np.array_equal(first.columns["price"], second.columns["price"])


@pytest.mark.parametrize("charged", [False, True])
def test_stale_buffers_are_charged_or_not(charged: bool) -> None:
    policy = hybrid(PROBLEM, charge_prefill=charged)
    run = simulate(policy, PROBLEM, ConstantPrice(2.0), 0)
    plan = hybrid(PROBLEM)
    free = simulate(plan, PROBLEM, ConstantPrice(2.0), 0).columns["spent"]
    extra = run.columns["spent"] - free
    assert extra.tolist() == [2.0 * 12 * charged] + [0.0] * 39
    assert run.columns["distinct_samples"][0] >= 12  # counted as used, charged or not


def test_hard_capacity_changes_the_first_rounds_of_acdpp() -> None:
    free = simulate(acdpp(PROBLEM), PROBLEM, UNIFORM, 0)
    hard = simulate(acdpp(PROBLEM, ControlOptions(hard_capacity=True)), PROBLEM, UNIFORM, 0)
    assert free.columns["training_size"].max() > 20
    assert free.columns["overflow"].max() > 0
    assert hard.columns["training_size"].max() == 20


def test_a_run_that_overflowed_can_go_on_with_a_hard_capacity() -> None:
    soft = simulate(acdpp(PROBLEM), PROBLEM, UNIFORM, 0, until=2)
    assert soft.columns["training_size"].max() > 20
    hard = acdpp(PROBLEM, ControlOptions(hard_capacity=True))
    rest = simulate(hard, PROBLEM, UNIFORM, 0, resume=soft.final)
    assert rest.columns["training_size"][5:].max() <= 20


def test_a_finished_run_cannot_be_continued() -> None:
    run = simulate(acdpp(PROBLEM), PROBLEM, UNIFORM, 0)
    with pytest.raises(ValueError, match="there is no round to simulate: 40 of 40 are done"):
        simulate(acdpp(PROBLEM), PROBLEM, UNIFORM, 0, resume=run.final)
    with pytest.raises(ValueError, match="stop after round 41"):
        simulate(acdpp(PROBLEM), PROBLEM, UNIFORM, 0, until=41)


def test_a_budget_too_small_for_a_sample_a_round_still_works() -> None:
    poor = Problem(buffer_capacities=[3, 3], budget=0.125, mean_price=2.0, num_rounds=60)
    run = simulate(constant_admission(poor), poor, ConstantPrice(2.0), 0)
    assert run.columns["training_size"][0] == 0  # nobody has a sample yet
    assert np.all(np.isfinite(run.columns["bound"]))
    assert run.columns["distinct_samples"][-1] == 3  # 60 rounds * 0.0625, whole samples only


def test_a_trace_that_ends_before_the_run_is_refused_before_the_first_round() -> None:
    policy, played = acdpp(PROBLEM), []
    trace = RecordedPrices([2.0] * 39)
    with pytest.raises(ConfigurationError, match="prices for 39 rounds, but the run has 40"):
        simulate(policy, PROBLEM, trace, 0, each_round=lambda: played.append(1))
    assert not played
    assert len(simulate(policy, PROBLEM, trace, 0, until=39).columns["spent"]) == 39


@given(
    capacities=st.lists(st.integers(1, 60), min_size=2, max_size=6),
    part=st.floats(0.02, 1.0),
    seed=st.integers(0, 99),
)
@settings(max_examples=20)
def test_one_price_for_all_leaves_nobody_below_the_reserved_part(
    capacities: list[int], part: float, seed: int
) -> None:
    problem = Problem(
        buffer_capacities=capacities,
        budget=part * sum(capacities),
        mean_price=5.5,
        num_rounds=40,
    )
    policy = make_policy("tide", problem, ControlOptions(spend_ahead=0.0))
    for until in (5, 10, 20, 40):
        run = simulate(policy, problem, UniformPrice(1, 10), seed, until=until)
        part_of_all = policy.least_share * policy.shares * run.final.paid.sum()
        assert (run.final.paid >= part_of_all - 10).all()  # but for one sample
