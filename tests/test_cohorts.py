"""Who takes part, what that means for a plan, and that whole samples still add up."""

import itertools
import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from check_size import at_size
from hypothesis import given, settings
from hypothesis import strategies as st

from tidegate._internal.arrays import EVERYONE, IntArray
from tidegate.admission.allocation import Allocation
from tidegate.admission.rule import Quote
from tidegate.cohorts import Cohorts
from tidegate.policies import ControlOptions, JointPolicy
from tidegate.policies.constant_admission import constant_admission
from tidegate.policies.hybrid import hybrid
from tidegate.policies.tide import tide
from tidegate.prices import UniformPrice
from tidegate.problem import Problem
from tidegate.simulation.rounds import begin, play_round, simulate
from tidegate.theory.bounds import constant_admission_sizes
from tidegate.theory.distribution import UniformDistribution
from tidegate.theory.optimum import optimum


def drawn(cohorts: Cohorts, clients: int, rounds: int, seed: int = 0) -> Iterator[IntArray]:
    for who in itertools.islice(cohorts.rounds(np.random.default_rng(seed), clients), rounds):
        yield np.arange(clients)[who]


def test_everyone_takes_part_by_default() -> None:
    assert all(
        who == EVERYONE
        for who in itertools.islice(Cohorts().rounds(np.random.default_rng(0), 5), 3)
    )
    assert Cohorts().mean_fraction_train(100, 5) == 1
    assert Cohorts(fraction_train=0.01).mean_fraction_train(100, 10) == 0.1  # one client at least


def test_a_cohort_is_a_set_of_its_size_and_everyone_comes_equally_often() -> None:
    seen = np.zeros(200, dtype=np.int64)
    for who in drawn(Cohorts(fraction_train=0.1), 200, 4000):
        assert len(who) == 20
        assert np.all(np.diff(who) > 0)
        seen[who] += 1
    # Of 4,000 rounds each is in a tenth; six standard deviations are 114.
    assert np.abs(seen - 400).max() < 114


def test_who_is_more_often_online_comes_more_often() -> None:
    cohorts, seen = Cohorts(fraction_train=0.1, least_available=0.2), np.zeros(500)
    for who in drawn(cohorts, 500, 4000, seed=3):
        assert len(who) == 50
        seen[who] += 1
    available = np.random.default_rng(3).uniform(0.2, 1.0, 500)  # what each has drawn first
    assert np.corrcoef(seen, available)[0, 1] > 0.95
    assert seen.max() > 3 * seen.min()
    assert cohorts.mean_fraction_train(10, 500) == 0.1


def test_a_cohort_is_smaller_where_too_few_are_online() -> None:
    cohorts = Cohorts(fraction_train=0.9, least_available=0.1)
    sizes = [len(who) for who in drawn(cohorts, 1000, 300)]
    assert max(sizes) < 900
    assert np.mean(sizes) / 1000 == pytest.approx(cohorts.mean_fraction_train(300, 1000), abs=0.02)


def test_some_never_come_back() -> None:
    cohorts = Cohorts(fraction_train=0.5, leaving=0.01)
    rounds = list(drawn(cohorts, 1000, 600))
    late = np.unique(np.concatenate(rounds[-50:]))
    assert 0 < len(late) < 20  # of 1,000, 1000·0.99^550 are left: 4
    assert np.mean([len(who) for who in rounds]) / 1000 == pytest.approx(
        cohorts.mean_fraction_train(600, 1000), rel=0.05
    )


def test_cohorts_follow_their_seed_alone() -> None:
    cohorts = Cohorts(fraction_train=0.2, least_available=0.5, leaving=0.001)
    first, second = ([who.tolist() for who in drawn(cohorts, 300, 50)] for _ in range(2))
    assert first == second
    assert first != [who.tolist() for who in drawn(cohorts, 300, 50, seed=1)]


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        ({"fraction_train": 0.0}, "fraction_train must be above 0 and at most 1, got 0.0"),
        ({"fraction_train": 1.5}, "fraction_train must be above 0"),
        ({"least_available": -1.0}, "least_available must be above 0"),
        ({"leaving": 1.0}, "leaving must be at least 0 and below 1, got 1.0"),
    ],
)
def test_impossible_cohorts_are_refused(wrong: dict[str, float], told: str) -> None:
    with pytest.raises(ValueError, match=told):
        Cohorts(**wrong)


def fleet(clients: int, share: float, rounds: int, budget: float) -> Problem:
    """Ten slots a client; the budget is for each client that a round reaches."""
    return Problem(
        buffer_capacities=np.full(clients, 10),
        budget=budget * share * clients,
        mean_price=5.5,
        num_rounds=rounds,
        cohorts=Cohorts(fraction_train=share),
    )


@pytest.mark.parametrize("share", [1.0, 0.1, 0.02])
def test_a_plan_is_for_the_slots_that_a_round_reaches(share: float) -> None:
    """K and what is stored are what they would be without cohorts, a client's rounds later."""
    problem = fleet(5000, share, 1000, budget=5.5)
    policy = constant_admission(problem)
    run = simulate(policy, problem, UniformPrice(1, 10), 0)
    assert policy.retention.for_client(0, 5000) == ("k_step", 10)
    reached = 5000 * share * 10
    assert run.columns["ordered"][0] == pytest.approx(reached / 10)
    filled = run.columns["training_size"][int(30 / share) :]
    if len(filled):
        assert filled == pytest.approx(np.full(len(filled), reached), rel=0.01)
    planned = constant_admission_sizes(reached / 10, 10, 1000, share)
    assert run.columns["training_size"].mean() == pytest.approx(
        planned.training_size.mean(), rel=0.05
    )
    assert run.columns["effective_samples"][-1] == pytest.approx(
        planned.effective_samples[-1], rel=0.05
    )


@pytest.mark.long
@pytest.mark.parametrize("share", [0.1, 0.02])
def test_tide_comes_near_the_limit_with_cohorts(share: float) -> None:
    problem = fleet(5000, share, 1000, budget=5.5)
    run = simulate(tide(problem), problem, UniformPrice(1, 10), 0)
    limit = optimum(UniformDistribution(1, 10), problem.budget, problem.slots_a_round)
    gained = run.columns["effective_samples"][-1] / 1000
    assert gained > 0.92 * limit.effective_per_round
    assert run.columns["spent"].mean() <= problem.budget
    assert run.columns["overflow"].max() == 0


weights = st.lists(st.integers(0, 9), min_size=2, max_size=12).filter(any)


@settings(max_examples=at_size(40, 200), deadline=None)
@given(weights=weights, data=st.data())
def test_what_a_cohort_is_owed_is_handed_out_whole(weights: list[int], data: st.DataObject) -> None:
    shares = np.array(weights) / sum(weights)
    allocation, owed, handed_out = Allocation.start(shares), 0.0, 0
    cohort = st.sets(st.integers(0, len(weights) - 1), min_size=1).map(sorted)
    for _ in range(data.draw(st.integers(1, 25))):
        who, total = np.array(data.draw(cohort)), data.draw(st.floats(0, 30))
        if len(who) == len(weights):
            samples, allocation = allocation.allocate(total)
        else:
            samples, allocation = allocation.allocate(total, who=who)
        assert samples.min() >= 0
        assert not samples[shares[who] == 0].any()
        owed += total if shares[who].any() else 0.0  # nobody's order is nobody's debt
        handed_out += int(samples.sum())
        assert abs(handed_out - owed) < 1 + 1e-6
        assert allocation.ordered.sum() == handed_out
        assert allocation.unserved.sum() == pytest.approx(owed - handed_out, abs=1e-6)


def test_a_limit_is_reached_whatever_was_lost_by_rounding() -> None:
    allocation = Allocation.start(np.array([0.5, 0.5]))
    _, allocation = allocation.allocate(3.0, np.array([0, 3]), who=np.array([0, 1]))
    _, allocation = allocation.allocate(29.999999999999996, np.array([0]), who=np.array([0]))
    assert allocation.unserved.sum() < 0  # by a hair
    samples, _ = allocation.allocate(2.5, np.array([0, 1]), most=1, who=np.array([0, 1]))
    assert samples.tolist() == [0, 1]


@settings(max_examples=at_size(40, 200), deadline=None)
@given(weights=weights, data=st.data())
def test_a_cohort_stores_no_more_than_it_has_room_for(
    weights: list[int], data: st.DataObject
) -> None:
    shares = np.array(weights) / sum(weights)
    allocation = Allocation.start(shares)
    cohort = st.sets(st.integers(0, len(weights) - 1), min_size=1).map(sorted)
    for _ in range(data.draw(st.integers(1, 15))):
        who, total = np.array(data.draw(cohort)), data.draw(st.floats(0, 30))
        room = np.array([data.draw(st.integers(0, 9)) for _ in who])
        most = data.draw(st.none() | st.integers(0, 20))
        due = allocation.unserved.sum() + total
        samples, allocation = allocation.allocate(total, room, most, who)
        assert np.all((samples >= 0) & (samples <= room))
        free = int(room[shares[who] > 0].sum())
        wanted = free if most is None else min(free, most)
        if math.floor(due + 1e-6) == math.floor(due - 1e-6):
            assert int(samples.sum()) == min(math.floor(due), wanted) or not shares[who].any()
        assert -1e-6 < allocation.unserved.sum() < 1 + 1e-6


def test_a_round_that_reaches_nobody_costs_nothing() -> None:
    problem = fleet(4, 0.5, 10, budget=5.0)
    nobody = np.zeros(0, dtype=np.int64)
    for make in (constant_admission, tide, hybrid):
        policy: JointPolicy[Any] = make(problem)
        state = begin(policy, problem)
        state, row = play_round(policy, problem, state, np.array([1.0, 2.0, 3.0, 4.0]), nobody)
        assert (row.clients, row.admitted, row.spent) == (0, 0, 0.0)
        assert row.price == pytest.approx(policy.shares @ np.array([1.0, 2.0, 3.0, 4.0]))
        state, row = play_round(policy, problem, state, 2.0, np.array([1]))
        assert row.clients == 1


def test_a_cohort_without_an_active_client_gives_up_its_samples() -> None:
    problem = fleet(4, 0.5, 10, budget=5.0)
    policy = hybrid(problem)
    state, row = play_round(policy, problem, begin(policy, problem), 2.0, np.array([2, 3]))
    assert (row.admitted, row.spent) == (20, 0.0)  # what they held before
    assert state.allocation.ordered.sum() == 0


def test_prices_of_a_cohort_are_weighed_by_its_own_shares() -> None:
    problem = Problem(
        buffer_capacities=[10, 30, 60], budget=9.0, mean_price=2.0, num_rounds=4,
        cohorts=Cohorts(fraction_train=0.67),
    )  # fmt: skip
    policy = constant_admission(problem, ControlOptions(hard_capacity=True))
    prices = np.array([100.0, 2.0, 5.0])
    _, row = play_round(policy, problem, begin(policy, problem), prices, np.array([1, 2]))
    assert row.price == pytest.approx((30 * 2.0 + 60 * 5.0) / 90)
    assert Quote.of(prices, np.zeros(3)).price == pytest.approx(prices.mean())
