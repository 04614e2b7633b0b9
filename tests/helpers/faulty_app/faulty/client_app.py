"""A linear model; clients can be told to stop before a payment, or between commit and reply."""

import os
import random
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from flwr.app import Array, ArrayRecord, Context, Message, RecordDict
from flwr.clientapp import ClientApp
from numpy.typing import NDArray

from tidegate.client.streams import IndexedStream
from tidegate.flower import ClientGate
from tidegate.selection import Selection

from .late_labels import supplier

Points = list[tuple[NDArray[np.float64], float]]


def points_of(number: int) -> Points:
    """All that a client's stream will ever give."""
    points = np.random.default_rng(number).normal(size=(500, 3))
    return [(point, float(point @ [1.0, -2.0, 0.5])) for point in points]


_SERVED: dict[str, Any] = {}
"""Of the node that this process serves: its number, and where it leaves notes."""


def open_stream(context: Context) -> IndexedStream:
    number = int(context.node_config["partition-id"])
    _SERVED.update(number=number, signals=Path(str(context.run_config["signals"])))
    return IndexedStream(points_of(number))


def acquire(point: Any, key: str) -> Any:
    """Note a payment; stop before it if a test wants to kill this client there."""
    number, signals = _SERVED["number"], _SERVED["signals"]
    if (signals / f"stop-before-payment-{number}").exists():
        _stop(signals)
    with (signals / f"paid-{number}").open("a") as paid:
        paid.write(f"{key}\n")
    return point


def _stop(signals: Path) -> None:
    """Wait until this process is killed."""
    (signals / "client").write_text(str(os.getpid()))
    while True:
        time.sleep(0.05)


def worth(candidates: Sequence[Any], message: Message, context: Context) -> list[float]:
    """Another ranking each time."""
    return [random.SystemRandom().random() for _ in candidates]


def selection(context: Context) -> Selection | None:
    count = int(context.run_config["candidates"])
    return Selection(count, backlog=2 * count) if count else None


gate = ClientGate(
    open_stream, buffer_capacity=10, acquire=acquire, worth=worth, selection=selection
)
late_gate = ClientGate(open_stream, buffer_capacity=10, supplier=supplier, give_up_after=25)


def either_gate(
    message: Message, context: Context, call_next: Callable[[Message, Context], Message]
) -> Message:
    """The gate of samples that come at once, or of those that come later."""
    return (late_gate if context.run_config["late"] else gate)(message, context, call_next)


app = ClientApp(mods=[either_gate])


@app.train()
def train(message: Message, context: Context) -> Message:
    config, number = context.run_config, int(context.node_config["partition-id"])
    server_round = message.content.config_records["config"]["server-round"]
    if (number, server_round) == (config["pause-client"], config["pause-round"]):
        _stop(Path(str(config["signals"])))
    time.sleep(float(config["train-seconds"]))
    samples = list(gate.samples(context))
    w = message.content.array_records["arrays"]["w"].numpy()
    points = np.array([point for point, _ in samples])
    targets = np.array([target for _, target in samples])
    for _ in range(5):
        w = w - 0.1 * points.T @ (points @ w - targets) / len(targets)
    return Message(RecordDict({"arrays": ArrayRecord({"w": Array(w)})}), reply_to=message)
