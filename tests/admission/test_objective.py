import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis.strategies import floats

from tidegate.admission.objective import Objective
from tidegate.problem import LearningConstants
from tidegate.theory.penalty import surrogate_penalty

LEARNING = LearningConstants(domain_diameter=3.0, gradient_noise=2.0, pseudo_dimension=80.0)


@given(
    carried=floats(0, 1e5),
    dropped=floats(0, 1e5),
    admission=floats(1e-3, 1e5),
    cost_slope=floats(0, 1e4),
)
def test_it_is_the_theorys_penalty_plus_the_cost(
    carried: float, dropped: float, admission: float, cost_slope: float
) -> None:
    objective = Objective(cost_slope, 7.0, carried, carried + dropped, LEARNING)
    stored, distinct = np.array([carried + admission]), np.array([carried + dropped + admission])
    penalty = surrogate_penalty(np.minimum(stored, distinct), distinct, LEARNING)[0]
    expected = cost_slope * admission + 7 * penalty
    assert objective.value(admission) == pytest.approx(expected, rel=1e-6)


@given(
    carried=floats(0, 1e3), dropped=floats(0, 1e3), admission=floats(1, 1e3), slope=floats(0, 10)
)
def test_the_slope_is_the_difference_quotient(
    carried: float, dropped: float, admission: float, slope: float
) -> None:
    objective = Objective(slope, 50.0, carried, carried + dropped, LEARNING)
    step = 1e-5 * admission
    quotient = (objective.value(admission + step) - objective.value(admission - step)) / (2 * step)
    assert objective.slope(admission) == pytest.approx(quotient, rel=1e-3, abs=1e-4)


def test_a_round_that_would_train_on_nothing_is_infinitely_bad() -> None:
    objective = Objective(1.0, 1.0, 0.0, 20.0, LEARNING)
    assert objective.value(0.0) == math.inf
    assert objective.reuse_slope(0.0) == -math.inf


@pytest.mark.parametrize(("carried", "distinct"), [(-1.0, 2.0), (3.0, 2.0)])
def test_more_stored_than_distinct_is_refused(carried: float, distinct: float) -> None:
    with pytest.raises(ValueError, match="0 <= n0 <= N0"):
        Objective(1.0, 1.0, carried, distinct, LEARNING)


@pytest.mark.parametrize(("slope", "weight"), [(-1.0, 1.0), (1.0, 0.0), (math.nan, 1.0)])
def test_a_negative_slope_or_no_weight_is_refused(slope: float, weight: float) -> None:
    with pytest.raises(ValueError, match="penalty weight"):
        Objective(slope, weight, 1.0, 2.0, LEARNING)
