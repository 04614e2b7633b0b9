"""More samples stored than trained on: the simulation against counting, gates and the limit."""

import io
import itertools
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from late_samples import LateFleet

from tidegate import buffer
from tidegate._internal import saving
from tidegate.client.gate import Gate
from tidegate.client.store import Store
from tidegate.client.streams import IndexedStream
from tidegate.errors import ConfigurationError
from tidegate.policies import ControlOptions
from tidegate.policies.presets import make_policy
from tidegate.prices import Price, UniformPrice
from tidegate.problem import EarlierSamples, Problem
from tidegate.problem.delays import Delays
from tidegate.server.ledger import Ledger
from tidegate.simulation.limits import full_buffers, most_effective
from tidegate.simulation.orders import with_prices_ahead
from tidegate.simulation.rounds import begin, play_round, simulate
from tidegate.wire import Introduction, Order, Receipt

pytestmark = pytest.mark.no_cover  # long loops, covered elsewhere

LAW, STRICT, ROUNDS = UniformPrice(1, 10), ControlOptions(spend_ahead=0.0), 120
SIZES = (8, 9, 10, 11, 12) * 2


def prices_of(seed: int) -> list[tuple[Price, tuple[float, ...]]]:
    return list(itertools.islice(with_prices_ahead(LAW, seed, None, 0), ROUNDS))


def problem_with(times: int, rounds: int = 1000) -> Problem:
    capacities = [times * size for size in SIZES]
    return Problem(
        buffer_capacities=capacities,
        train_on=SIZES,
        budget=55.0,
        mean_price=5.5,
        num_rounds=rounds,
    )


@settings(max_examples=15, deadline=None)
@given(
    capacity=st.integers(2, 12),
    training=st.integers(1, 9),
    name=st.sampled_from(["tide", "constant_admission", "acdpp"]),
    delay=st.integers(0, 3),
)
def test_uses_are_those_of_samples_counted_one_by_one(
    capacity: int, training: int, name: str, delay: int
) -> None:
    problem = Problem(
        buffer_capacities=[capacity],
        train_on=min(training, capacity - 1),
        budget=3.0,
        mean_price=5.5,
        num_rounds=ROUNDS,
        delays=Delays(delay, delay),
        earlier=EarlierSamples(stored=[[1, 1]]),
    )
    policy = make_policy(name, problem)
    state, held, gone = begin(policy, problem, 3), [1, 0], list[int]()
    assert state.training.uses[0].tolist() == held
    for price, _ in prices_of(3):
        state, row = play_round(policy, problem, state, price)
        after = state.training.uses[0].tolist()
        whole = held + [0] * row.admitted
        gone += whole[: len(whole) - len(after)]
        whole = whole[len(whole) - len(after) :]
        assert row.training_size == min(len(whole), training, capacity - 1)
        least = [use + (place < row.training_size) for place, use in enumerate(sorted(whole))]
        assert sorted(after) == sorted(least)
        uses = [*gone, *after]
        squares = sum(use * use for use in uses)
        assert row.effective_samples == pytest.approx(sum(uses) ** 2 / max(squares, 1))
        held = after


def test_to_train_on_all_is_what_it_was() -> None:
    whole, same = (
        problem_with(1, 100),
        Problem(buffer_capacities=SIZES, budget=55.0, mean_price=5.5, num_rounds=100),
    )
    for name in ("tide", "constant_admission"):
        runs = [simulate(make_policy(name, one, STRICT), one, LAW, 1) for one in (whole, same)]
        for column, values in runs[0].columns.items():
            np.testing.assert_array_equal(values, runs[1].columns[column])


@pytest.mark.long
@pytest.mark.parametrize("times", [4, 8])
def test_tide_reaches_the_limit(times: int) -> None:
    problem = problem_with(times)
    limit = full_buffers(problem, LAW, None)
    assert limit is not None
    runs = [simulate(make_policy("tide", problem, STRICT), problem, LAW, seed) for seed in range(3)]
    gained = [run.columns["effective_samples"][-1] / 1000 for run in runs]
    assert np.mean(gained) >= 0.97 * limit.effective_per_round
    assert np.mean(gained) <= (most_effective(problem, LAW) or 0.0)
    assert max(run.columns["spent"].mean() for run in runs) <= 55.0 * (1 + 1e-9)
    assert max(run.columns["training_size"].max() for run in runs) == 100


def test_a_gate_trains_on_the_least_used_as_the_simulation_does() -> None:
    """Equal samples are drawn, so counts are near and not the same."""
    problem = Problem(
        buffer_capacities=[40], train_on=10, budget=5.5, mean_price=5.5, num_rounds=ROUNDS
    )
    policy = make_policy("tide", problem, STRICT)
    gate = Gate(Store(None, "r", "a", 40, train_on=10), IndexedStream(range(10_000)))
    state, uses, squares = begin(policy, problem, 3), 0, 0
    for now, (price, _) in enumerate(prices_of(3), start=1):
        bought = int(state.bought[0])
        state, row = play_round(policy, problem, state, price)
        count = int(state.bought[0]) - bought
        order = Order(
            run="r", round_number=now, price=row.price, retention="oldest_first", count=count
        )
        receipt = gate.apply(order)
        assert receipt.occupancy == row.training_size
        uses += receipt.occupancy
        squares += 2 * (receipt.uses - receipt.occupancy) + receipt.occupancy
    assert uses**2 / squares == pytest.approx(row.effective_samples, rel=0.03)


def test_the_state_of_training_is_saved() -> None:
    problem = problem_with(4, 60)
    policy = make_policy("tide", problem, STRICT)
    whole = simulate(policy, problem, LAW, 2)
    half = simulate(policy, problem, LAW, 2, until=25)
    file = io.BytesIO()
    saving.write(half.final, file)
    file.seek(0)
    rest = simulate(policy, problem, LAW, 2, resume=saving.read(begin(policy, problem, 2), file))
    joined = [*half.columns["effective_samples"], *rest.columns["effective_samples"]]
    np.testing.assert_array_equal(joined, whole.columns["effective_samples"])


@pytest.mark.parametrize("wrong", [0, 1.5, [1, 2], [-1] * 10])
def test_what_cannot_be_trained_on(wrong: object) -> None:
    with pytest.raises(ConfigurationError, match="train"):
        Problem(
            buffer_capacities=SIZES,
            train_on=wrong,  # type: ignore[arg-type]
            budget=55.0,
            mean_price=5.5,
            num_rounds=9,
        )


def test_a_server_hears_what_its_clients_train_on_and_plans_with_it() -> None:
    problem = replace(problem_with(4, ROUNDS), train_on=10)
    fleet = LateFleet("tide", problem, STRICT, LAW, 3)
    run = simulate(make_policy("tide", problem, STRICT), problem, LAW, 3)
    played = [fleet.play() for _ in range(ROUNDS)]
    spent = sum(row.spent for row in played)
    assert spent == pytest.approx(run.columns["spent"].sum(), rel=1e-9)
    assert played[-1].training_size == 100
    near = pytest.approx(run.columns["effective_samples"][-1], rel=0.03)
    assert played[-1].effective_samples == near


def test_who_trains_may_change_from_order_to_order() -> None:
    """Where a sample is erased, the one that trains instead may have been used more often."""
    ledger = Ledger("r")
    hello = Introduction(run="r", client="a", buffer_capacity=2, buffer_id="b", train_on=1)
    ledger.welcome(hello, None, round_number=1, largest_buffer=None)
    for number, count, uses in ((1, 1, 1), (2, 0, 2), (3, 1, 1), (4, 0, 3)):
        order = Order(
            run="r", round_number=number, price=1.0, retention="oldest_first", count=count
        )
        ledger.send("a", order)
        bought = 1 + (number > 2)
        holding = buffer.holding({number: 1} | ({number - 2: 1} if number > 2 else {}))
        receipt = Receipt(
            run="r",
            round_number=number,
            bought=bought,
            admitted=bought,
            spent=float(bought),
            holding=holding,
            occupancy=1,
            uses=uses,
        )
        ledger.book("a", receipt)
    assert ledger.account("a").newest.uses == 3
