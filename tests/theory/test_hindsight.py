"""The bound in hindsight: never below what can be done, and not far above."""

import itertools

import numpy as np
import pytest
from check_size import at_size
from hypothesis import given, settings
from hypothesis import strategies as st

from tidegate._internal.randomness import PRICES, generator
from tidegate.policies import POLICIES, ControlOptions
from tidegate.policies.presets import EXPERIMENTS, make_policy
from tidegate.prices import UniformPrice
from tidegate.simulation.rounds import simulate
from tidegate.theory.distribution import UniformDistribution
from tidegate.theory.hindsight import hindsight_bound
from tidegate.theory.optimum import optimum


def slot_schedules(path: list[float], may_be_empty: bool) -> set[tuple[int, int, float]]:
    """(ΣA, ΣA², money) of everything that one slot can do."""
    found = set()

    def go(now: int, age: int, uses: int, squares: int, spent: float) -> None:
        if now == len(path):
            found.add((uses, squares, spent))
            return
        if may_be_empty or not uses:
            go(now + 1, 0, uses, squares, spent)
        go(now + 1, 1, uses + 1, squares + 1, spent + path[now])
        if age:
            go(now + 1, age + 1, uses + 1, squares + 2 * age + 1, spent)

    go(0, 0, 0, 0, 0.0)
    return found


def best_of_all(path: list[float], budget: float, slots: int, may_be_empty: bool) -> float:
    """Effective samples a round of the best schedule, by trying all."""
    best = 0.0
    schedules = slot_schedules(path, may_be_empty)
    for chosen in itertools.combinations_with_replacement(schedules, slots):
        uses, squares, spent = (sum(column) for column in zip(*chosen, strict=True))
        if squares and spent <= budget * len(path) + 1e-9:
            best = max(best, uses**2 / squares)
    return best / len(path)


@settings(max_examples=at_size(8, 40), deadline=None)
@given(
    path=st.lists(st.sampled_from([0.0, 1.0, 2.5, 4.0, 9.0]), min_size=1, max_size=5),
    slots=st.integers(1, 2),
    budget=st.floats(0.2, 9),
    may_be_empty=st.booleans(),
)
def test_no_schedule_exceeds_the_bound(
    path: list[float], slots: int, budget: float, may_be_empty: bool
) -> None:
    bound = hindsight_bound(path, budget, slots, may_be_empty=may_be_empty)
    best = best_of_all(path, budget, slots, may_be_empty)
    assert bound.effective_per_round >= best - 1e-9
    assert bound.effective_per_round <= slots * 1.005 + 1e-9
    assert -1e-9 <= bound.certified_to <= 0.005


def test_with_many_slots_and_one_price_the_bound_is_nearly_reached() -> None:
    # 4 samples a round are paid for; each used in exactly 2 rounds, all count in full, and slots
    # that are empty half of the time do no harm: 4 effective samples a round, and no more.
    bound = hindsight_bound([1.0] * 60, budget=4.0, total_capacity=10, may_be_empty=True)
    assert 4.0 <= bound.effective_per_round <= 4.0 * 1.005 + 1e-9


@pytest.mark.no_cover
@pytest.mark.long
def test_long_lives_are_found_where_slots_stay_full() -> None:
    # A free sample in round 1 and none that can be paid for after it: one life of 50 rounds.
    path = [0.0] + [100.0] * 49
    bound = hindsight_bound(path, budget=1e-9, total_capacity=2).effective_per_round
    assert 2 / 50 <= bound <= 2 / 50 * 1.006
    free = hindsight_bound(path, budget=1e-9, total_capacity=2, may_be_empty=True)
    assert free.effective_per_round == pytest.approx(bound, rel=0.02)


def path_of(seed: int, rounds: int) -> list[float]:
    law = UniformPrice(1, 10).rounds(generator(seed, PRICES))
    return [float(price) for price in itertools.islice(law, rounds)]


@pytest.mark.parametrize("name", [name for name in POLICIES if name != "costless_oracle"])
def test_no_policy_exceeds_it_for_the_money_that_it_spent(name: str) -> None:
    rounds, experiment = at_size(60, 120), EXPERIMENTS["mnist"]
    problem = experiment.problem(rounds)
    policy = make_policy(name, problem, ControlOptions(hard_capacity=True))
    run = simulate(policy, problem, experiment.price, seed=3)
    spent = float(run.columns["spent"].mean())
    if name == "hybrid":
        spent += 50 * float(run.columns["price"][0]) / rounds  # the stale samples, which are free
    gained = run.columns["effective_samples"][-1] / rounds
    bound = hindsight_bound(path_of(3, rounds), spent, 100, may_be_empty=True)
    assert gained <= bound.effective_per_round
    if name == "tide":
        full = hindsight_bound(path_of(3, rounds), spent, 100)
        assert 0.8 * full.effective_per_round <= gained <= full.effective_per_round


def test_who_knows_the_future_gains_more_than_the_best_rule_that_does_not() -> None:
    rounds = at_size(150, 300)
    bound = hindsight_bound(path_of(0, rounds), 55.0, 100, precision=0.02).effective_per_round
    limit = optimum(UniformDistribution(1, 10), 55.0, 100).effective_per_round
    assert limit < bound < 1.2 * limit
    empty = hindsight_bound(path_of(0, rounds), 55.0, 100, may_be_empty=True, precision=0.02)
    assert bound < empty.effective_per_round < 2 * limit


def test_where_money_does_not_bind_every_sample_is_fresh() -> None:
    bound = hindsight_bound([1.0, 5.0, 2.0], 900.0, 100).effective_per_round
    assert bound == pytest.approx(100, rel=0.005)


@pytest.mark.parametrize("path", [[], [-1.0], [float("nan")], [[1.0]]])
def test_prices_that_are_none_are_refused(path: list[float]) -> None:
    with pytest.raises(ValueError, match="prices must be one or more numbers of 0 or more"):
        hindsight_bound(path, 5.0, 10)


@pytest.mark.parametrize(("budget", "capacity"), [(0.0, 10), (np.inf, 10), (5.0, 0)])
def test_a_budget_or_capacity_that_is_none_is_refused(budget: float, capacity: int) -> None:
    with pytest.raises(ValueError, match="need a positive budget and capacity"):
        hindsight_bound([1.0], budget, capacity)


def test_the_figures_of_the_theory_page() -> None:
    """The paper's MNIST setting: 100 slots, budget 55, prices uniform from 1 to 10, 300 rounds."""
    path = UniformPrice(1, 10).rounds(generator(0, PRICES))
    prices = [float(price) for price in itertools.islice(path, 300)]
    for may_be_empty, figure in ((False, 21.2), (True, 26.1)):
        bound = hindsight_bound(prices, 55.0, 100, may_be_empty=may_be_empty)
        assert round(bound.effective_per_round, 1) == figure
