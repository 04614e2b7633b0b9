"""The client: windows from the broker, labels from the annotator, and limits on what it keeps."""

import functools
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from flwr.app import Array, ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

from showcase.data import Readings
from showcase.labels import Labels
from showcase.readings import open_readings
from showcase.task import Weights, features, probabilities, train
from tidegate.flower import ClientGate
from tidegate.integrations.mqtt import MqttStream
from tidegate.selection import Selection, find_ranking

KEEP_AT_MOST = "30d"
"""No window trains that the client has held for longer."""


def person(context: Context) -> int:
    """Whose phone this node belongs to, from 1."""
    return int(context.node_config["partition-id"]) + 1


def open_stream(context: Context) -> MqttStream:
    """What the person's phone publishes."""
    config = context.run_config
    port, spools = int(config["broker-port"]), str(config["spools"])
    return _kept(port, spools, str(config["run"]), person(context))


@functools.cache
def _kept(port: int, spools: str, fleet: str, person: int) -> MqttStream:
    """A stream that stays connected as long as this process lives."""
    return open_readings(port, Path(spools), fleet, person)


def supplier(context: Context) -> Labels:
    """Who says what a window shows, rounds later."""
    config = context.run_config
    return Labels(int(config["annotator-port"]), str(config["run"]), person(context))


def buffer_capacity(context: Context) -> int:
    """Labelled windows that this node can store."""
    return int(context.run_config["buffer-capacity"])


def worth(candidates: Sequence[Readings], message: Message, context: Context) -> list[float]:
    """What each window is worth to the model, before its label is paid for."""
    likely = probabilities(_model(message), features(np.stack(candidates)))
    return list(find_ranking(str(context.run_config["ranking"]))(likely))


def selection(context: Context) -> Selection:
    """How many windows to choose from, and how many of the choices are left to chance."""
    config = context.run_config
    return Selection(
        candidates=int(config["candidates"]),
        backlog=int(config["backlog"]),
        random_share=float(config["random-share"]),
        seed=int(config["seed"]),
    )


gate = ClientGate(
    open_stream,
    buffer_capacity,
    supplier=supplier,
    worth=worth,
    selection=selection,
    keep_at_most=KEEP_AT_MOST,
)
app = ClientApp(mods=[gate])


@app.train()
def train_client(message: Message, context: Context) -> Message:
    """Train on all windows that are stored with their labels."""
    samples = list(gate.samples(context))
    config = context.run_config
    steps, rate = int(config["local-steps"]), float(config["learning-rate"])
    model, loss = train(_model(message), samples, steps, rate)
    arrays = ArrayRecord({name: Array(values) for name, values in model.items()})
    metrics = MetricRecord({"train_loss": loss, "num-examples": len(samples)})
    return Message(RecordDict({"arrays": arrays, "metrics": metrics}), reply_to=message)


def _model(message: Message) -> Weights:
    sent = message.content.array_records["arrays"]
    return {name: array.numpy() for name, array in sent.items()}
