"""A fleet whose nodes read from a broker: a stream for every message, closed by nobody."""

import threading
from pathlib import Path

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, Context, Message, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp.strategy import FedAvg
from mosquitto import Broker, decode, identify, needs_mosquitto, subscribed

from tidegate.flower import AdmissionControl, ClientGate, LocalGrid
from tidegate.integrations.mqtt import MqttStream, Spool

ROUNDS = 3
NODES = 2
CAPACITY = 4


@pytest.mark.process
@needs_mosquitto
def test_nodes_admit_what_their_devices_published_in_order(tmp_path: Path) -> None:
    seen: dict[int, list[list[int]]] = {number: [] for number in range(NODES)}
    with Broker(tmp_path / "broker") as broker:

        def open_stream(context: Context) -> MqttStream:
            name = str(context.node_config["partition-id"])
            connection = broker.connection(client_id=f"node-{name}")
            spool = Spool(tmp_path / f"{name}.spool")
            return MqttStream(connection, f"readings/{name}", spool, decode, identify=identify)

        gate = ClientGate(open_stream, buffer_capacity=CAPACITY)
        app = ClientApp(mods=[gate])

        @app.train()
        def train(message: Message, context: Context) -> Message:
            number = int(context.node_config["partition-id"])
            seen[number].append(list(gate.samples(context)))
            arrays = message.content.array_records["arrays"]
            return Message(RecordDict({"arrays": arrays}), reply_to=message)

        nodes: list[dict[str, int | str]] = [
            {"partition-id": number, "tidegate-folder": str(tmp_path / "buffers")}
            for number in range(NODES)
        ]
        grid = LocalGrid(app, [{**node} for node in nodes])
        for context in (context_of(node) for node in nodes):
            subscribed(open_stream(context)).close()
        for number in range(NODES):
            broker.device(str(number)).publish_and_wait(50)
        control = AdmissionControl(FedAvg(fraction_evaluate=0.0), "tide", budget=100.0, prices=1.0)
        control.start(grid, ArrayRecord({"w": Array(np.zeros(2))}), num_rounds=ROUNDS)
        for number in range(NODES):
            assert [len(samples) for samples in seen[number]] == [CAPACITY] * ROUNDS
            admitted = sorted({sample for samples in seen[number] for sample in samples})
            assert admitted == list(range(len(admitted)))  # none left out, none before its turn
            health = open_stream(context_of(nodes[number])).health()
            assert (health.received - health.waiting, health.gaps) == (len(admitted), 0)
    assert not [one.name for one in threading.enumerate() if "node-" in one.name]


def context_of(node: dict[str, int | str]) -> Context:
    return Context(run_id=1, node_id=1, node_config=dict(node), state=RecordDict(), run_config={})
