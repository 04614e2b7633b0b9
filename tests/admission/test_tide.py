"""Tide's decisions, one by one."""

import dataclasses
import itertools
import math

import numpy as np
import pytest
from check_size import at_size

from tidegate._internal.arrays import FloatArray
from tidegate.admission.price_memory import SIZE
from tidegate.admission.rule import FleetOrder, Quote, RoundTotals
from tidegate.admission.thresholds import LONGEST_LIFE
from tidegate.admission.tide import RECENT, Tide, TideState
from tidegate.policies import ControlOptions
from tidegate.policies.tide import tide
from tidegate.prices import ConstantPrice, MarkovPrice, PriceLaw, RecordedPrices, UniformPrice
from tidegate.problem import Problem
from tidegate.retention.oldest_first import OldestFirstBuffers
from tidegate.simulation.rounds import begin, play_round, simulate

pytestmark = pytest.mark.no_cover  # long loops, covered elsewhere

LONG = at_size(1500, 4000)
NOTHING = RoundTotals(admitted=0, spent=0.0, training_size=0, prior_uses=0, carried=0)


def rule(num_rounds: int | None = 100, price_groups: int = 4) -> Tide:
    return Tide(
        budget=55.0,
        num_rounds=num_rounds,
        total_capacity=100,
        price_groups=price_groups,
    )


def after(prices: list[float], totals: RoundTotals = NOTHING) -> TideState:
    """The state in the round of the last price, the rounds before it having done nothing."""
    one = rule()
    state = one.start()
    for price in prices[:-1]:
        state = one.settle(one.learn(state, Quote(price)), totals)
    return one.learn(state, Quote(prices[-1]))


def order(prices: list[float]) -> FleetOrder:
    return rule().decide(after(prices), Quote(prices[-1]), limit=100.0)


def test_the_first_round_spends_what_the_budget_has_paid_for() -> None:
    """Whether a price is low cannot be known yet; training should begin all the same."""
    for price in (1.0, 5.0, 9.0):
        first = order([price])
        assert Quote(price).affordable(first.money) == math.floor(55.0 / price)
        assert first.thresholds == (price, 0.0)


def test_a_cheap_price_fills_every_slot_at_once() -> None:
    cheap = order([8.0, 6.0, 9.0, 7.0, 9.0, 1.0])
    assert math.isinf(cheap.total_admission)
    assert cheap.thresholds[0] >= 1.0


def test_a_dear_price_fills_none_and_replaces_none() -> None:
    dear = order([8.0, 1.5, 2.0, 9.0])
    assert max(dear.thresholds[:4]) < 9.0


def test_a_first_fill_is_bought_up_to_the_average_price_unless_it_is_too_dear() -> None:
    prices = [8.0, 1.5, 2.0, 9.0, 5.0]
    assert order(prices).thresholds[0] == pytest.approx(np.mean(prices))
    assert math.isinf(order(prices).total_admission)
    # 2,000 slots at 5.1 are 185 rounds' money: a price below θ(0) alone fills them at once.
    large = dataclasses.replace(rule(), total_capacity=2000)
    state = large.start()
    for price in prices[:-1]:
        state = large.settle(large.learn(state, Quote(price)), NOTHING)
    state = large.learn(state, Quote(5.0))
    waits = large.decide(state, Quote(5.0), limit=2000.0)
    assert waits.thresholds == (5.0, 0.0)
    assert waits.money == 5 * 55.0  # what the budget has paid for
    dear = large.decide(state, Quote(9.0), limit=2000.0)
    assert dear.thresholds == (0.0, 0.0)


def test_a_full_fleet_is_told_a_rule_and_no_number() -> None:
    full = dataclasses.replace(after([8.0, 1.5, 2.0, 9.0]), admitted=100)
    told = rule().decide(full, Quote(9.0), limit=100.0)
    assert math.isinf(told.total_admission)
    ages = told.thresholds[1:]
    assert all(first <= second for first, second in itertools.pairwise(ages))
    # Who lost its samples, or came later, need not wait for the lowest prices.
    assert told.thresholds[0] >= np.mean([8.0, 1.5, 2.0, 9.0])


def test_the_last_money_is_a_limit() -> None:
    nearly_all = dataclasses.replace(after([4.0, 5.0]), admitted=100, spent=5500.0 - 21.0)
    assert Quote(5.0).affordable(rule().decide(nearly_all, Quote(5.0), math.inf).money) == 4
    own = Quote.of(np.array([2.0, 8.0]), np.full(2, 0.5))
    assert rule().decide(nearly_all, own, math.inf).money == pytest.approx(21.0)
    gone = dataclasses.replace(nearly_all, spent=5600.0)
    assert rule().decide(gone, Quote(5.0), math.inf).money <= 0
    endless = rule(num_rounds=None).decide(gone, Quote(5.0), math.inf)
    assert math.isinf(endless.total_admission)


def test_who_has_saved_spends_more_and_who_is_ahead_less() -> None:
    state = dataclasses.replace(after([2.0, 9.0] * 10), admitted=100)
    behind = rule().decide(state, Quote(9.0), math.inf).thresholds
    ahead = rule().decide(dataclasses.replace(state, spent=4000.0), Quote(9.0), math.inf).thresholds
    assert np.all(np.array(behind[1:5]) >= np.array(ahead[1:5]))


def mnist(rounds: int, capacities: tuple[int, ...] = (10,) * 10) -> Problem:
    return Problem(buffer_capacities=capacities, budget=55.0, mean_price=5.5, num_rounds=rounds)


@pytest.mark.long
def test_what_is_kept_does_not_grow_with_the_rounds() -> None:
    problem = mnist(3 * RECENT)
    run = simulate(tide(problem), problem, UniformPrice(1, 10), 1)
    state = run.final.server
    assert len(state.prices.values) == SIZE
    assert len(state.recent) == RECENT
    assert sum(map(len, state.solved.by_group)) < LONGEST_LIFE


def test_the_last_prices_are_kept_in_order() -> None:
    one, state = rule(num_rounds=None), rule().start()
    prices = np.random.default_rng(0).uniform(1, 9, RECENT + 300)
    for number, price in enumerate(prices.tolist(), start=1):
        state = one.learn(state, Quote(price))
        if number in (1, 5, RECENT - 1, RECENT, RECENT + 1, RECENT + 300):
            kept = state.in_order
            assert np.array_equal(kept, prices[max(0, number - RECENT) : number])
        state = one.settle(state, NOTHING)


@pytest.mark.parametrize("law", [UniformPrice(1, 10), MarkovPrice(2, 9, 0.95, 0.95)])
@pytest.mark.parametrize("seed", range(at_size(1, 3)))
def test_the_money_of_the_run_is_spent_and_never_more(law: PriceLaw, seed: int) -> None:
    problem = mnist(300)
    spent = simulate(tide(problem), problem, law, seed).columns["spent"].sum()
    assert 0.97 * 55 * 300 <= spent <= 55 * 300 + 1e-6


@pytest.mark.long
def test_without_an_end_spending_stays_near_the_budget() -> None:
    problem = mnist(LONG)
    policy = tide(problem, ControlOptions(endless=True))
    run = simulate(policy, problem, UniformPrice(1, 10), 2)
    overspend = run.columns["overspend"]
    assert np.abs(overspend).max() < 40 * 55.0
    assert run.columns["effective_samples"][-1] / LONG > 0.97 * 18.64
    # The number of rounds plays no part at all.
    shorter = simulate(
        tide(mnist(500), ControlOptions(endless=True)), mnist(500), UniformPrice(1, 10), 2
    )
    assert np.array_equal(shorter.columns["spent"], run.columns["spent"][:500])


def test_where_money_does_not_bind_every_price_is_paid_but_a_spike() -> None:
    problem = Problem(buffer_capacities=[10] * 10, budget=700.0, mean_price=5.5, num_rounds=200)
    prices = np.random.default_rng(0).uniform(1, 10, 200)
    run = simulate(tide(problem), problem, RecordedPrices(prices), 0)
    assert np.all(run.columns["admitted"][1:] == 100)
    prices[150] = 1e4
    shocked = simulate(tide(problem), problem, RecordedPrices(prices), 0)
    assert shocked.columns["admitted"][150] == 0
    assert np.all(shocked.columns["admitted"][160:] == 100)


def test_constant_prices_cost_nothing_against_constant_admission() -> None:
    problem = mnist(1000)
    run = simulate(tide(problem), problem, ConstantPrice(5.5), 0)
    assert run.columns["effective_samples"][-1] / 1000 > 9.8
    assert run.columns["training_size"][9] == 100
    assert run.columns["spent"].sum() <= 55_000 + 1e-6


@pytest.mark.parametrize(
    ("price", "budget", "rounds"), [(0.08, 4.0, 100), (0.1, 5.0, 100), (5.5, 55.0, 700)]
)
def test_a_constant_price_is_paid_evenly(price: float, budget: float, rounds: int) -> None:
    """Labels cost the same each day, and people who give them want as many each day."""
    slots = (100,) * 20 if rounds == 100 else (10,) * 10
    problem = dataclasses.replace(mnist(rounds, slots), budget=budget)
    policy = tide(problem, ControlOptions(spend_ahead=0.0))
    bought = simulate(policy, problem, ConstantPrice(price), 0).columns["admitted"]
    assert set(bought.tolist()) == {round(budget / price)}


def test_prices_that_are_free_now_and_then_are_taken() -> None:
    problem = mnist(120)
    run = simulate(tide(problem), problem, RecordedPrices([0.0, 30.0, 6.0] * 40), 0)
    assert np.all(run.columns["admitted"][::3] == 100)
    assert run.columns["spent"].sum() <= 55 * 120 + 1e-6


def test_each_client_applies_the_rule_to_its_own_price() -> None:
    """With a price a client, every slot has its own luck, and the limit is the same."""
    problem = mnist(1000)
    policy = tide(problem)
    run = simulate(policy, problem, UniformPrice(1, 10), 0, price_per_client=True)
    gained = run.columns["effective_samples"][-1] / 1000
    assert 0.95 * 18.64 < gained < 1.03 * 18.64
    assert run.columns["spent"].mean() <= 55.0 + 1e-9
    assert run.columns["training_size"].max() == 100
    state = begin(policy, problem)
    draw = np.random.default_rng(3)
    for _ in range(40):
        prices: FloatArray = draw.uniform(1, 10, 10)
        before, (state, _) = state.copy(), play_round(policy, problem, state, prices)
    order = policy.admission.decide(
        policy.admission.learn(before.server, Quote.of(prices, policy.shares)),
        Quote.of(prices, policy.shares),
        math.inf,
    )
    assert isinstance(before.planned, OldestFirstBuffers)
    assert isinstance(state.planned, OldestFirstBuffers)
    ages = 40 - 1 - before.planned.born[0]
    taken = state.planned.admitted - before.planned.admitted
    for client, price in enumerate(prices.tolist()):
        cheap = [price <= threshold for threshold in order.thresholds]
        wanted = sum(cheap[min(age, len(cheap) - 1)] for age in ages[:, client].tolist())
        assert taken[client] == wanted


def test_a_million_own_prices_are_looked_at_in_part() -> None:
    one, shares = rule(), np.full(1_000_000, 1e-6)
    prices = np.random.default_rng(0).uniform(1, 10, 1_000_000)
    state = one.learn(one.start(), Quote.of(prices, shares))
    assert state.prices.mean == pytest.approx(5.5, abs=0.3)
    assert state.prices.weights.sum() == pytest.approx(1.0)


SEASONS = at_size(400, 800)


@pytest.mark.long
def test_seasons_are_learned() -> None:
    day = 5.5 * (1 + 0.9 * np.sin(2 * np.pi * np.arange(SEASONS) / 24))
    law = RecordedPrices(day * np.exp(0.1 * np.random.default_rng(0).normal(size=SEASONS)))
    problem = mnist(SEASONS)
    gains = [
        simulate(tide(problem, price_groups=groups), problem, law, 0).columns["effective_samples"]
        for groups in (1, 4)
    ]
    assert gains[1][-1] > 1.05 * gains[0][-1]


def spending(budget: float, prices: FloatArray, options: ControlOptions) -> FloatArray:
    """Money spent in all, by rounds, in budgets."""
    law, rounds = RecordedPrices(prices), len(prices)
    problem = Problem(
        buffer_capacities=[10] * 10, budget=budget, mean_price=law.mean(rounds), num_rounds=rounds
    )
    run = simulate(tide(problem, options), problem, law, 0)
    total: FloatArray = np.cumsum(run.columns["spent"]) / budget
    return total


@pytest.mark.parametrize("budget", [0.02, 0.2])
def test_a_budget_that_no_rule_is_cheap_enough_for_is_spent_as_it_comes_in(budget: float) -> None:
    rounds = at_size(150, 300)
    prices = np.random.default_rng(0).uniform(1, 10, rounds)
    spent = spending(budget, prices, ControlOptions(endless=True))
    # 100 slots whose samples stay 1,000 rounds cost more than 0.1 of the lowest price a round.
    assert np.all(spent <= np.arange(1, rounds + 1) + 1e-9)
    assert spent[-1] > 0.9 * rounds - 10 / budget  # a sample, or a few, is saved for


@pytest.mark.long
def test_what_was_bought_ahead_is_made_good_in_bounded_time() -> None:
    prices = np.random.default_rng(0).uniform(1, 10, 500)
    spent = spending(5.0, prices, ControlOptions())
    ahead = spent - np.arange(1, 501)
    peak = int(np.argmax(ahead))
    assert 20 < ahead[peak] < 60  # the first fill
    assert np.min(ahead[peak : peak + 300]) < 0.3 * ahead[peak]


@pytest.mark.long
@pytest.mark.parametrize("endless", [False, True])
@pytest.mark.parametrize("at", [0, 20, 200])
def test_one_price_out_of_all_bounds_is_not_paid_and_soon_forgiven(at: int, endless: bool) -> None:
    prices = np.random.default_rng(0).uniform(1, 10, 300)
    prices[at] = 1e7
    spent = spending(55.0, prices, ControlOptions(endless=endless))
    assert np.diff(spent, prepend=0.0)[at] == 0
    assert spent[-1] == pytest.approx(300, rel=0.05)
    assert np.all(np.abs(spent - np.arange(1, 301)) < 60)


@pytest.mark.long
@pytest.mark.parametrize("options", [ControlOptions(), ControlOptions(spend_ahead=0.0)])
def test_one_client_with_a_price_out_of_all_bounds_starves_nobody(options: ControlOptions) -> None:
    prices = np.random.default_rng(0).uniform(1, 10, (200, 10))
    prices[:, 9] = 1e6
    law = RecordedPrices(prices)
    problem = mnist(200)
    run = simulate(tide(problem, options), problem, law, 0, price_per_client=True)
    assert run.final.planned.occupancy.tolist() == [10] * 9 + [0]
    assert run.columns["spent"].sum() == pytest.approx(55 * 200, rel=0.02)


def test_the_shares_weigh_each_clients_own_price() -> None:
    one = rule()
    state = one.learn(one.start(), Quote.of(np.array([2.0, 12.0]), np.array([0.9, 0.1])))
    assert state.prices.mean == pytest.approx(3.0)


def test_who_has_its_own_price_fills_at_once_below_the_average() -> None:
    one = rule()
    quote = Quote.of(np.arange(1.0, 11.0), np.full(10, 0.1))
    first = one.decide(one.learn(one.start(), quote), quote, limit=100.0)
    assert math.isinf(first.total_admission)
    assert first.thresholds[0] >= 5.5


def test_own_prices_are_not_taken_for_a_chain() -> None:
    one, state = rule(num_rounds=400), rule().start()
    for number in range(300):  # long spells, which a chain of one price would find
        level = 2.0 if number // 20 % 2 else 8.0
        state = one.learn(state, Quote.of(level + np.arange(10) / 10, np.full(10, 0.1)))
        state = one.settle(state, dataclasses.replace(NOTHING, spent=55.0))
    assert state.solved.edges == ()


@pytest.mark.parametrize("part", [0.2, 0.5])
def test_money_is_spent_on_the_slots_that_take_part(part: float) -> None:
    """A rule for all slots would spend their part of the budget only."""
    one = rule(num_rounds=None)
    full = dataclasses.replace(NOTHING, admitted=100, slots=100, spent=55.0)
    some = one.settle(after([2.0, 9.0] * 20, full), full)
    assert some.taking_part == 1.0
    for _ in range(200):
        few = dataclasses.replace(NOTHING, slots=int(100 * part), spent=55.0)
        some = one.settle(one.learn(some, Quote(5.0)), few)
    assert some.taking_part == pytest.approx(part, rel=1e-3)
    assert some.solved.allowance == pytest.approx(55.0 / (100 * part), rel=0.1)
    silent = one.settle(some, NOTHING)  # who takes part is not known
    assert silent.taking_part == some.taking_part


def test_a_price_next_to_nothing_affords_any_number() -> None:
    assert math.isinf(Quote(5e-324).affordable(55.0))


def test_who_is_far_ahead_of_the_budget_goes_on_with_a_little() -> None:
    state = dataclasses.replace(after([2.0, 9.0] * 10), admitted=100, spent=5000.0)
    solved = rule().learn(state, Quote(9.0)).solved
    assert solved.allowance == pytest.approx(0.2 * 55 / 100)


def test_prices_of_its_own_teach_as_much_as_prices_one_after_the_other() -> None:
    one, each = rule(price_groups=1), Quote.of(np.array([1.0, 9.0]), np.ones(2))
    own = in_turn = one.start()
    for number in range(60):
        own = one.settle(one.learn(own, each), NOTHING)
        in_turn = one.settle(one.learn(in_turn, Quote((1.0, 9.0)[number % 2])), NOTHING)
    assert one.worth(own) == pytest.approx(one.worth(in_turn), rel=0.05)
