"""The estimates of D, σ, G and B against brute force."""

import itertools
import math

import numpy as np
import pytest
from check_size import at_size
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from tidegate._internal.arrays import FloatArray
from tidegate.problem import LearningConstants
from tidegate.theory.estimates import ModelEstimates, estimated_constants

POINTS = arrays(
    np.float64,
    st.tuples(st.integers(1, 8), st.integers(1, 5)),
    elements=st.floats(-100, 100, width=32),
)


def at(distance: float) -> ModelEstimates:
    return ModelEstimates(distance, gradient_noise=2.0, gradient_bound=3.0, largest_loss=4.0)


@settings(max_examples=at_size(60, 400))
@given(gradients=POINTS)
def test_noise_and_bound_are_those_of_single_gradients(gradients: FloatArray) -> None:
    losses = np.abs(gradients).sum(axis=1)
    found = ModelEstimates.of(1.0, (gradients**2).sum(1), gradients.mean(0), losses)
    mean = [math.fsum(column) / len(gradients) for column in gradients.T]
    variance = math.fsum(math.dist(one, mean) ** 2 for one in gradients) / len(gradients)
    norms = [math.hypot(*one) for one in gradients]
    assert found.gradient_noise == pytest.approx(math.sqrt(variance), abs=1e-4)  # √ of rounding
    assert found.gradient_bound == pytest.approx(max(norms))
    assert found.largest_loss == max(losses)


def test_gradients_of_logistic_regression_by_differences() -> None:
    """The closed form (p - y) x of each sample's gradient, against differences of its loss."""
    draw = np.random.default_rng(0)
    inputs, labels, model = (
        draw.normal(size=(6, 3)),
        draw.integers(0, 4, 6),
        draw.normal(size=(3, 4)),
    )

    def losses(weights: FloatArray) -> FloatArray:
        scores = inputs @ weights
        all_losses: FloatArray = np.log(np.exp(scores).sum(1)) - scores[np.arange(6), labels]
        return all_losses

    def slopes(place: tuple[int, ...]) -> FloatArray:
        nudge = np.zeros_like(model)
        nudge[place] = 1e-6
        return (losses(model + nudge) - losses(model - nudge)) / 2e-6

    by_differences = np.array([slopes(place) for place in np.ndindex(model.shape)]).T
    wrong = np.exp(inputs @ model)
    wrong /= wrong.sum(1, keepdims=True)
    wrong[np.arange(6), labels] -= 1
    found = ModelEstimates.of(
        0.0,
        (wrong**2).sum(1) * (inputs**2).sum(1),
        (inputs.T @ wrong / 6).ravel(),
        losses(model),
    )
    spread = by_differences - by_differences.mean(0)
    assert found.gradient_noise == pytest.approx(math.sqrt((spread**2).sum(1).mean()), rel=1e-6)
    assert found.gradient_bound == pytest.approx(math.sqrt((by_differences**2).sum(1).max()))


@settings(max_examples=at_size(60, 400))
@given(models=POINTS)
def test_the_diameter_holds_every_two_models_and_is_at_most_twice_theirs(
    models: FloatArray,
) -> None:
    estimates = [at(math.dist(models[0], model)) for model in models]
    found = max(2 * one.distance for one in estimates)
    farthest = max(math.dist(one, two) for one, two in itertools.product(models, models))
    assert farthest <= found + 1e-9
    assert found <= 2 * farthest + 1e-9
    if found:
        constants = estimated_constants(estimates, LearningConstants())
        assert constants.domain_diameter == found


def test_a_constant_is_the_largest_along_the_run() -> None:
    estimates = [
        ModelEstimates(1.0, gradient_noise=5.0, gradient_bound=6.0, largest_loss=7.0),
        ModelEstimates(9.0, gradient_noise=2.0, gradient_bound=8.0, largest_loss=3.0),
    ]
    constants = estimated_constants(estimates, LearningConstants(learning_rate=0.1))
    assert constants == LearningConstants(
        domain_diameter=18.0,
        gradient_noise=5.0,
        gradient_bound=8.0,
        loss_bound=7.0,
        learning_rate=0.1,
    )
    from_best = estimated_constants(estimates, LearningConstants(), from_best=True)
    assert from_best.domain_diameter == 9.0
