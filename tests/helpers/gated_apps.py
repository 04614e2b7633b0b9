"""A small app for tests: a linear model in NumPy, whose clients are gated."""

from collections.abc import Callable
from typing import Any

import numpy as np
from flwr.app import Array, ArrayRecord, Context, Message
from flwr.clientapp import ClientApp

from tidegate.client.taking import Acquire
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
        with gate.round(message, context) as now:
            on_train(message, context)
            if not now.samples:
                return now.reply()
            w, b = message.content.array_records["arrays"].to_numpy_ndarrays()
            points = np.array([point for point, _ in now.samples])
            targets = np.array([target for _, target in now.samples])
            for _ in range(5):
                error = points @ w + b - targets
                w, b = w - 0.1 * points.T @ error / len(error), b - 0.1 * error.mean()
            trained = ArrayRecord({"w": Array(w), "b": Array(b)})
            return now.reply(trained, {"loss": float(np.mean(error**2))})

    return app
