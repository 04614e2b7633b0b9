"""A linear model; one client can be told to stop between commit and reply."""

import os
import time
from pathlib import Path

import numpy as np
from flwr.app import Array, ArrayRecord, Context, Message
from flwr.clientapp import ClientApp
from numpy.typing import NDArray

from tidegate.client.streams import IndexedStream
from tidegate.flower import ClientGate

Points = list[tuple[NDArray[np.float64], float]]


def points_of(number: int) -> Points:
    """All that a client's stream will ever give."""
    points = np.random.default_rng(number).normal(size=(500, 3))
    return [(point, float(point @ [1.0, -2.0, 0.5])) for point in points]


def open_stream(context: Context) -> IndexedStream:
    return IndexedStream(points_of(int(context.node_config["partition-id"])))


gate = ClientGate(open_stream, buffer_capacity=10)
app = ClientApp(mods=[gate])


@app.train()
def train(message: Message, context: Context) -> Message:
    config, number = context.run_config, int(context.node_config["partition-id"])
    with gate.round(message, context) as now:
        if (number, now.receipt.round_number) == (config["pause-client"], config["pause-round"]):
            (Path(str(config["signals"])) / "client").write_text(str(os.getpid()))
            while True:  # until it is killed
                time.sleep(0.05)
        time.sleep(float(config["train-seconds"]))
        if not now.samples:
            return now.reply()
        w = message.content.array_records["arrays"]["w"].numpy()
        points = np.array([point for point, _ in now.samples])
        targets = np.array([target for _, target in now.samples])
        for _ in range(5):
            w = w - 0.1 * points.T @ (points @ w - targets) / len(targets)
        return now.reply(ArrayRecord({"w": Array(w)}))
