"""Prices that follow each other: against brute force, simulation, and independent prices."""

import itertools

import numpy as np
import pytest
from check_size import at_size

from tidegate._internal.arrays import FloatArray
from tidegate.prices import MarkovPrice
from tidegate.theory.distribution import PriceSample
from tidegate.theory.optimum import plan_slots
from tidegate.theory.price_chain import PriceChain, chain_rule, plan_chain

AGES = 8
PATH = at_size(30_000, 60_000)


def two_prices(stay_low: float, stay_high: float) -> PriceChain:
    rows = np.array([[stay_low, 1 - stay_low], [1 - stay_high, stay_high]])
    return PriceChain((5.0,), rows, (np.array([2.0]), np.array([9.0])))


def average(chain: PriceChain, oldest: tuple[int, ...], ages: int) -> tuple[float, float]:
    """Growth and money a round if each group's samples live up to ``oldest``: by eigenvalues."""
    k = len(oldest)
    states = list(itertools.product(range(1, ages + 1), range(k)))
    place = {state: number for number, state in enumerate(states)}
    moves = np.zeros((len(states), len(states)))
    growth, money = np.zeros(len(states)), np.zeros(len(states))
    for (age, group), number in place.items():
        replaced = age >= oldest[group] or age == ages
        growth[number] = 1 if replaced else 2 * age + 1
        money[number] = float(chain.values[group][0]) if replaced else 0
        for other in range(k):
            moves[number, place[1 if replaced else age + 1, other]] += chain.transitions[
                group, other
            ]
    values, vectors = np.linalg.eig(moves.T)
    share = np.real(vectors[:, np.argmin(np.abs(values - 1))])
    share = share / share.sum()
    return float(share @ growth), float(share @ money)


@pytest.mark.parametrize("stays", [(0.5, 0.5), (0.9, 0.8), (0.95, 0.95), (0.3, 0.2)])
@pytest.mark.parametrize("multiplier", [0.3, 1.0, 3.0, 8.0])
def test_the_rule_is_the_best_of_all(stays: tuple[float, float], multiplier: float) -> None:
    chain = two_prices(*stays)
    rule = chain_rule(chain, multiplier, np.full((AGES, 2), np.inf))
    rules = itertools.product(range(1, AGES + 1), repeat=2)
    costs = [growth + multiplier * money for growth, money in
             (average(chain, oldest, AGES) for oldest in rules)]  # fmt: skip
    assert rule.growth + multiplier * rule.spent == pytest.approx(min(costs), rel=1e-3)


def markov_path(law: MarkovPrice, rounds: int, seed: int = 0) -> FloatArray:
    path = law.rounds(np.random.default_rng(seed))
    return np.array([float(price) for price in itertools.islice(path, rounds)])


@pytest.mark.parametrize("allowed", [0.3, 0.55, 1.1])
def test_the_plan_keeps_the_allowance_and_does_what_it_says(allowed: float) -> None:
    path = markov_path(MarkovPrice(2.0, 9.0, 0.95, 0.95), PATH)
    chain = PriceChain.from_prices(path, 4)
    assert chain is not None
    near = plan_slots(PriceSample(path), allowed).best
    rules = plan_chain(chain, allowed, near, 120)
    assert rules is not None
    more, less = rules
    assert less.spent <= allowed < more.spent
    assert less.multiplier <= 1.041 * more.multiplier or more.spent <= 1.041 * allowed
    rows = np.array(less.by_group())
    assert np.all(np.diff(rows, axis=1) >= 0)
    age, growth, spent = 1, 0, 0.0
    for price in path.tolist():  # one slot, followed for the whole path
        group = int(price >= chain.edges[0])
        if price <= rows[group, min(age, rows.shape[1]) - 1]:
            age, growth, spent = 1, growth + 1, spent + price
        else:
            growth, age = growth + 2 * age + 1, age + 1
    assert spent / len(path) == pytest.approx(less.spent, rel=0.04)
    assert growth / len(path) == pytest.approx(less.growth, rel=0.04)


def test_an_allowance_out_of_reach_is_no_plan() -> None:
    path = markov_path(MarkovPrice(0.0, 10.0, 0.95, 0.95), 600)
    chain = PriceChain.from_prices(path, 4)
    assert chain is not None
    near = plan_slots(PriceSample(path), 0.05).best
    assert plan_chain(chain, 1e-9, near, len(near.thresholds) + 1) is None
    assert plan_chain(chain, 1e9, near, len(near.thresholds) + 1) is None


def test_spells_are_seen_and_chance_is_not() -> None:
    found = PriceChain.from_prices(markov_path(MarkovPrice(2.0, 9.0, 0.95, 0.95), 400), 4)
    assert found is not None
    assert found.edges == (9.0,)
    assert found.transitions == pytest.approx(np.array([[0.95, 0.05], [0.05, 0.95]]), abs=0.05)
    assert found.transitions.sum(axis=1) == pytest.approx(1.0)
    draw = np.random.default_rng(0)
    assert not any(
        PriceChain.from_prices(draw.uniform(1, 10, 300), 4) for _ in range(at_size(100, 500))
    )


@pytest.mark.parametrize("prices", [[3.0], [3.0] * 50, [1.0, 2.0, 3.0], [0.0] * 9 + [4.0]])
def test_too_little_to_learn_from_is_no_chain(prices: list[float]) -> None:
    assert PriceChain.from_prices(np.array(prices), 4) is None
