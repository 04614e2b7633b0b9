"""Prices in bounded space, against all of them kept."""

import numpy as np
import pytest
from check_size import at_size
from hypothesis import given, settings
from hypothesis import strategies as st

from tidegate.admission.price_memory import SIZE, PriceMemory
from tidegate.theory.distribution import PriceSample


def remembered(prices: list[float]) -> PriceMemory:
    memory = PriceMemory()
    for price in prices:
        memory = memory.with_prices(np.array([price]), np.ones(1))
    return memory


@settings(max_examples=at_size(8, 20), deadline=None)
@given(st.lists(st.floats(0, 1000), min_size=1, max_size=1500))
def test_mean_and_weight_are_kept_and_space_is_bounded(prices: list[float]) -> None:
    memory = remembered(prices)
    assert memory.mean == pytest.approx(np.mean(prices), abs=1e-9)
    assert memory.weights.sum() == pytest.approx(len(prices))
    assert len(memory.values) == len(memory.weights) == SIZE


def test_what_lies_below_a_price_is_right_to_a_few_thousandths() -> None:
    prices = np.random.default_rng(0).lognormal(1.0, 1.0, 20_000)
    memory = remembered(prices.tolist())
    used = memory.weights > 0
    kept = PriceSample(memory.values[used], memory.weights[used])
    for level in np.quantile(prices, np.linspace(0.01, 0.99, 50)).tolist():
        share, paid = kept.up_to(level)
        assert share == pytest.approx(np.mean(prices <= level), abs=4 / SIZE)
        assert paid == pytest.approx(np.mean(np.where(prices <= level, prices, 0)), abs=0.06)


def test_few_prices_are_kept_as_they_are_and_one_lower_is_expected() -> None:
    law = remembered([4.0, 2.0, 6.0]).distribution()
    assert law.up_to(0.9) == (0.0, 0.0)
    assert law.up_to(1.0) == (0.25, 0.25)  # half of the lowest, as if it had been seen once
    assert law.up_to(5.0) == (0.75, 1.75)
    assert law.mean == 13 / 4


def test_own_prices_of_a_round_count_as_one_round() -> None:
    memory = PriceMemory().with_prices(np.array([1.0, 3.0]), np.array([0.25, 0.75]))
    memory = memory.with_prices(np.array([9.5]), np.ones(1))
    assert memory.mean == pytest.approx((2.5 + 9.5) / 2)
    many = PriceMemory().with_prices(np.linspace(1, 2, 2000), np.full(2000, 1 / 2000))
    assert many.weights.sum() == pytest.approx(1.0)
    assert many.mean == pytest.approx(1.5)


@pytest.mark.parametrize("price", [0.08, 0.1, 0.3, 5.5])
def test_equal_prices_stay_exactly_equal(price: float) -> None:
    memory = PriceMemory()
    for _ in range(3 * SIZE):
        memory = memory.with_prices(np.array([price]), np.ones(1))
        assert memory.mean == price
        assert memory.is_constant
