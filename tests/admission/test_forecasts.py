"""How far prices that are told ahead are believed."""

import numpy as np
import pytest

from tidegate._internal.arrays import FloatArray
from tidegate.admission.price_memory import FAR, Forecasts

AHEAD = 48


def after(path: FloatArray, errors: tuple[float, float]) -> tuple[float, ...]:
    """What is believed after these prices, of which forecasts erred by so much, near and far."""
    draw, forecasts = np.random.default_rng(0), Forecasts()
    steps = np.minimum(np.arange(AHEAD) / (FAR - 1), 1.0)
    error = errors[0] + steps * (errors[1] - errors[0])
    for now in range(1, len(path) - AHEAD):
        told = path[now : now + AHEAD] * np.exp(error * draw.normal(size=AHEAD))
        forecasts = forecasts.heard(now, tuple(told.tolist()))
    return forecasts.believed(tuple(told.tolist()), now, path[:now])


def days(rounds: int = 400) -> FloatArray:
    day: FloatArray = 5.5 * (1 + 0.6 * np.sin(2 * np.pi * np.arange(rounds) / 48))
    return day


@pytest.mark.parametrize(
    ("errors", "least", "most"),
    [
        ((0.0, 0.0), AHEAD, AHEAD),
        ((0.05, 0.05), AHEAD, AHEAD),
        ((0.2, 0.2), AHEAD, AHEAD),
        ((0.6, 0.6), 0, 0),
        ((0.0, 1.0), 2, FAR),
    ],
)
def test_forecasts_are_believed_as_far_as_they_were_good(
    errors: tuple[float, float], least: int, most: int
) -> None:
    assert least <= len(after(days(), errors)) <= most


def test_what_was_never_told_before_is_believed() -> None:
    prices = np.random.default_rng(0).uniform(1, 10, 30)
    told = tuple(range(1, 49))
    assert Forecasts().heard(30, told).believed(told, 30, prices) == told


def test_where_nothing_is_told_nothing_is_kept() -> None:
    forecasts = Forecasts()
    assert forecasts.heard(1, ()) is forecasts
    assert forecasts.believed((), 1, np.array([5.0])) == ()


def test_one_price_for_ever_is_believed() -> None:
    path = np.full(200, 5.5)
    assert len(after(path, (0.0, 0.0))) == AHEAD


def test_forecasts_that_were_forgotten_count_for_nothing() -> None:
    """A feed that falls silent leaves no forecast behind."""
    forecasts = Forecasts()
    for now in range(1, 100):
        forecasts = forecasts.heard(now, (5.0,) * AHEAD if now < 50 else ())
    assert (forecasts.near >= 0).sum() == 49
