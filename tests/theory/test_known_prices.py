"""Prices that are known ahead, against trying every decision."""

import itertools
import math

import numpy as np
import pytest

from tidegate._internal.arrays import FloatArray
from tidegate.theory.known_prices import (
    continuation,
    keeping_costs,
    thresholds_now,
    values_before,
)
from tidegate.theory.slot_rule import weight_of_empty


def cheapest(
    prices: list[float], age: int, multiplier: float, after: FloatArray, keeping: FloatArray
) -> float:
    """The least that a slot of an age costs over these prices, of all that it could do."""
    least = math.inf
    for decisions in itertools.product((False, True), repeat=len(prices)):
        cost, now = 0.0, age
        for price, replaces in zip(prices, decisions, strict=True):
            if replaces:
                cost, now = cost + multiplier * price + 1, 1
            else:
                cost, now = cost + keeping[now - 1], min(now + 1, len(keeping))
        least = min(least, cost + after[now - 1])
    return least


@pytest.mark.parametrize("most_uses", [None, 4])
@pytest.mark.parametrize("seed", range(5))
def test_no_other_decisions_cost_less(seed: int, most_uses: int | None) -> None:
    draw = np.random.default_rng(seed)
    prices = draw.uniform(1, 10, 7).tolist()
    multiplier, ages = float(draw.uniform(0.3, 3)), most_uses or 6
    keeping = keeping_costs(ages, math.inf if most_uses is None else weight_of_empty(most_uses))
    after = np.sort(draw.uniform(0, 20, ages))
    least = [cheapest(prices, age, multiplier, after, keeping) for age in range(1, ages + 1)]
    found = values_before(prices, multiplier, after, keeping)
    np.testing.assert_allclose(found, np.array(least) - least[0])


@pytest.mark.parametrize("seed", range(5))
def test_a_slot_is_replaced_where_that_is_best_and_kept_where_it_is_not(seed: int) -> None:
    draw = np.random.default_rng(seed)
    now, *ahead = draw.uniform(1, 10, 7).tolist()
    multiplier, keeping = float(draw.uniform(0.3, 3)), keeping_costs(6)
    after = np.sort(draw.uniform(0, 20, 6))
    thresholds = thresholds_now(ahead, multiplier, after, keeping)
    assert (np.diff(thresholds) >= 0).all()
    for age, threshold in enumerate(thresholds.tolist(), start=1):
        older = min(age + 1, len(keeping))
        kept = keeping[age - 1] + cheapest(ahead, older, multiplier, after, keeping)
        fresh = multiplier * now + 1 + cheapest(ahead, 1, multiplier, after, keeping)
        assert (now <= threshold) == (fresh <= kept)


def test_what_one_price_leads_to_is_known() -> None:
    """At a price of 2 and 0.25 a round every sample lives eight rounds."""
    behind = continuation(np.full(400, 2.0), 0.25, near=1.0, keeping=keeping_costs(64))
    thresholds = thresholds_now([2.0] * 48, behind.multiplier, behind.values, keeping_costs(64))
    assert int(np.sum(thresholds < 2.0)) + 1 == pytest.approx(8, abs=1)


@pytest.mark.parametrize(("share", "near"), [(0.05, 1e-4), (0.2, 1.0), (0.6, 1e4)])
def test_the_multiplier_spends_what_is_allowed(share: float, near: float) -> None:
    """A slot that follows the rule of each round, knowing the next 48 prices, spends the money."""
    draw = np.random.default_rng(3)
    window = draw.uniform(1, 10, 560)
    keeping, allowed = keeping_costs(128), share * float(window.mean())
    behind = continuation(window, allowed, near, keeping)
    prices, age, paid = [*window.tolist(), *window[:48].tolist()], 1, 0.0
    for now, price in enumerate(window.tolist()):
        ahead = prices[now + 1 : now + 49]
        thresholds = thresholds_now(ahead, behind.multiplier, behind.values, keeping)
        if price <= thresholds[age - 1]:
            age, paid = 1, paid + price
        else:
            age += 1
    assert paid / len(window) == pytest.approx(allowed, rel=0.1)
