from statistics import fmean

import numpy as np
import pytest
from check_size import at_size
from hypothesis import given, settings
from hypothesis.strategies import integers, lists

from tidegate.theory.reuse import (
    ReuseTally,
    constant_admission_uniformity,
    k_step_tally,
    reuse_deficit,
    squared_reuse_deficit,
)

admission_sequences = lists(integers(0, 20), min_size=1, max_size=40)


def use_counts(admissions: list[int], horizon: int) -> list[int]:
    """Every sample's use count after the last round, one entry a sample."""
    rounds = len(admissions)
    return [min(horizon, rounds - j) for j, new in enumerate(admissions) for _ in range(new)]


def counted_uniformity(uses: list[int]) -> float:
    return fmean(uses) ** 2 / fmean(use * use for use in uses)


@settings(max_examples=at_size(400, 2000))
@given(admissions=admission_sequences.filter(any), horizon=integers(1, 45))
def test_closed_form_equals_counting(admissions: list[int], horizon: int) -> None:
    uses = use_counts(admissions, horizon)
    tally = k_step_tally(admissions, horizon)
    assert tally == ReuseTally(len(uses), sum(uses), sum(use * use for use in uses))
    assert tally.reuse_uniformity == pytest.approx(counted_uniformity(uses))
    assert tally.effective_sample_size == pytest.approx(len(uses) * counted_uniformity(uses))


@settings(max_examples=at_size(200, 1000))
@given(admissions=admission_sequences, horizon=integers(1, 45))
def test_incremental_counting_equals_closed_form(admissions: list[int], horizon: int) -> None:
    tally = ReuseTally()
    for now in range(1, len(admissions) + 1):
        ages = range(1, min(horizon, now) + 1)
        tally = tally.after_round(
            admitted=admissions[now - 1],
            training_size=sum(admissions[now - age] for age in ages),
            prior_uses=sum((age - 1) * admissions[now - age] for age in ages),
        )
        assert tally == k_step_tally(admissions[:now], horizon)


def test_a_tally_without_samples_is_even_and_empty() -> None:
    assert ReuseTally().reuse_uniformity == 1.0
    assert ReuseTally().effective_sample_size == 0.0


@pytest.mark.parametrize("horizon", range(1, 26))
def test_constant_admission_equals_counting_in_every_round(horizon: int) -> None:
    rounds = range(1, 80)
    counted = [counted_uniformity(use_counts([3] * now, horizon)) for now in rounds]
    closed = constant_admission_uniformity(np.array(rounds, dtype=float), horizon)
    assert closed == pytest.approx(np.array(counted), rel=1e-12)


def printed_uniformity(rounds: int, horizon: int) -> float:
    """The paper's eq. (vck-exact) as printed, with 2K-1 in the denominator."""
    uses = horizon * rounds - horizon * (horizon - 1) / 2
    squares = horizon**2 * rounds - horizon * (horizon - 1) * (2 * horizon - 1) / 6
    return uses**2 / (rounds * squares)


def test_the_printed_constant_admission_formula_does_not_equal_counting() -> None:
    counted = counted_uniformity(use_counts([10] * 20, 10))
    assert counted == pytest.approx(0.867, abs=5e-4)
    assert printed_uniformity(20, 10) == pytest.approx(0.700, abs=5e-4)
    # It is right for K = 1 alone, where nothing is reused.
    assert printed_uniformity(20, 1) == 1.0
    right = [
        (rounds, horizon)
        for horizon in range(2, 20)
        for rounds in range(horizon, 60)
        if printed_uniformity(rounds, horizon)
        == pytest.approx(counted_uniformity(use_counts([1] * rounds, horizon)))
    ]
    assert right == []


@pytest.mark.parametrize("deficit", [reuse_deficit, squared_reuse_deficit])
def test_a_horizon_of_zero_is_refused(deficit: object) -> None:
    with pytest.raises(ValueError, match="at least 1, got 0"):
        deficit([1], 0)  # type: ignore[operator]


def test_uniformity_names_a_wrong_round_or_horizon() -> None:
    with pytest.raises(ValueError, match="rounds count from 1, got 0"):
        constant_admission_uniformity(np.array([0.0]), 3)
    with pytest.raises(ValueError, match="at least 1, got 0"):
        constant_admission_uniformity(np.array([3.0]), 0)
