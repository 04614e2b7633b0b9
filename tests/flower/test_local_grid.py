"""The grid in this process, and nodes that are known by name or key."""

import copy
from typing import Any

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Message, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg
from gated_apps import gated_app

from tidegate.flower import AdmissionControl, ClientGate, LocalGrid, run_in_process
from tidegate.flower.flower_internals import NodeInfo, Run
from tidegate.flower.nodes import address_of
from tidegate.flower.records import attach, expect
from tidegate.wire import Address, Introduction

pytestmark = pytest.mark.contract


def counting_app() -> ClientApp:
    app = ClientApp()

    @app.query()
    def count(message: Message, context: Context) -> Message:
        config = message.content.config_records["c"]
        config["n"] = int(config["n"]) + 1  # type: ignore[arg-type]
        seen = context.state.config_records.get("seen", ConfigRecord({"n": 0}))
        context.state["seen"] = ConfigRecord({"n": int(seen["n"]) + 1})  # type: ignore[arg-type]
        answer = ConfigRecord({"n": config["n"], "seen": context.state["seen"]["n"]})  # type: ignore[dict-item]
        return Message(RecordDict({"c": answer}), reply_to=message)

    return app


def test_a_client_cannot_change_what_another_is_sent_and_keeps_its_state() -> None:
    grid = LocalGrid(counting_app(), [{}, {}])
    shared = RecordDict({"c": ConfigRecord({"n": 0})})
    for seen in (1, 2):
        messages = [Message(shared, node_id, "query") for node_id in grid.get_node_ids()]
        replies = grid.send_and_receive(messages)
        records = [dict(reply.content.config_records["c"].items()) for reply in replies]
        assert records == [{"n": 1, "seen": seen}] * 2
    assert shared.config_records["c"]["n"] == 0


def test_messages_are_pushed_and_their_replies_pulled_once() -> None:
    grid = LocalGrid(counting_app(), [{}])
    content = RecordDict({"c": ConfigRecord({"n": 0})})
    message = grid.create_message(content, "query", 2, "group", ttl=3.0)
    ids = grid.push_messages([message])
    assert (message.metadata.message_id, message.metadata.ttl) == (ids[0], 3.0)
    assert len(grid.pull_messages(ids)) == 1
    assert grid.pull_messages(ids) == []
    grid.set_run(Run.create_empty(9))
    assert grid.run.run_id == 9


def test_an_app_runs_in_this_process_with_the_config_of_a_simulation() -> None:
    seen: list[Any] = []
    server = ServerApp()

    @server.main()
    def main(grid: Grid, context: Context) -> None:
        seen.append((len(list(grid.get_node_ids())), context.run_config["x"]))

    run_in_process(server, gated_app(), num_clients=4, run_config={"x": 1})
    assert seen == [(4, 1)]


KEY = "2c70e12b7a0646f92279f427c7b38e7334d8e5389cff167a1dc30e73f826b683"  # printf key | sha256sum


@pytest.mark.parametrize(
    ("node", "client", "fingerprint"),
    [
        (NodeInfo(node_id=3), "", ""),
        (NodeInfo(node_id=3, name="site"), "site", ""),
        (NodeInfo(node_id=3, name="site", public_key=b"key"), "site", KEY),
        (NodeInfo(node_id=3, public_key=b"key"), "", KEY),
    ],
)
def test_nodes_are_asked_by_their_registered_name(
    node: NodeInfo, client: str, fingerprint: str
) -> None:
    asked = Address(run="r", client=client, fingerprint=fingerprint, void_round=3)
    assert address_of(node, "r", void_round=3) == asked


def app_behind(gate: ClientGate) -> ClientApp:
    """One whose training function nobody should reach."""
    app = ClientApp(mods=[gate])
    app.train()(lambda message, context: pytest.fail("the gate answers for it"))
    return app


@pytest.mark.parametrize(
    ("asked", "node_config", "name"),
    [
        ({"client": "registered"}, {"tidegate-client": "own"}, "registered"),
        ({"fingerprint": KEY}, {"tidegate-client": "own", "partition-id": 3}, "own"),
        ({"fingerprint": KEY}, {"partition-id": 3}, "partition-3"),
        ({"fingerprint": KEY}, {}, KEY),
    ],
)
def test_a_node_goes_by_its_registered_name_then_its_own_then_its_key(
    asked: dict[str, Any], node_config: dict[str, Any], name: str
) -> None:
    grid = LocalGrid(app_behind(ClientGate(lambda context: [], buffer_capacity=4)), [node_config])
    content = RecordDict()
    attach(content, Address(run="r", **asked))
    (reply,) = grid.send_and_receive([Message(content, 2, "train")])
    assert expect(reply.content, Introduction).client == name


def test_a_buffer_without_room_is_refused_in_words() -> None:
    app = app_behind(ClientGate(lambda context: range(9), buffer_capacity=lambda context: 0))
    grid = LocalGrid(app, [{"partition-id": 0}])
    content = RecordDict()
    attach(content, Address(run="r", client="a"))
    (reply,) = grid.send_and_receive([Message(content, 2, "train")])
    assert "the result of buffer_capacity must be a whole number of at least 1" in str(
        reply.error.reason
    )


def test_an_app_that_was_copied_with_its_gate_finds_its_samples() -> None:
    """As Ray does it: a copy of the mods, and the training function of the module."""
    gate = ClientGate(lambda context: range(99), buffer_capacity=4)
    app = ClientApp(mods=[copy.copy(gate)])
    seen: list[int] = []

    @app.train()
    def train(message: Message, context: Context) -> Message:
        seen.append(len(gate.samples(context)))
        arrays = message.content.array_records["arrays"]
        return Message(RecordDict({"arrays": arrays}), reply_to=message)

    control = AdmissionControl(FedAvg(fraction_evaluate=0.0), "tide", budget=100.0, prices=1.0)
    model = ArrayRecord({"w": Array(np.zeros(2))})
    control.start(LocalGrid(app, [{"partition-id": n} for n in range(2)]), model, num_rounds=2)
    assert seen == [4, 4, 4, 4]
