"""The least that a slot can spend, against every rule there is."""

import itertools
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.theory.distribution import PriceSample
from tidegate.theory.least_spending import least_spending


@given(
    prices=st.lists(st.integers(0, 9).map(float), min_size=1, max_size=3),
    longest_life=st.integers(1, 4),
)
def test_no_rule_spends_less(prices: list[float], longest_life: int) -> None:
    """Every rule: up to which price a sample goes, age by age; the oldest always goes."""
    rates = []
    for limits in itertools.product([-1.0, *prices], repeat=longest_life - 1):
        alive, spent, rounds = 1.0, 0.0, 0.0
        for limit in (*limits, math.inf):
            rounds += alive
            spent += alive * sum(price for price in prices if price <= limit) / len(prices)
            alive *= sum(price > limit for price in prices) / len(prices)
        rates.append(spent / rounds)
    found = least_spending(PriceSample(prices), longest_life)
    assert found == pytest.approx(min(rates), rel=1e-9, abs=1e-12)
