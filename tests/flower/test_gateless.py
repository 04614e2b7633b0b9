"""Apps without a gate, with one in the wrong place, or with a function that it cannot serve."""

import re
from collections.abc import Callable
from typing import Any

import pytest
from flwr.app import Context, Message, MetricRecord, RecordDict
from flwr.client import NumPyClient
from flwr.clientapp import ClientApp
from flwr.clientapp.mod import message_size_mod
from flwr.serverapp.strategy import FedAvg
from gated_apps import MODEL, dataset, gated_app

from tidegate.errors import ConfigurationError
from tidegate.flower import AdmissionControl, ClientGate, LocalGrid
from tidegate.flower.folded_fedavg import FoldedFedAvg
from tidegate.flower.records import asks_who

NODES: list[dict[str, Any]] = [{"partition-id": number} for number in range(3)]


def control() -> AdmissionControl:
    return AdmissionControl(FedAvg(fraction_evaluate=0.0), "tide", budget=9.0, prices=1.0)


def echo(message: Message, context: Context) -> Message:
    metrics = MetricRecord({"num-examples": 1})
    return Message(RecordDict({"arrays": MODEL, "metrics": metrics}), reply_to=message)


def needs_a_model(message: Message, context: Context) -> Message:
    raise KeyError("arrays")


def asks_its_gate(message: Message, context: Context) -> Message:
    ClientGate(dataset, 8).samples(context)
    raise AssertionError("there are none")


class HalfGated(LocalGrid):
    """Some nodes run another app; says which were asked who they are."""

    def __init__(self, bare: ClientApp, nodes: set[int]) -> None:
        super().__init__(gated_app(), NODES)
        self.bare, self.nodes = bare, nodes
        self.asked: list[int] = []

    def _answer(self, message: Message) -> Message:
        node_id = message.metadata.dst_node_id
        if asks_who(message.content):
            self.asked.append(node_id)
        if node_id not in self.nodes:
            return super()._answer(message)
        gated, self._client_app = self._client_app, self.bare
        try:
            return super()._answer(message)
        finally:
            self._client_app = gated


@pytest.mark.parametrize("train", [echo, needs_a_model, asks_its_gate])
def test_a_node_without_a_gate_is_asked_less_and_less_often(
    train: Callable[[Message, Context], Message], caplog: pytest.LogCaptureFixture
) -> None:
    bare = ClientApp()
    bare.train()(train)
    grid, strategy = HalfGated(bare, {3}), control()
    with caplog.at_level("WARNING", logger="tidegate"):
        strategy.start(grid, MODEL, num_rounds=15)
    assert grid.asked.count(3) == 4  # in rounds 1, 2, 4 and 8
    assert [row.answered for row in strategy.rounds] == [2] * 15
    assert len(re.findall(r"node 3 is left out: .* mods.*asked again after", caplog.text)) == 4


class Legacy(NumPyClient):
    def fit(self, parameters: Any, config: Any) -> Any:
        return parameters, 1, {}


def client_fn(context: Context) -> Any:
    return Legacy().to_client()


@pytest.mark.parametrize("after", [[], [message_size_mod]])
def test_an_app_made_of_a_client_fn_is_refused_before_money_is_spent(
    after: list[Any], caplog: pytest.LogCaptureFixture
) -> None:
    bought: list[object] = []

    def acquire(sample: object, key: str) -> object:
        bought.append(sample)
        return sample

    app = ClientApp(client_fn, mods=[ClientGate(dataset, 8, acquire=acquire), *after])
    with pytest.raises(ValueError, match="no client can take part"):
        control().start(LocalGrid(app, NODES), MODEL, num_rounds=2)
    assert not bought
    assert "Move its fit() into a function under @app.train()" in caplog.text


@pytest.mark.parametrize("strategy", [FedAvg, FoldedFedAvg])
def test_a_reply_without_arrays_is_named_with_what_it_lacks(
    strategy: type[FedAvg], caplog: pytest.LogCaptureFixture
) -> None:
    gate = ClientGate(dataset, 8)
    app = ClientApp(mods=[gate])

    @app.train()
    def train(message: Message, context: Context) -> Message:
        content = RecordDict({"metrics": MetricRecord({"loss": float(len(gate.samples(context)))})})
        if context.node_config["partition-id"]:
            content["arrays"] = message.content.array_records["arrays"]
        return Message(content, reply_to=message)

    controlled = AdmissionControl(strategy(fraction_evaluate=0.0), "tide", budget=9.0, prices=1.0)
    controlled.start(LocalGrid(app, NODES), MODEL, num_rounds=1)
    lacks = "partition-0 sent no model this round and is left out of the average"
    assert caplog.text.count("sent no model") == caplog.text.count(lacks) == 1


def own_data(message: Message, context: Context, gate: ClientGate) -> Message:
    return Message(RecordDict({"arrays": MODEL}), reply_to=message)


def nothing(message: Message, context: Context, gate: ClientGate) -> Message:
    return Message(RecordDict({"metrics": MetricRecord({"loss": 1.0})}), reply_to=message)


def samples(message: Message, context: Context, gate: ClientGate) -> Message:
    gate.samples(context)
    return own_data(message, context, gate)


def gated(train: Callable[[Message, Context, ClientGate], Message]) -> ClientApp:
    gate = ClientGate(dataset, 8)
    app = ClientApp(mods=[gate])
    app.train()(lambda message, context: train(message, context, gate))
    return app


def test_a_model_that_was_trained_on_other_data_is_refused_and_buying_pauses(
    caplog: pytest.LogCaptureFixture,
) -> None:
    strategy, grid = control(), LocalGrid(gated(own_data), NODES)
    strategy.start(grid, MODEL, num_rounds=4)
    assert grid.answers.failed["train"] == grid.answers.sent["train"] == 3 * 4
    assert [row.admitted > 0 for row in strategy.rounds] == [False, True, False, True]


@pytest.mark.parametrize("train", [samples, nothing])
def test_a_reply_that_asked_for_its_samples_or_has_no_model_passes(
    train: Callable[[Message, Context, ClientGate], Message],
) -> None:
    strategy, grid = control(), LocalGrid(gated(train), NODES)
    strategy.start(grid, MODEL, num_rounds=2)
    assert not grid.answers.failed
    assert [row.answered for row in strategy.rounds] == [3, 3]


def test_a_function_with_a_name_of_its_own_is_introduced_by_its_own_mods() -> None:
    """``train.<action>``: the question goes to the function that is going to train."""

    class Named(FedAvg):
        def configure_train(self, *given: Any) -> list[Message]:
            return [
                Message(one.content, one.metadata.dst_node_id, "train.nightly")
                for one in super().configure_train(*given)
            ]

    gate = ClientGate(dataset, 8)
    app = ClientApp()

    @app.train("nightly", mods=[gate])
    def nightly(message: Message, context: Context) -> Message:
        return samples(message, context, gate)

    app.train()(needs_a_model)
    strategy = AdmissionControl(Named(fraction_evaluate=0.0), "tide", budget=9.0, prices=1.0)
    grid = LocalGrid(app, NODES)
    strategy.start(grid, MODEL, num_rounds=3)
    assert [row.answered for row in strategy.rounds] == [3, 3, 3]
    assert grid.answers.sent["introduction"] == 3
    assert not grid.answers.failed


def test_the_gates_own_refusal_names_the_remedy() -> None:
    with pytest.raises(ConfigurationError, match=r"put the gate into ClientApp\(mods=\[gate\]\)"):
        asks_its_gate(None, None)  # type: ignore[arg-type]


@pytest.mark.parametrize("newer", ["server", "node"])
def test_a_peer_of_another_wire_version_is_told_what_to_install(
    newer: str, caplog: pytest.LogCaptureFixture
) -> None:
    def of_version_2(content: RecordDict) -> None:
        for record in content.config_records.values():
            if "json" in record:
                record["json"] = str(record["json"]).replace('"version":1', '"version":2')

    class Mixed(LocalGrid):
        def _answer(self, message: Message) -> Message:
            if newer == "server":
                of_version_2(message.content)
            reply = super()._answer(message)
            if newer == "node":
                of_version_2(reply.content)
            return reply

    with pytest.raises(ValueError, match="no client can take part"):
        control().start(Mixed(gated_app(), NODES), MODEL, num_rounds=1)
    told = "version 2 is not supported, only 1: install the same version of tidegate on the server"
    assert caplog.text.count(told) >= 3
    assert "mods" not in caplog.text
