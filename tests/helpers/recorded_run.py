"""A run that was saved to a folder, in a second."""

import math
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
from flwr.app import Array, ArrayRecord, Context, Message, MetricRecord
from flwr.serverapp.strategy import FedAvg
from gated_apps import MODEL, gated_app

from tidegate.flower import AdmissionControl, LocalGrid
from tidegate.prices import PriceFeed, PricePath, UniformPrice

BUDGET = 22.0
ROUNDS = 8
ALL = -2
"""Every client fails."""


class ServerStopsError(Exception):
    """A server that stops."""


def recorded_run(
    folder: Path,
    *,
    policy: str = "tide",
    run: str = "recorded",
    until: int = ROUNDS,
    failing: int = -1,
    poisoned: bool = False,
    diverging_from: int = ROUNDS + 1,
    prices: PriceFeed | None = None,
) -> AdmissionControl:
    """A run, or the part of it up to a round; one client may fail from the third round on.

    Every client may send a model that is no number, and the model be judged as none from a round.
    """

    def on_train(message: Message, context: Context) -> None:
        mine = failing in (ALL, context.node_config["partition-id"])
        if mine and len(one.rounds) >= 2:
            raise RuntimeError("no disk")
        if poisoned:
            message.content["arrays"] = ArrayRecord(
                {name: Array(array.numpy() * np.nan) for name, array in MODEL.items()}
            )

    def evaluate(server_round: int, arrays: ArrayRecord) -> MetricRecord:
        if server_round > until:
            raise ServerStopsError
        return MetricRecord(
            {"accuracy": server_round / 10 if server_round < diverging_from else math.nan}
        )

    one = AdmissionControl(
        FedAvg(fraction_evaluate=0.0),
        policy,
        budget=BUDGET,
        prices=prices or PricePath(UniformPrice(1, 10), seed=1),
        folder=folder,
        run=run,
    )
    nodes: list[dict[str, Any]] = [{"partition-id": number} for number in range(4)]
    for number, node in enumerate(nodes):
        node["tidegate-folder"] = str(folder / f"buffers-{number}")
    with suppress(ServerStopsError):
        one.start(LocalGrid(gated_app(on_train), nodes), MODEL, ROUNDS, evaluate_fn=evaluate)
    return one
