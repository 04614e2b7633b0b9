"""When prices are taken to have changed for good."""

import numpy as np
import pytest
from check_size import at_size

from tidegate.admission.price_memory import EVERY, rounds_since_change
from tidegate.admission.rule import Quote, RoundTotals
from tidegate.admission.tide import RECENT, Tide

ROUNDS = at_size(2000, 100_000)
NOTHING = RoundTotals(admitted=0, spent=0.0, training_size=0, prior_uses=0, carried=0)


@pytest.mark.parametrize(
    ("before", "factor"), [(60, 5.0), (200, 0.5), (200, 2.0), (700, 0.5), (700, 2.0), (700, 5.0)]
)
def test_a_new_level_is_noticed_soon_and_its_beginning_found(before: int, factor: float) -> None:
    draw = np.random.default_rng(before)
    path = np.append(draw.uniform(1, 10, before), factor * draw.uniform(1, 10, 100))
    noticed = next(
        (now, kept)
        for now in range(before, len(path))
        if (kept := rounds_since_change(path[:now])) is not None
    )
    assert noticed[0] - before <= 60
    assert noticed[1] == pytest.approx(noticed[0] - before, abs=10)


@pytest.mark.no_cover
def test_independent_prices_do_not_change() -> None:
    path = np.random.default_rng(7).uniform(1, 10, ROUNDS)
    alarms = [
        now
        for now in range(EVERY, ROUNDS, EVERY)
        if rounds_since_change(path[max(0, now - RECENT) : now]) is not None
    ]
    assert len(alarms) <= ROUNDS / 10_000


def test_a_season_is_not_a_change() -> None:
    draw = np.random.default_rng(1)
    day = 5.5 * (1 + 0.9 * np.sin(2 * np.pi * np.arange(600) / 48))
    path = day * np.exp(0.2 * draw.normal(size=600))
    assert not [now for now in range(1, 600, EVERY) if rounds_since_change(path[:now]) is not None]


@pytest.mark.parametrize("price", [0.0, 5.5])
def test_one_price_for_ever_is_one_level(price: float) -> None:
    assert rounds_since_change(np.full(300, price)) is None


def test_tide_forgets_the_level_that_is_over() -> None:
    one = Tide(budget=55.0, num_rounds=None, total_capacity=100)
    state, draw = one.start(), np.random.default_rng(0)
    for now in range(400):
        price = draw.uniform(1, 10) * (3.0 if now >= 300 else 1.0)
        state = one.settle(one.learn(state, Quote(price)), NOTHING)
    assert 290 <= state.changed <= 310
    assert state.prices.weights.sum() == 400 - state.changed
    assert state.prices.values[state.prices.weights > 0].min() > 2.9
    assert state.in_order[:-1].min() > 2.9  # the last is that of the round to come
    assert state.solved.round_number > 300


@pytest.mark.parametrize("other", [5.01, 6.0, 1e7])
def test_one_other_price_is_not_a_new_level(other: float) -> None:
    assert rounds_since_change(np.array([5.0] * 100 + [other] + [5.0] * 3)) is None
    assert rounds_since_change(np.array([5.0] * 100 + [other] * 20)) == 20
