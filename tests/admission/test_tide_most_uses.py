"""Tide with a cap on uses, counted sample by sample; and what it says where it cannot be kept."""

from functools import partial

import numpy as np
import pytest
from check_size import at_size

from tidegate._internal.randomness import COHORTS, PRICES, generator
from tidegate.admission.rule import Quote, RoundTotals
from tidegate.admission.tide import DEAR_REPLACEMENT, Tide, TideState
from tidegate.cohorts import Cohorts
from tidegate.policies import ControlOptions, NotApplicable
from tidegate.policies.presets import EXPERIMENTS, make_policy
from tidegate.policies.tide import tide
from tidegate.prices import MarkovPrice, PriceLaw, UniformPrice
from tidegate.problem import Problem
from tidegate.simulation.rounds import begin, play_round
from tidegate.testing.counting import Count, leaving_rule
from tidegate.theory.distribution import UniformDistribution
from tidegate.theory.optimum import optimum

pytestmark = pytest.mark.no_cover  # long loops, covered elsewhere

SEEDS = at_size(2, 10)
SPELLS = MarkovPrice(2, 9, 0.95, 0.95)
ROUNDS = 1000


def counted(
    problem: Problem, law: PriceLaw, cap: int, seed: int, *, strict: bool = False
) -> tuple[float, float, float, int]:
    """Effective samples and money a round, samples stored, and the most uses of any sample.

    Uses are those of ``Count``, which follows single samples by the rule for leaving; the number
    of fresh samples is all that it is told.
    """
    policy = tide(problem, ControlOptions(most_uses=cap, spend_ahead=0.0 if strict else None))
    count = Count(problem, policy.retention, leaving_rule(policy.retention, problem.num_clients))
    state, most = begin(policy, problem), 0
    before = state.admitted
    prices = law.rounds(generator(seed, PRICES), None)
    members = problem.cohorts.rounds(generator(seed, COHORTS), problem.num_clients)
    spent = stored = 0.0
    everyone = np.arange(problem.num_clients)
    for _, price, who in zip(range(problem.num_rounds), prices, members, strict=False):
        state, row = play_round(policy, problem, state, price, who)
        fresh = state.admitted - before
        for client in everyone[who].tolist():
            count.play(client, int(fresh[client]))
            most = max(most, *count.stored[client], 0)
        before, spent, stored = state.admitted, spent + row.spent, stored + row.training_size
        assert sum(len(count.stored[client]) for client in everyone[who]) == row.training_size
    rounds = problem.num_rounds
    return row.effective_samples / rounds, spent / rounds, stored / rounds, most


@pytest.mark.long
@pytest.mark.share(60)  # a hundred samples a round, counted one by one
def test_ten_uses_keep_99_percent_of_the_limit_within_the_budget() -> None:
    """10 seeds x 1,000 rounds x 100 slots are a million uses, at full size."""
    paper = EXPERIMENTS["mnist"]
    problem = paper.problem(ROUNDS)
    free = optimum(UniformDistribution(1, 10), 55.0, 100).effective_per_round
    runs = [counted(problem, paper.price, 10, seed) for seed in range(SEEDS)]
    gained, spent, stored, most = (np.array(column) for column in zip(*runs, strict=True))
    assert gained.mean() >= (0.99 if SEEDS == 10 else 0.95) * free
    assert spent.max() <= 55
    assert stored.min() >= 99
    assert most.max() == 10


@pytest.mark.parametrize(
    ("cap", "law"), [(1, UniformPrice(1, 10)), (3, SPELLS), (5, UniformPrice(1, 10)), (5, SPELLS)]
)
@pytest.mark.parametrize(
    "cohorts", [Cohorts(), Cohorts(fraction_train=0.4, least_available=0.5)], ids=["all", "some"]
)
def test_no_sample_is_used_more_often_and_no_more_is_spent(
    cap: int, law: PriceLaw, cohorts: Cohorts
) -> None:
    problem = Problem(
        buffer_capacities=[3, 8, 12, 7],
        budget=15.0,
        mean_price=5.5,
        num_rounds=at_size(100, 1000),
        cohorts=cohorts,
    )
    for strict in (False, True):
        _, spent, stored, most = counted(problem, law, cap, 1, strict=strict)
        assert most == cap
        assert 0.8 * 15 <= spent <= 15 * (1 + 1e-9)
        assert stored > 1


def test_a_short_budget_stores_as_much_as_it_can() -> None:
    paper = EXPERIMENTS["mnist"]
    for cap in (2, 5):
        best = optimum(UniformDistribution(1, 10), 55.0, 100, cap)
        gained, spent, stored, _ = counted(paper.problem(300), paper.price, cap, 0)
        assert spent <= 55
        assert stored == pytest.approx(best.stored_per_round, rel=0.1)
        assert gained == pytest.approx(best.effective_per_round, rel=0.1)


def filled(rule: Tide, empty: int, price: float) -> float:
    """The price up to which empty slots are filled, after many rounds at prices 1 to 10."""
    state = rule.start()
    for number in range(50):
        state = rule.learn(state, Quote(1.0 + number % 10))
        state = settled(rule, state)
    quote = Quote(price, empty_slots=empty)
    return rule.decide(rule.learn(state, quote), quote, np.inf).thresholds[0]


def settled(rule: Tide, state: TideState) -> TideState:
    return rule.settle(
        state,
        RoundTotals(admitted=20, spent=55.0, training_size=100, prior_uses=0, carried=0),
    )


def test_slots_that_the_cap_emptied_are_filled_at_any_price_unless_they_are_many() -> None:
    rule = partial(Tide, budget=55.0, num_rounds=None, total_capacity=100)
    few = int(DEAR_REPLACEMENT * 55 / 10)
    assert filled(rule(most_uses=12), few, 10.0) == 10.0
    assert 5 < filled(rule(most_uses=12), few + 1, 10.0) < 6  # the average price
    assert 5 < filled(rule(), few, 10.0) < 6
    # Where money is short, an empty slot waits for a price of its own.
    assert 2 < filled(rule(most_uses=2), 50, 10.0) < 5


@pytest.mark.parametrize("name", ["acdpp", "hybrid", "constant_admission", "drift_plus_penalty"])
def test_a_policy_that_keeps_samples_longer_is_refused(name: str) -> None:
    problem = EXPERIMENTS["mnist"].problem(100)
    with pytest.raises(NotApplicable, match=r"up to \d+ rounds, but most_uses is 4; set reten"):
        make_policy(name, problem, ControlOptions(most_uses=4))
    if name != "hybrid":
        policy = make_policy(name, problem, ControlOptions(most_uses=4, retention_horizon=4))
        assert policy.most_uses(100) == 4


def test_what_is_no_cap_is_refused() -> None:
    with pytest.raises(ValueError, match="most_uses must be a whole number of at least 1, got 0"):
        ControlOptions(most_uses=0)
