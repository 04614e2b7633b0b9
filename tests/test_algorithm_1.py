"""Algorithm 1 as one reads it counts what the simulation and a Flower app count, bit for bit."""

import dataclasses
import itertools
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from check_size import at_size
from experiment_scripts import load
from flwr.app import Array, ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp.strategy import FedAvg

import tidegate
from tidegate._internal.arrays import FloatArray
from tidegate._internal.randomness import PRICES, generator
from tidegate.flower import AdmissionControl, ClientGate, LocalGrid, Planning
from tidegate.prices import price_feed
from tidegate.problem import EarlierSamples
from tidegate.server.fleet_round import FleetRound

SCRIPT = Path(__file__).parents[1] / "examples" / "paper" / "algorithm_1.py"


@pytest.fixture
def paper(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    return load(SCRIPT, monkeypatch)


def random_clients(
    paper: ModuleType, problem: tidegate.Problem, samples: int, seed: int
) -> list[Any]:
    draw = np.random.default_rng(seed)
    return [
        paper.Client(
            draw.integers(0, 256, (samples, 3), dtype=np.uint8), draw.integers(0, 10, samples)
        )
        for _ in range(problem.num_clients)
    ]


def prices(problem: tidegate.Problem, seed: int) -> list[float]:
    path = tidegate.UniformPrice(1, 10).rounds(generator(seed, PRICES))
    return [float(next(path)) for _ in range(problem.num_rounds)]


@pytest.mark.parametrize("setting", ["mnist", "cifar10", "imagenette"])
@pytest.mark.parametrize("seed", range(2))
def test_every_round_is_that_of_the_simulation(setting: str, seed: int, paper: ModuleType) -> None:
    experiment = tidegate.EXPERIMENTS[setting]
    problem = experiment.problem(at_size(60, 400, quick=30))
    run = tidegate.simulate(tidegate.make_policy("acdpp", problem), problem, experiment.price, seed)
    clients = random_clients(paper, problem, 20_000, seed)
    rows, models = zip(*paper.algorithm_1(problem, clients, prices(problem, seed)), strict=True)
    for column in rows[0]:
        assert [row[column] for row in rows] == run.columns[column].tolist(), column
    assert np.ptp(models[-1]) > 0


def test_an_initial_state_is_that_of_the_simulation(paper: ModuleType) -> None:
    """q⁰, A⁰, n(0) and N(0) of Algorithm 1's input: clients that have played before."""
    setting = tidegate.EXPERIMENTS["mnist"]
    problem = setting.problem(40)
    clients = random_clients(paper, problem, 2000, seed=3)
    horizon = tidegate.plan_constant_admission(problem).retention_horizon
    draw = np.random.default_rng(4)
    for client, capacity in zip(clients, problem.capacities, strict=True):
        for _ in range(2 * horizon):
            client.admit(int(draw.integers(0, 2) * (len(client.stored) < capacity)))
            client.drop(horizon)
    left = np.zeros(horizon + 1, dtype=int)
    for client in clients:
        gone = np.setdiff1d(np.arange(client.read), client.stored)
        left += np.bincount(client.ages[gone], minlength=horizon + 1)
    stored = np.array(
        [np.bincount(client.ages[client.stored], minlength=horizon) for client in clients]
    )
    earlier = EarlierSamples(stored=stored, left=left)
    assert len(np.flatnonzero(stored.sum(axis=0))) > 5
    begun = dataclasses.replace(problem, earlier=earlier)
    run = tidegate.simulate(tidegate.make_policy("acdpp", begun), begun, setting.price, 0)
    rows, _ = zip(*paper.algorithm_1(problem, clients, prices(problem, 0)), strict=True)
    for column in rows[0]:
        assert [row[column] for row in rows] == run.columns[column].tolist(), column


SUMMED = ("spent", "overspend", "cost_debt", "effective_samples")
"""Sums over clients, which the server's books round otherwise."""


def flower_run(
    paper: ModuleType, clients: list[Any], problem: tidegate.Problem, seed: int
) -> tuple[list[FleetRound], FloatArray, dict[tuple[Any, int], list[int]]]:
    """Play a Flower app with the same data: its rounds, its model, and what clients trained on."""
    gate = ClientGate(
        lambda context: range(len(clients[0].labels)),
        lambda context: 4 * int(problem.capacities[int(context.node_config["partition-id"])]),
    )
    app = ClientApp(mods=[gate])
    trained: dict[tuple[Any, int], list[int]] = {}

    @app.train()
    def train(message: Message, context: Context) -> Message:
        number, places = int(context.node_config["partition-id"]), list(gate.samples(context))
        trained[message.content.config_records["config"]["server-round"], number] = places
        client = paper.Client(clients[number].inputs, clients[number].labels)
        client.stored = np.array(places)
        model = message.content.array_records["arrays"]["model"].numpy()
        arrays = ArrayRecord({"model": Array(model + client.train(model, problem.learning))})
        metrics = MetricRecord({"num-examples": len(places)})
        return Message(RecordDict({"arrays": arrays, "metrics": metrics}), reply_to=message)

    control = AdmissionControl.as_in_paper(
        FedAvg(fraction_evaluate=0.0),
        "acdpp",
        budget=problem.budget,
        prices=price_feed("uniform:1,10", seed),
        planning=Planning(headroom=4, learning=problem.learning),
    )
    start = ArrayRecord({"model": Array(np.zeros((3, 10), dtype=np.float32))})
    grid = LocalGrid(app, [{"partition-id": number} for number in range(len(clients))])
    result = control.start(grid, start, problem.num_rounds)
    assert result.arrays is not None
    return control.rounds, result.arrays["model"].numpy(), trained


@pytest.mark.parametrize("seed", range(2))
def test_every_round_is_that_of_the_flower_app(
    seed: int, paper: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same counts, the same samples in every training, and the same model but for rounding."""
    problem = tidegate.EXPERIMENTS["mnist"].problem(at_size(25, 100, quick=12))
    clients = random_clients(paper, problem, 2000, seed)
    rounds, model, trained = flower_run(paper, clients, problem, seed)
    train, stored = paper.Client.train, []

    def noted(client: Any, *given: Any) -> Any:
        stored.append(client.stored.tolist())
        return train(client, *given)

    monkeypatch.setattr(paper.Client, "train", noted)
    rows, models = zip(*paper.algorithm_1(problem, clients, prices(problem, seed)), strict=True)
    for column in rows[0]:
        played, counted = [getattr(row, column) for row in rounds], [row[column] for row in rows]
        if column in SUMMED:
            assert played == pytest.approx(counted, rel=1e-12, abs=1e-9), column
        else:
            assert played == counted, column
    places = itertools.product(range(1, len(rounds) + 1), range(problem.num_clients))
    assert stored == [trained.get(place, []) for place in places]
    assert model == pytest.approx(models[-1], abs=1e-4)


def test_a_client_trains_by_gradient_descent_on_all_it_stores(paper: ModuleType) -> None:
    """Against differences of the loss; three samples, of which one has left the buffer."""
    draw = np.random.default_rng(0)
    client = paper.Client(draw.integers(0, 256, (3, 4), dtype=np.uint8), np.array([1, 7, 7]))
    client.admit(1)
    client.drop(1)
    client.admit(2)
    assert client.ages.tolist() == [1, 1, 1]
    assert client.stored.tolist() == [1, 2]
    model = draw.normal(size=(4, 10))

    def loss(weights: FloatArray) -> float:
        likely = paper.probabilities(weights, client.inputs[1:] / 255)
        return float(-np.log(likely[:, 7]).mean())

    one_step = tidegate.LearningConstants(local_steps=1, learning_rate=0.25)
    step = client.train(model, one_step)
    for place in np.ndindex(4, 10):
        nudge = np.zeros((4, 10))
        nudge[place] = 1e-5
        slope = (loss(model + nudge) - loss(model - nudge)) / 2e-5
        assert step[place] == pytest.approx(-0.25 * slope, abs=1e-5)


def test_one_local_step_of_each_client_is_one_step_on_all_samples(paper: ModuleType) -> None:
    """eq:global-aggregation with eq:memory-proportional-weight, where all α_m are equal."""
    learning = tidegate.LearningConstants(local_steps=1, learning_rate=0.5)
    problem = tidegate.Problem(
        buffer_capacities=[2, 7], budget=9.0, mean_price=1.0, num_rounds=2, learning=learning
    )
    draw = np.random.default_rng(0)
    clients = [
        paper.Client(draw.integers(0, 256, (99, 3), dtype=np.uint8), draw.integers(0, 10, 99))
        for _ in range(2)
    ]
    ((row, model),) = paper.algorithm_1(problem, clients, [1.0])
    together = paper.Client(
        np.concatenate([client.inputs[: client.read] for client in clients]),
        np.concatenate([client.labels[: client.read] for client in clients]),
    )
    together.admit(len(together.labels))
    assert row["training_size"] == len(together.labels) > 8
    step = together.train(np.zeros((3, 10), dtype=np.float32), learning)
    assert model == pytest.approx(step, abs=1e-6)


def test_streams_are_shared_out_two_digits_a_client(paper: ModuleType) -> None:
    labels = np.repeat(np.arange(10), 6)
    inputs = np.arange(60, dtype=np.uint8)[:, None]
    clients = paper.two_digits_each(inputs, labels, 10, np.random.default_rng(0))
    assert [sorted(set(client.labels.tolist())) for client in clients] == [
        sorted({digit, (digit + 1) % 10}) for digit in range(10)
    ]
    everything = np.concatenate([client.inputs[:, 0] for client in clients])
    assert sorted(everything.tolist()) == list(range(60))


@pytest.mark.long
@pytest.mark.data("mnist")
def test_it_prints_the_row_and_draws_the_figures(
    paper: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    paper.main(20, 2, tmp_path / "figures.png")
    row = dict(line.rsplit(maxsplit=3)[::2] for line in capsys.readouterr().out.splitlines()[1:])
    assert list(row) == [f"{name}" for name in paper.MEASURES]
    assert (tmp_path / "figures.png").stat().st_size > 10_000


def test_without_data_it_says_where_it_looked(
    paper: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(paper, "DATA", tmp_path)
    with pytest.raises(SystemExit, match="set TIDEGATE_DATA"):
        paper.main(20, 1, None)
