"""Tide where prices are known ahead."""

import numpy as np
import pytest
from check_size import at_size

from tidegate._internal.arrays import FloatArray
from tidegate.admission.rule import Quote, RoundTotals
from tidegate.admission.tide import Tide
from tidegate.errors import ConfigurationError
from tidegate.policies import ControlOptions
from tidegate.policies.tide import tide
from tidegate.prices import RecordedPrices, UniformPrice
from tidegate.problem import Problem
from tidegate.simulation.rounds import Run, simulate
from tidegate.theory.hindsight import hindsight_bound

pytestmark = pytest.mark.no_cover  # long loops, covered elsewhere

ROUNDS = at_size(300, 1000)
DAY = 24


def seasons(seed: int) -> FloatArray:
    """Days of 24 rounds, from a tenth of the mean to nearly twice, and noise."""
    draw = np.random.default_rng(seed)
    day = 5.5 * (1 + 0.9 * np.sin(2 * np.pi * np.arange(ROUNDS) / DAY))
    path: FloatArray = day * np.exp(0.1 * draw.normal(size=ROUNDS))
    return path


def problem(path: FloatArray, known_ahead: int) -> Problem:
    mean = float(path.mean())
    return Problem(
        buffer_capacities=[10] * 10,
        budget=10 * mean,
        mean_price=mean,
        num_rounds=len(path),
        known_ahead=known_ahead,
    )


def played(path: FloatArray, known_ahead: int, most_uses: int | None = None) -> Run:
    given = problem(path, known_ahead)
    policy = tide(given, ControlOptions(most_uses=most_uses))
    return simulate(policy, given, RecordedPrices(path), 0)


def gained(run: Run) -> float:
    return float(run.columns["effective_samples"][-1]) / run.problem.num_rounds


@pytest.mark.long
def test_who_knows_tomorrow_comes_close_to_who_knows_all() -> None:
    path = seasons(0)
    bound = hindsight_bound(path, 10 * float(path.mean()), 100).effective_per_round
    blind, knowing = played(path, 0), played(path, DAY)
    assert gained(knowing) > 0.95 * bound > 0.95 / 0.9 * gained(blind)
    assert knowing.columns["spent"].sum() <= ROUNDS * knowing.problem.budget
    assert knowing.columns["training_size"].max() == 100


@pytest.mark.long
def test_a_cap_on_uses_holds_where_prices_are_known() -> None:
    path = seasons(1)
    run = played(path, DAY, most_uses=12)
    assert gained(run) > gained(played(path, 0, most_uses=12))
    assert run.columns["spent"].sum() <= ROUNDS * run.problem.budget
    assert run.columns["training_size"][50:].mean() > 95


def test_a_run_that_is_stopped_and_goes_on_decides_the_same() -> None:
    path = seasons(2)[:120]
    given = problem(path, DAY)
    whole = simulate(tide(given), given, RecordedPrices(path), 0)
    half = simulate(tide(given), given, RecordedPrices(path), 0, until=60)
    rest = simulate(tide(given), given, RecordedPrices(path), 0, resume=half.final)
    np.testing.assert_array_equal(rest.columns["admitted"], whole.columns["admitted"][60:])


def test_orders_can_be_sent_where_prices_fall_to_next_to_nothing() -> None:
    """All that is bought costs less than is allowed, so that no multiplier is low enough."""
    path = [10.0] * 60 + [0.1] * 60 + [0.0] * 60
    one = Tide(budget=55.0, num_rounds=None, total_capacity=100)
    state = one.start()
    for now, price in enumerate(path):
        quote = Quote(price, ahead=tuple(path[now + 1 : now + 49]), empty_slots=0)
        state = one.learn(state, quote)
        order = one.decide(state, quote, limit=100.0)
        assert max(order.thresholds) <= 10.0
        assert order.thresholds[-1] >= price or price == 10.0
        state = one.settle(state, RoundTotals(5, 5 * price, 100, 0, 500, slots=100))


def test_prices_of_clients_own_are_not_known_ahead() -> None:
    given = problem(seasons(0), known_ahead=5)
    with pytest.raises(ConfigurationError, match="known_ahead=5 needs one price for all clients"):
        simulate(tide(given), given, UniformPrice(1, 10), 0, price_per_client=True)


@pytest.mark.parametrize("wrong", [-1, 1.5, True])
def test_what_is_no_number_of_rounds_is_refused(wrong: float) -> None:
    with pytest.raises(ConfigurationError, match="known_ahead must be a whole number"):
        problem(seasons(0), wrong)  # type: ignore[arg-type]
