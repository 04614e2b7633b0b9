import math

import pytest
from hypothesis import given
from hypothesis.strategies import floats, integers, lists

from tidegate.admission.debt import next_cost_debt
from tidegate.admission.interval import ClosingInterval, FixedInterval


@given(target=floats(0.01, 1e6), contraction=floats(0, 0.999999), rounds=integers(1, 10**6))
def test_the_interval_holds_its_target_and_closes(
    target: float, contraction: float, rounds: int
) -> None:
    interval = ClosingInterval(target, contraction)
    now, later = interval.at(rounds), interval.at(rounds + 1)
    assert now.lower <= later.lower <= target <= later.upper <= now.upper
    power = contraction**rounds
    assert now.lower == pytest.approx(target * (1 - power), rel=1e-6, abs=1e-9)


def test_round_1_may_admit_t_to_the_phi_times_the_target() -> None:
    # T = 1000, phi = 0.5: 10 / (1 - rho) = 10 * 31.6.
    assert ClosingInterval(10.0, 1 - 1000**-0.5).at(1).upper == pytest.approx(316.2, abs=0.1)


def test_it_ends_in_one_point() -> None:
    last = ClosingInterval(10.0, 0.9).at(10_000)
    assert last.lower == last.upper == 10.0


@pytest.mark.parametrize(
    ("target", "contraction", "cap", "complaint"),
    [
        (0.0, 0.5, math.inf, "target_admission must be positive, got 0.0"),
        (1.0, 1.0, math.inf, r"contraction must be in \[0, 1\), got 1.0"),
        (10.0, 0.5, 9.0, "cap 9.0 is below the target"),
    ],
)
def test_wrong_intervals_name_value_and_limit(
    target: float, contraction: float, cap: float, complaint: str
) -> None:
    with pytest.raises(ValueError, match=complaint):
        ClosingInterval(target, contraction, cap)


def test_a_fixed_interval_is_the_same_in_every_round() -> None:
    assert FixedInterval(7.0).at(1) == FixedInterval(7.0).at(999)


@given(spending=lists(floats(0, 1e4), max_size=50), budget=floats(0.1, 1e4))
def test_debt_bounds_the_overspend_on_every_path(spending: list[float], budget: float) -> None:
    debt = overspend = 0.0
    for spent in spending:
        debt = next_cost_debt(debt, spent, budget)
        overspend += spent - budget
        assert debt >= 0
        assert overspend <= debt + 1e-6
