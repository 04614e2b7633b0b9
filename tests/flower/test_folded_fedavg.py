"""Averaging as replies arrive: the same model, and memory that does not grow with the clients."""

import gc
import time
import tracemalloc
from collections.abc import Iterable
from typing import Any

import numpy as np
import pytest
from flwr.app import (
    Array,
    ArrayRecord,
    Context,
    Error,
    Message,
    MetricRecord,
    RecordDict,
)
from flwr.clientapp import ClientApp
from flwr.serverapp.strategy import FedAvg, Strategy
from gated_apps import MODEL, gated_app

import tidegate.flower.prompt_grid as module
from tidegate.flower import AdmissionControl, ClientGate, FoldedFedAvg, LocalGrid
from tidegate.flower.prompt_grid import PromptGrid, replies_as_they_arrive
from tidegate.prices import PricePath, UniformPrice


def control(strategy: Strategy, **options: Any) -> AdmissionControl:
    prices = PricePath(UniformPrice(1, 10), seed=1)
    return AdmissionControl(strategy, "acdpp", budget=2000.0, prices=prices, run="r", **options)


def nodes(count: int) -> list[dict[str, Any]]:
    return [{"partition-id": number} for number in range(count)]


def trained(strategy: Strategy) -> tuple[AdmissionControl, ArrayRecord]:
    one = control(strategy)
    result = one.start(LocalGrid(gated_app(), nodes(7)), MODEL, 12)
    return one, result.arrays


def test_the_model_and_the_books_are_those_of_fedavg() -> None:
    plain, model = trained(FedAvg(fraction_evaluate=0.0))
    folded, same = trained(FoldedFedAvg(fraction_evaluate=0.0))
    assert folded.rounds == plain.rounds
    for name in MODEL:
        assert same[name].dtype == model[name].dtype
        np.testing.assert_allclose(same[name].numpy(), model[name].numpy(), rtol=1e-12)


def replies(weights: list[float | list[float]], kind: str = "float32") -> list[Message]:
    draw, asked = np.random.default_rng(0), Message(RecordDict(), 7, "train")
    made = []
    for number, weight in enumerate(weights):
        arrays = ArrayRecord({"w": Array(draw.normal(size=(3, 2)).astype(kind))})
        metrics = MetricRecord({"num-examples": weight, "loss": float(number)})
        made.append(Message(RecordDict({"arrays": arrays, "m": metrics}), reply_to=asked))
    return made


def test_alone_it_averages_as_fedavg_does() -> None:
    LocalGrid(ClientApp(), nodes(1))  # makes this process a server, as Flower wants
    some = replies([3, 1, 4, 1, 5])
    arrays, metrics = FoldedFedAvg().aggregate_train(1, iter(some))
    expected, measured = FedAvg().aggregate_train(1, some)
    assert arrays is not None
    assert expected is not None
    np.testing.assert_allclose(arrays["w"].numpy(), expected["w"].numpy(), rtol=1e-6)
    assert arrays["w"].dtype == "float32"
    assert metrics == measured


@pytest.mark.parametrize("kind", ["float16", "float32", "float64", "int64", "bool"])
def test_every_kind_of_array_has_fedavgs_average(kind: str) -> None:
    LocalGrid(ClientApp(), nodes(1))
    some = replies([1000.0] * 100, kind)
    for number, reply in enumerate(some):
        value = np.array(number % 3).astype(kind)
        reply.content["arrays"] = ArrayRecord({"scalar": Array(value), "v": Array(value[None])})
    arrays, _ = FoldedFedAvg().aggregate_train(1, some)
    expected, _ = FedAvg().aggregate_train(1, some)
    assert arrays is not None
    assert expected is not None
    for name in ("scalar", "v"):
        assert arrays[name].dtype == expected[name].dtype
        found, wanted = arrays[name].numpy(), expected[name].numpy()
        np.testing.assert_allclose(found, wanted, rtol=5e-3 if kind == "float16" else 1e-6)
        assert found.shape == wanted.shape


def test_one_odd_reply_changes_neither_kind_nor_metrics() -> None:
    LocalGrid(ClientApp(), nodes(1))
    odd = replies([1.0], "float16")[0]
    odd.content["m"] = MetricRecord({"num-examples": 1.0, "loss": [1.0, 2.0]})
    silent = Message(RecordDict(), reply_to=Message(RecordDict(), 7, "train"))
    arrays, metrics = FoldedFedAvg().aggregate_train(1, [*replies([2.0, 2.0]), odd, silent])
    assert arrays is not None
    assert arrays["w"].dtype == "float32"
    assert metrics is not None
    assert metrics["loss"] == 0.5


class Impatient(FoldedFedAvg):
    """Takes one reply, and leaves the others."""

    def aggregate_train(self, server_round: int, replies: Iterable[Message]) -> Any:
        return super().aggregate_train(server_round, [next(iter(replies))])


def test_what_a_strategy_does_not_look_at_is_booked_all_the_same() -> None:
    one = control(Impatient(fraction_evaluate=0.0))
    one.start(LocalGrid(gated_app(), nodes(3)), MODEL, 3)
    assert [row.answered for row in one.rounds] == [3, 3, 3]


def test_nothing_to_average_changes_nothing() -> None:
    LocalGrid(ClientApp(), nodes(1))
    asked = Message(RecordDict(), 7, "train")
    wrong = Message(Error(code=1, reason="gone"), reply_to=asked)
    assert FoldedFedAvg().aggregate_train(1, [wrong, *replies([0, [1.0]])]) == (None, None)


PARAMETERS = 500_000


def large_app() -> ClientApp:
    """Every client answers with a model of its own, 4 MB."""
    gate = ClientGate(lambda context: range(1000), buffer_capacity=10)
    app = ClientApp(mods=[gate])

    @app.train()
    def train(message: Message, context: Context) -> Message:
        gate.samples(context)
        values = np.full(PARAMETERS, float(int(context.node_config["partition-id"])))
        arrays = ArrayRecord({"w": Array(values)})
        return Message(RecordDict({"arrays": arrays}), reply_to=message)

    return app


def peak_of(strategy: Strategy, clients: int) -> float:
    """Most memory of two rounds, in models."""
    model = ArrayRecord({"w": Array(np.zeros(PARAMETERS))})
    grid = LocalGrid(large_app(), nodes(clients))
    gc.collect()
    tracemalloc.start()
    try:
        control(strategy).start(grid, model, 2)
        return tracemalloc.get_traced_memory()[1] / (8 * PARAMETERS)
    finally:
        tracemalloc.stop()


@pytest.mark.long
def test_memory_does_not_grow_with_the_clients() -> None:
    few, many = (peak_of(FoldedFedAvg(fraction_evaluate=0.0), count) for count in (30, 150))
    assert many < 1.5 * few
    assert many < 30  # models, in several copies on their way, until Python collects them
    assert peak_of(FedAvg(fraction_evaluate=0.0), 60) > 60


def test_an_update_of_another_form_is_left_out(caplog: pytest.LogCaptureFixture) -> None:
    gate = ClientGate(lambda context: range(1000), buffer_capacity=10)
    app = ClientApp(mods=[gate])

    @app.train()
    def train(message: Message, context: Context) -> Message:
        gate.samples(context)
        name = "other" if context.node_config["partition-id"] == 2 else "w"
        arrays = ArrayRecord({name: Array(np.ones(3))})
        return Message(RecordDict({"arrays": arrays}), reply_to=message)

    one = control(FoldedFedAvg(fraction_evaluate=0.0))
    model = ArrayRecord({"w": Array(np.zeros(3))})
    with caplog.at_level("WARNING", logger="tidegate"):
        result = one.start(LocalGrid(app, nodes(3)), model, 2)
    assert result.arrays["w"].numpy().tolist() == [1.0, 1.0, 1.0]
    assert "partition-2 is left out of the average" in caplog.text
    assert one.rounds[-1].answered == 3


class SlowGrid(LocalGrid):
    """Answers a few messages at each asking, and one never."""

    def __init__(self, *arguments: Any, never: str = "", **named: Any) -> None:
        super().__init__(*arguments, **named)
        self.never = never
        self.asked: list[int] = []

    def one_by_one(self, messages: Iterable[Message]) -> Any:
        raise AssertionError("this grid is no function call")

    def pull_messages(self, message_ids: Iterable[str]) -> list[Message]:
        wanted = list(message_ids)
        self.asked.append(len(wanted))
        return super().pull_messages([one for one in wanted if one != self.never][:2])


def test_replies_are_taken_as_they_come_until_the_timeout(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "SHORTEST_PAUSE", 0.01)
    monkeypatch.setattr(module, "LocalGrid", type("Nothing", (), {}))  # ask it as any other grid
    grid = SlowGrid(gated_app(), nodes(7), never="5")
    messages = [Message(RecordDict(), node_id, "query") for node_id in grid.get_node_ids()]
    arrivals = PromptGrid(grid)
    found = arrivals.send_and_receive(messages, timeout=2.0)
    assert max(grid.asked, default=0) == 0  # sent, and not asked for before somebody looks
    heard = [reply.metadata.reply_to_message_id for reply in found]
    assert sorted(heard) == ["1", "2", "3", "4", "6", "7"]
    grid.never = ""
    late = arrivals.pull_messages(["5"])
    assert [reply.metadata.reply_to_message_id for reply in late] == ["5"]


def test_who_still_answers_is_waited_for_and_who_does_not_is_not() -> None:
    grid, began = SlowGrid(gated_app(), nodes(7), never="5"), time.monotonic()
    messages = [Message(RecordDict(), node_id, "query") for node_id in grid.get_node_ids()]
    found = list(replies_as_they_arrive(grid, messages, 600.0, patience=0.3, at_once=3))
    assert len(found) == 6
    assert 0.3 < time.monotonic() - began < 60
    assert max(grid.asked) == 3
