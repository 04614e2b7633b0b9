"""The limit: against brute force, against long simulations, and its own certificate."""

import itertools
import time

import numpy as np
import pytest
from check_size import at_size
from hypothesis import given, settings
from hypothesis import strategies as st

from tidegate._internal.arrays import FloatArray
from tidegate.prices import ConstantPrice, MarkovPrice, RecordedPrices, UniformPrice
from tidegate.theory.distribution import (
    PriceDistribution,
    PriceSample,
    UniformDistribution,
    price_distribution,
)
from tidegate.theory.filling import filling_threshold
from tidegate.theory.optimum import optimum, plan_slots
from tidegate.theory.slot_rule import bellman_residual, best_rule

OLDEST = 6
"""Brute force lets no sample live longer."""


def threshold_rules(values: list[float]) -> list[tuple[float, ...]]:
    """Every rule that replaces at age a below some price; at the last age always."""
    levels = [-1.0, *values]
    rules = itertools.product(levels, repeat=OLDEST - 1)
    return [(*rule, max(values)) for rule in rules]


def outcome(
    rule: tuple[float, ...], values: list[float], weights: list[float]
) -> tuple[float, ...]:
    """Growth of ΣA² and money a round, from the stationary law of ages, by linear algebra."""
    moves = np.zeros((OLDEST, OLDEST))
    growth, spent = np.zeros(OLDEST), np.zeros(OLDEST)
    for age in range(1, OLDEST + 1):
        for value, weight in zip(values, weights, strict=True):
            if value <= rule[age - 1]:
                moves[age - 1, 0] += weight
                growth[age - 1] += weight
                spent[age - 1] += weight * value
            else:
                moves[age - 1, age] += weight
                growth[age - 1] += weight * (2 * age + 1)
    equations = np.vstack([moves.T - np.eye(OLDEST), np.ones(OLDEST)])
    stationary = np.linalg.lstsq(equations, np.array([0.0] * OLDEST + [1.0]), rcond=None)[0]
    return float(stationary @ growth), float(stationary @ spent)


def best_mixture(points: FloatArray, allowed: float) -> float:
    """The least growth that a mixture of two rules can have for this money."""
    cheap, dear = points[points[:, 1] <= allowed], points[points[:, 1] > allowed]
    best = cheap[:, 0].min() if len(cheap) else np.inf
    for growth, spent in cheap:
        share = (allowed - spent) / (dear[:, 1] - spent)
        mixed = growth + share * (dear[:, 0] - growth)
        best = min(best, mixed.min()) if len(mixed) else best
    return float(best)


@pytest.mark.parametrize(
    ("values", "weights", "allowed"),
    [
        ([2.0, 9.0], [0.5, 0.5], 2.0),
        ([2.0, 9.0], [0.5, 0.5], 3.3),
        ([1.0, 4.0], [0.3, 0.7], 1.2),
        ([5.5], [1.0], 1.9),
        ([1.0, 3.0, 8.0], [0.2, 0.5, 0.3], 1.6),
        ([0.0, 2.0], [0.5, 0.5], 0.4),
    ],
)
def test_no_threshold_rule_or_mixture_is_better(
    values: list[float], weights: list[float], allowed: float
) -> None:
    points = np.array([outcome(rule, values, weights) for rule in threshold_rules(values)])
    best = optimum(PriceSample(values, weights), budget=100 * allowed, total_capacity=100)
    assert len(best.thresholds) <= OLDEST  # brute force allows all that the optimum needs
    assert 100 / best.effective_per_round == pytest.approx(best_mixture(points, allowed), rel=1e-9)
    assert best.spent_per_round == pytest.approx(100 * allowed)


def simulated(prices: FloatArray, thresholds: tuple[float, ...]) -> tuple[float, float]:
    """Growth of ΣA² and money a round of one slot, counted."""
    age, growth, spent = 1, 0, 0.0
    for price in prices.tolist():
        if price <= thresholds[min(age, len(thresholds)) - 1]:
            age, growth, spent = 1, growth + 1, spent + price
        else:
            growth, age = growth + 2 * age + 1, age + 1
    return growth / len(prices), spent / len(prices)


def test_a_long_simulation_reaches_the_limit() -> None:
    best = optimum(UniformDistribution(1, 10), budget=55.0, total_capacity=100)
    prices = np.random.default_rng(0).uniform(1, 10, 400_000)
    growth, spent = simulated(prices, best.thresholds)
    assert 100 / growth == pytest.approx(best.effective_per_round, rel=5e-3)
    assert 100 * spent == pytest.approx(55.0, rel=5e-3)


@pytest.mark.parametrize(("stored", "effective"), [(200, 22.15), (800, 30.39), (1600, 34.57)])
def test_a_slot_of_which_chance_decides_when_it_trains(stored: int, effective: float) -> None:
    chance = 100 / stored
    best = optimum(UniformDistribution(1, 10), 55.0, total_capacity=stored, chance=chance)
    assert best.effective_per_round == pytest.approx(effective, abs=5e-3)
    assert max(best.duality_gap, best.bellman_residual) < 1e-9
    draw = np.random.default_rng(0)
    rounds = 400_000
    uses = growth = 0
    spent = 0.0
    for price, drawn in zip(draw.uniform(1, 10, rounds).tolist(), draw.random(rounds), strict=True):
        if uses and price <= best.thresholds[min(uses, len(best.thresholds)) - 1]:
            uses, spent = 0, spent + price
        if drawn < chance:
            uses, growth = uses + 1, growth + 2 * uses + 1
    assert stored * chance**2 * rounds / growth == pytest.approx(effective, rel=0.015)
    assert stored * spent / rounds == pytest.approx(55.0, rel=0.015)


def test_the_papers_mnist_setting() -> None:
    best = optimum(UniformDistribution(1, 10), budget=55.0, total_capacity=100)
    assert best.effective_per_round == pytest.approx(18.64, abs=5e-3)
    assert best.distinct_per_round == pytest.approx(22.2, abs=5e-2)
    assert best.multiplier == pytest.approx(6.64, abs=5e-3)
    seen = [round(threshold, 2) for threshold in best.thresholds[:8]]
    assert seen == [1.21, 2.2, 3.03, 3.75, 4.4, 4.98, 5.52, 6.01]


LAWS: dict[str, PriceDistribution] = {
    "uniform": UniformDistribution(1, 10),
    "two points": PriceSample([2.0, 9.0], [0.6, 0.4]),
    "constant": PriceSample([5.5]),
    "log-normal": PriceSample(np.random.default_rng(1).lognormal(1, 1, 1000).tolist()),
    "with free samples": PriceSample([0.0, 0.0, 8.0]),
}


@pytest.mark.parametrize("law", LAWS)
@pytest.mark.parametrize("budget", [20.0, 55.0, 150.0, 400.0])
def test_the_certificate_holds_and_money_is_all_spent(law: str, budget: float) -> None:
    best = optimum(LAWS[law], budget, total_capacity=100)
    assert best.duality_gap < 1e-9
    assert best.bellman_residual < 1e-9
    assert best.spent_per_round <= budget * (1 + 1e-12)
    if LAWS[law].mean * 100 > budget:
        assert best.spent_per_round == pytest.approx(budget)
    assert all(first <= second for first, second in itertools.pairwise(best.thresholds))


@settings(max_examples=at_size(12, 60), deadline=None)
@given(
    values=st.lists(st.floats(0.1, 50), min_size=1, max_size=12),
    share=st.floats(0.02, 0.98),
    more=st.floats(1.01, 3),
)
def test_more_money_gains_more_and_less_for_each_unit(
    values: list[float], share: float, more: float
) -> None:
    prices = PriceSample(values)
    budget = share * prices.mean
    one, other = optimum(prices, budget, 1), optimum(prices, budget * more, 1)
    assert one.duality_gap < 1e-9
    assert other.effective_per_round >= one.effective_per_round * (1 - 1e-9)
    assert other.multiplier <= one.multiplier * (1 + 1e-9)


def test_where_money_does_not_bind_every_sample_is_used_once() -> None:
    best = optimum(UniformDistribution(1, 10), budget=551.0, total_capacity=100)
    assert (best.effective_per_round, best.distinct_per_round) == (100.0, 100.0)
    assert (best.multiplier, best.spent_per_round) == (0.0, 550.0)


def test_any_guess_leads_to_the_same_rule_and_a_wrong_rule_shows() -> None:
    prices = UniformDistribution(1, 10)
    rule = best_rule(prices, 6.64)
    for multiplier in (1e-6, 1.0, 6.64, 1e4):
        near = best_rule(prices, multiplier)
        assert best_rule(prices, 6.64, near).average_cost == pytest.approx(rule.average_cost)
    assert bellman_residual(prices, rule) < 1e-9
    other = best_rule(prices, 7.0)
    assert (
        bellman_residual(prices, type(rule)(**{**vars(rule), "thresholds": other.thresholds}))
        > 1e-3
    )


@pytest.mark.parametrize("allowed", [0.2, 0.55, 1.3])
def test_an_empty_slot_waits_for_the_price_that_is_best(allowed: float) -> None:
    prices = PriceSample(np.random.default_rng(5).uniform(1, 10, 400))
    plan = plan_slots(prices, allowed)
    multiplier, loss = plan.best.multiplier, plan.growth - plan.best.multiplier * allowed

    def cost(threshold: float) -> float:
        """What waiting loses, and the price in the end, if every price up to this is taken."""
        share, paid = prices.up_to(threshold)
        return loss * (1 - share) / share + multiplier * paid / share

    best = min(cost(level) for level in np.linspace(1.1, 10, 2000).tolist())
    assert cost(filling_threshold(prices, plan)) == pytest.approx(best, rel=1e-6)


def test_an_empty_slot_is_filled_at_any_price_where_money_does_not_bind() -> None:
    prices = UniformDistribution(1, 10)
    assert filling_threshold(prices, plan_slots(prices, 6.0)) == 10


@pytest.mark.parametrize("prices", [(0.1, 1.0), (0.1, 0.3)])
def test_money_for_everything_but_a_rounding_buys_everything(prices: tuple[float, float]) -> None:
    law = UniformDistribution(*prices)
    for slots in range(1, 100):
        budget = slots * round(law.mean, 2)
        assert optimum(law, budget, slots).effective_per_round == pytest.approx(slots)


@pytest.mark.parametrize(
    ("prices", "weights", "allowed"),
    [
        ([1.0, 1000.0], [50 / 51, 1 / 51], 50 / 51),
        ([1000.0, 1.0, 0.0, 1.0, 1.0], [2, 9, 3, 99, 3], 0.9568965517241379),
    ],
)
@pytest.mark.parametrize("precision", [1e-5, 1e-13])
def test_spending_that_stays_the_same_over_many_multipliers(
    prices: list[float], weights: list[float], allowed: float, precision: float
) -> None:
    """Every price but the dearest is always paid: that costs exactly what is allowed."""
    law = PriceSample(prices, weights)
    plan = plan_slots(law, allowed, precision=precision)
    assert plan.spent == pytest.approx(allowed)
    dearest = law.up_to(999.0)[0]
    assert plan.growth == pytest.approx(2 / dearest - 1)  # E[L²] / E[L] of such a life L


def test_the_longest_life_is_a_limit_of_its_own() -> None:
    prices = PriceSample([1.0, 100.0], [0.3, 0.7])
    for allowed in (9.0, 12.0, 30.0):
        free, cut = plan_slots(prices, allowed), plan_slots(prices, allowed, longest_life=8)
        assert len(cut.less.thresholds) <= 8
        assert free.spent == pytest.approx(allowed)
        assert free.growth <= cut.growth * (1 + 1e-9) <= 1.01 * free.growth
    # Where none is cheap enough: the cheapest, which waits for 1.0 from some age on until its last.
    costs = []
    for since in range(1, 10):
        length, spent = 1.0, prices.mean  # of the rest of a life, at age 9
        for age in range(8, 0, -1):
            replaced = 0.3 if age >= since else 0.0
            length, spent = 1 + (1 - replaced) * length, replaced + (1 - replaced) * spent
        costs.append(spent / length)
    short = plan_slots(prices, 0.9 * min(costs), longest_life=8)
    assert short.spent == pytest.approx(min(costs), rel=1e-9)


@pytest.mark.timing
def test_a_thousand_prices_take_less_than_50_milliseconds() -> None:
    prices = PriceSample(np.random.default_rng(0).uniform(1, 10, 1000).tolist())
    seconds = []
    for _ in range(5):
        started = time.process_time()
        optimum(prices, 55.0, 100)
        seconds.append(time.process_time() - started)
    assert min(seconds) < 0.05


@pytest.mark.parametrize(
    ("budget", "capacity"), [(0.0, 100), (-1.0, 100), (float("nan"), 100), (5.0, 0)]
)
def test_a_budget_or_capacity_that_is_none_is_refused(budget: float, capacity: int) -> None:
    with pytest.raises(ValueError, match="need a positive budget and capacity"):
        optimum(UniformDistribution(1, 10), budget, capacity)


def test_a_budget_that_keeps_samples_for_ever_is_refused() -> None:
    with pytest.raises(
        ValueError, match=r"kept up to 10000 rounds .*: raise the budget to at least"
    ):
        optimum(UniformDistribution(1, 10), budget=1e-6, total_capacity=100)


def test_distributions_count_as_samples_do() -> None:
    draw = np.random.default_rng(0).uniform(2, 7, 200_000)
    exact = price_distribution(UniformPrice(2, 7), 10)
    for price in (1.0, 2.5, 6.9, 9.0):
        below = draw[draw <= price]
        assert exact.up_to(price) == pytest.approx(
            (len(below) / len(draw), below.sum() / len(draw)), abs=0.02
        )
    assert (exact.mean, exact.highest) == (4.5, 7)
    assert price_distribution(ConstantPrice(3.0), 10).up_to(3.0) == (1.0, 3.0)
    assert price_distribution(UniformPrice(3, 3), 10).mean == 3.0
    markov = price_distribution(MarkovPrice(2.0, 8.0, 0.75, 0.5), 10)
    assert markov.up_to(2.0) == pytest.approx((2 / 3, 4 / 3))
    trace = price_distribution(RecordedPrices([3.0, 1.0, 2.0]), 2)
    assert (trace.mean, trace.highest) == (2.0, 3.0)
    with pytest.raises(ValueError, match=r"the trace has 2 columns; .* name one column"):
        price_distribution(RecordedPrices([[1.0, 2.0]]), 1)


@pytest.mark.parametrize(
    ("values", "weights", "reason"),
    [
        ([], None, "at least one price"),
        ([1.0], [1.0, 2.0], "a weight for each"),
        ([-1.0], None, "prices must be 0 or more"),
        ([1.0], [0.0], "not all 0"),
    ],
)
def test_a_sample_that_is_none_is_refused(
    values: list[float], weights: list[float] | None, reason: str
) -> None:
    with pytest.raises(ValueError, match=reason):
        PriceSample(values, weights)
