"""A cap on uses: against every rule that there is on small instances, and by its certificate."""

import itertools
from collections.abc import Iterator, Sequence

import numpy as np
import pytest
from check_size import at_size
from hypothesis import given, settings
from hypothesis import strategies as st

from tidegate._internal.arrays import FloatArray
from tidegate.theory.distribution import PriceSample, UniformDistribution
from tidegate.theory.least_spending import least_spending
from tidegate.theory.optimum import optimum, plan_slots
from tidegate.theory.price_chain import PriceChain, chain_rule, plan_chain
from tidegate.theory.slot_rule import bellman_residual, best_rule, weight_of_empty
from tidegate.theory.waiting import price_to_wait_for

PAPER = UniformDistribution(1, 10)

Rule = tuple[tuple[str, ...], ...]
"""For each state (empty, then used 1, ..., U - 1 times) what is done at each price."""


def every_rule(cap: int, prices: int) -> Iterator[Rule]:
    """All that can be done: samples may also be let go before they were used U times."""
    empty = itertools.product(("buy", "wait"), repeat=prices)
    used = list(itertools.product(("buy", "keep", "wait"), repeat=prices))
    for first, *rest in itertools.product(empty, *([used] * (cap - 1))):
        if "buy" in first:  # else nothing is ever bought again
            yield (first, *rest)


def outcome(rule: Rule, values: Sequence[float], follow: FloatArray) -> tuple[float, float, float]:
    """Growth of ΣA², empty rounds and money a round; ``follow`` says which price comes next."""
    states = list(itertools.product(range(len(rule)), range(len(values))))
    moves = np.zeros((len(states), len(states)))
    told = np.zeros((len(states), 3))
    for place, (age, price) in enumerate(states):
        done = rule[age][price]
        after = {"buy": 1, "keep": age + 1, "wait": 0}[done] % len(rule)
        told[place] = {
            "buy": (1, 0, values[price]),
            "keep": (2 * age + 1, 0, 0),
            "wait": (0, 1, 0),
        }[done]
        for other in range(len(values)):
            moves[place, states.index((after, other))] += follow[price, other]
    equations = np.vstack([moves.T - np.eye(len(states)), np.ones(len(states))])
    wanted = np.append(np.zeros(len(states)), 1.0)
    share = np.linalg.lstsq(equations, wanted, rcond=None)[0]
    growth, empty, spent = share @ told
    return float(growth), float(empty), float(spent)


def least_loss(points: FloatArray, allowed: float) -> float:
    """The least loss of a mixture of two rules (or of buying nothing) for this money."""
    cheap, dear = points[points[:, 1] <= allowed], points[points[:, 1] > allowed]
    best = cheap[:, 0].min()
    for loss, spent in cheap:
        share = (allowed - spent) / (dear[:, 1] - spent)
        best = min(best, (loss + share * (dear[:, 0] - loss)).min(initial=np.inf))
    return float(best)


CASES = [
    ([2.0, 9.0], [0.5, 0.5], 1),
    ([2.0, 9.0], [0.5, 0.5], 2),
    ([2.0, 9.0], [0.7, 0.3], 3),
    ([1.0, 4.0], [0.3, 0.7], 4),
    ([1.0, 3.0, 8.0], [0.2, 0.5, 0.3], 2),
    ([0.0, 2.0], [0.5, 0.5], 3),
]


@pytest.mark.parametrize(("values", "weights", "cap"), CASES)
def test_no_rule_of_all_is_better(values: list[float], weights: list[float], cap: int) -> None:
    follow, weight = np.tile(weights, (len(values), 1)), weight_of_empty(cap)
    points = [(weight, 0.0)]  # where nothing is ever bought
    for rule in every_rule(cap, len(values)):
        growth, empty, spent = outcome(rule, values, follow)
        points.append((growth + weight * empty, spent))
    law, table = PriceSample(values, weights), np.array(points)
    for part in (0.1, 0.3, 0.5, 0.8, 0.95):
        allowed = part * law.mean
        plan = plan_slots(law, allowed, most_uses=cap)
        assert plan.loss == pytest.approx(least_loss(table, allowed), rel=1e-9)
        assert plan.spent == pytest.approx(allowed)


@pytest.mark.parametrize("stays", [(0.5, 0.5), (0.9, 0.8), (0.3, 0.2)])
@pytest.mark.parametrize("multiplier", [0.3, 3.0, 40.0, 150.0])
def test_no_rule_of_all_is_better_where_prices_follow_each_other(
    stays: tuple[float, float], multiplier: float
) -> None:
    follow = np.array([[stays[0], 1 - stays[0]], [1 - stays[1], stays[1]]])
    chain = PriceChain((5.0,), follow, (np.array([2.0]), np.array([9.0])))
    cap = 3
    weight = weight_of_empty(cap)
    costs = []
    for rule in every_rule(cap, 2):
        growth, empty, spent = outcome(rule, [2.0, 9.0], follow)
        costs.append(growth + weight * empty + multiplier * spent)
    found = chain_rule(chain, multiplier, np.full((cap, 2), np.inf), weight)
    assert found.growth + multiplier * found.spent == pytest.approx(min(costs), rel=1e-3)


@pytest.mark.parametrize("cap", [2, 5, 8, 12])
def test_one_group_is_the_case_of_independent_prices(cap: int) -> None:
    prices = np.sort(np.random.default_rng(1).uniform(1, 10, 300))
    chain, law = PriceChain((), np.ones((1, 1)), (prices,)), PriceSample(prices)
    plan = plan_slots(law, 0.55, most_uses=cap)
    rules = plan_chain(chain, 0.55, plan.best, cap, weight_of_empty(cap))
    assert rules is not None
    assert rules[1].spent <= 0.55 <= rules[0].spent
    same = best_rule(law, rules[1].multiplier, most_uses=cap)
    cost = rules[1].growth + rules[1].multiplier * rules[1].spent
    assert cost == pytest.approx(same.average_cost, rel=1e-3)
    assert rules[1].filling()[0] == pytest.approx(same.filling, rel=0.05)


def test_the_papers_setting() -> None:
    free = optimum(PAPER, 55.0, 100).effective_per_round
    ten, eight, seven = (optimum(PAPER, 55.0, 100, cap) for cap in (10, 8, 7))
    assert ten.effective_per_round == pytest.approx(18.60, abs=5e-3)
    assert eight.effective_per_round == pytest.approx(18.09, abs=5e-3)
    assert ten.effective_per_round >= 0.99 * free
    assert ten.stored_per_round == eight.stored_per_round == 100
    # At 7, replacing in time costs more than the budget, so some slots must be empty.
    assert 100 * least_spending(PAPER, 7) > 55 > 100 * least_spending(PAPER, 8)
    assert 99 < seven.stored_per_round < 99.5
    assert seven.spent_per_round == pytest.approx(55)


@settings(max_examples=at_size(25, 200), deadline=None)
@given(
    values=st.lists(st.floats(0.1, 50), min_size=1, max_size=12),
    part=st.floats(0.01, 0.98),
    cap=st.integers(1, 30),
)
def test_the_certificate_holds_and_money_is_all_spent(
    values: list[float], part: float, cap: int
) -> None:
    law = PriceSample(values)
    best = optimum(law, part * law.mean, 1, cap)
    assert best.duality_gap < 1e-8
    assert best.bellman_residual < 1e-8
    assert best.spent_per_round == pytest.approx(part * law.mean)
    assert 0 < best.stored_per_round <= 1 + 1e-12
    assert best.distinct_per_round * cap >= best.stored_per_round * (1 - 1e-9)
    assert all(first <= second for first, second in itertools.pairwise(best.thresholds))
    # Where money pays for replacing every sample in time, no slot is ever empty.
    if part * law.mean >= 1.05 * least_spending(law, cap):
        assert best.stored_per_round == pytest.approx(1)


@pytest.mark.parametrize("cap", [4, 10])
def test_a_long_simulation_does_what_the_limit_says(cap: int) -> None:
    best = optimum(PAPER, 55.0, 100, cap)
    uses = total = squares = 0
    spent, lives = 0.0, []
    thresholds = best.filling, *best.thresholds
    for price in np.random.default_rng(0).uniform(1, 10, 300_000).tolist():
        held = uses % cap  # a sample that was used so often is gone
        if price <= thresholds[min(held, len(thresholds) - 1)]:
            lives.append(uses)
            uses, spent = 0, spent + price
        elif not held:
            continue
        uses += 1
        total, squares = total + 1, squares + 2 * uses - 1
    assert max(lives) == cap
    assert 100 * total / 300_000 == pytest.approx(best.stored_per_round, rel=5e-3)
    assert 100 * total**2 / squares / 300_000 == pytest.approx(best.effective_per_round, rel=1e-2)
    assert 100 * spent / 300_000 == pytest.approx(55, rel=1e-2)


def test_a_cap_that_is_never_reached_changes_nothing() -> None:
    free = optimum(PAPER, 55.0, 100)
    for cap in (60, 9_999, 20_000):
        capped = optimum(PAPER, 55.0, 100, cap)
        assert capped.effective_per_round == pytest.approx(free.effective_per_round, rel=1e-9)
        assert capped.multiplier == pytest.approx(free.multiplier, rel=1e-6)


def test_a_budget_that_is_too_small_for_full_buffers_is_spent_all_the_same() -> None:
    poor = optimum(PAPER, 1e-6, 100, 10)
    assert poor.spent_per_round == pytest.approx(1e-6)
    assert poor.stored_per_round == pytest.approx(1e-5, rel=0.01)  # ten uses for a price of 1


def test_where_a_unit_of_money_is_worth_too_much_nothing_is_bought() -> None:
    rule = best_rule(PAPER, 1e9, most_uses=5)
    assert (rule.spent, rule.filled, rule.growth) == (0.0, 0.0, 0.0)
    assert rule.average_cost == rule.loss == weight_of_empty(5)


def test_a_wrong_price_for_empty_slots_shows() -> None:
    rule = best_rule(PAPER, 500.0, most_uses=5)
    assert rule.filled < 0.95
    assert bellman_residual(PAPER, rule, 5) < 1e-9
    last = rule.thresholds[-1] * 1.01
    wrong = type(rule)(**{**vars(rule), "thresholds": (*rule.thresholds[:-1], last)})
    assert bellman_residual(PAPER, wrong, 5) > 1e-3


def test_a_cap_below_one_is_refused() -> None:
    with pytest.raises(ValueError, match="at least 1 round, got most_uses=0"):
        optimum(PAPER, 55.0, 100, 0)


@pytest.mark.parametrize("loss", [1e-6, 0.01, 0.5, 3.0, 8.0])
def test_the_price_that_is_worth_waiting_for(loss: float) -> None:
    draw = np.sort(np.random.default_rng(2).uniform(1, 10, 1000))
    for law in (PAPER, PriceSample(draw)):
        price = price_to_wait_for(law, loss)
        likely, paid = law.up_to(price)
        assert price * likely - paid == pytest.approx(loss, rel=1e-9)
    assert price_to_wait_for(PAPER, 0.0) == price_to_wait_for(PAPER, -1.0) == 0.0
