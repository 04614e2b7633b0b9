"""A small app for tests: a linear model in NumPy, whose clients are gated."""

from collections.abc import Callable
from typing import Any

import numpy as np
from flwr.app import Array, ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

from tidegate.client.buying import Acquire
from tidegate.flower import ClientGate

MODEL = ArrayRecord({"w": Array(np.zeros(3)), "b": Array(np.zeros(1))})


def dataset(context: Context) -> list[tuple[Any, float]]:
    """Points on a plane, other ones at each partition."""
    draw = np.random.default_rng(int(context.node_config["partition-id"]))
    points = draw.normal(size=(500, 3))
    return [(point, float(point @ [1.0, -2.0, 0.5] + 3.0)) for point in points]


def capacity(context: Context) -> int:
    return 8 + int(context.node_config["partition-id"])


def gated_app(
    on_train: Callable[[Message, Context], None] = lambda message, context: None,
    acquire: Acquire | None = None,
) -> ClientApp:
    gate = ClientGate(dataset, capacity, acquire=acquire)
    app = ClientApp(mods=[gate])

    @app.train()
    def train(message: Message, context: Context) -> Message:
        samples = list(gate.samples(context))
        on_train(message, context)
        w, b = message.content.array_records["arrays"].to_numpy_ndarrays()
        points = np.array([point for point, _ in samples])
        targets = np.array([target for _, target in samples])
        for _ in range(5):
            error = points @ w + b - targets
            w, b = w - 0.1 * points.T @ error / len(error), b - 0.1 * error.mean()
        trained = ArrayRecord({"w": Array(w), "b": Array(b)})
        metrics = MetricRecord({"loss": float(np.mean(error**2)), "num-examples": len(samples)})
        return Message(RecordDict({"arrays": trained, "metrics": metrics}), reply_to=message)

    return app


def echo_app(gate: ClientGate) -> ClientApp:
    """An app that asks for its samples and replies with the model as it came."""
    app = ClientApp(mods=[gate])

    @app.train()
    def train(message: Message, context: Context) -> Message:
        gate.samples(context)
        arrays = message.content.array_records["arrays"]
        return Message(RecordDict({"arrays": arrays}), reply_to=message)

    return app
