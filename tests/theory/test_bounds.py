import math

import numpy as np
import pytest
from check_size import at_size
from hypothesis import given, settings
from hypothesis.strategies import integers

from tidegate.problem import LearningConstants
from tidegate.theory.bounds import (
    bound_terms,
    buffer_violation,
    constant_admission_sizes,
    constant_terms,
    cost_violation,
    costless_oracle_sizes,
    excess_risk_bound,
    regret,
)
from tidegate.theory.reuse import k_step_tally


@settings(max_examples=at_size(40, 200))
@given(admitted=integers(1, 30), horizon=integers(1, 12), rounds=integers(1, 40))
def test_constant_admission_sizes_equal_counting(admitted: int, horizon: int, rounds: int) -> None:
    sizes = constant_admission_sizes(float(admitted), horizon, rounds)
    for now in range(1, rounds + 1):
        tally = k_step_tally([admitted] * now, horizon)
        assert sizes.training_size[now - 1] == admitted * min(now, horizon)
        assert sizes.distinct_samples[now - 1] == tally.distinct_samples
        assert sizes.effective_samples[now - 1] == pytest.approx(tally.effective_sample_size)


def test_the_oracle_bound_is_the_appendix_formula() -> None:
    learning = LearningConstants(pseudo_dimension=40.0, learning_rate=0.1, gradient_noise=2.0)
    terms = bound_terms(costless_oracle_sizes(50, 30), learning)
    for now in range(1, 31):
        gap = 1 / 50 - 1 / (50 * now)
        ratio = 50 * now / 40
        printed = (
            2 * math.sqrt(gap)
            + 0.1 * 4 * gap
            + 10 * math.sqrt(1 / ratio) * math.sqrt(1 + math.log(ratio))
        )
        assert terms.total[now - 1] == pytest.approx(printed)


def test_constant_terms_are_those_of_the_appendix() -> None:
    learning = LearningConstants(
        domain_diameter=2.0, learning_rate=0.1, smoothness=3.0, gradient_bound=1.5, local_steps=4
    )
    first = 1.5 * (5 * 1.5 + 2 * 3 * 2 * math.sqrt(2 * 0.75))
    second = 4 * 9 * 2.25 * 0.75
    expected = 4 / 0.2 + 7 * (0.1 * first / 2 + 0.001 * second / 2)
    assert constant_terms(learning, 7) == pytest.approx(expected)
    sizes = costless_oracle_sizes(50, 7)
    bare = excess_risk_bound(sizes, learning)
    assert excess_risk_bound(sizes, learning, with_constants=True) == pytest.approx(bare + expected)


def test_regret_of_the_oracle_is_zero_and_of_constant_admission_positive() -> None:
    learning = LearningConstants()
    assert np.all(regret(costless_oracle_sizes(100, 50), 100, learning) == 0)
    assert regret(constant_admission_sizes(10.0, 10, 50), 100, learning)[-1] > 0


def test_violations_take_the_positive_part_after_summing() -> None:
    assert cost_violation(np.array([60.0, 40.0]), 55.0) == 0.0
    assert buffer_violation(np.array([-5.0, 10.0])) == 10.0


def test_the_variance_bound_is_too_small_where_reuse_is_uneven() -> None:
    """The step 1/n - 1/N_eff, against the exact variance Σ (ω_i - q_i/n)² of the difference.

    Two samples stored since round 1, one more admitted in round 2, none dropped: the weights of
    all samples and of the memory differ, yet 1/n - 1/N_eff is negative.
    """
    uses = np.array([2.0, 2.0, 1.0])
    weights = uses / uses.sum()
    exact = float(np.sum((weights - 1 / 3) ** 2))
    effective = uses.sum() ** 2 / np.sum(uses**2)
    assert exact == pytest.approx(1 / effective - 1 / 3)
    assert 1 / 3 - 1 / effective < 0 < exact
