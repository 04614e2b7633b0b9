"""A small run that tells sinks what it does."""

from collections.abc import Callable
from pathlib import Path

from flwr.app import ArrayRecord, MetricRecord
from flwr.serverapp.strategy import FedAvg
from gated_apps import MODEL, gated_app

from tidegate.flower import AdmissionControl, LocalGrid
from tidegate.prices import PricePath, UniformPrice
from tidegate.runs.sinks import Sink

ROUNDS = 6


def evaluate(server_round: int, arrays: ArrayRecord) -> MetricRecord:
    """What is a list, or no number that a float can be, is told to nobody."""
    return MetricRecord({"accuracy": server_round / 10, "lists": [1.0, 2.0], "huge": 10**400})


def told_run(
    *told: Sink,
    folder: Path | None = None,
    rounds: int = ROUNDS,
    budget: float = 22.0,
    fails_in: int = 0,
    evaluate_fn: Callable[[int, ArrayRecord], MetricRecord] = evaluate,
) -> AdmissionControl:
    """A run of four clients, until its end."""

    def judge(server_round: int, arrays: ArrayRecord) -> MetricRecord:
        if fails_in and server_round == fails_in:
            raise ValueError("no more")
        return evaluate_fn(server_round, arrays)

    one = AdmissionControl(
        FedAvg(fraction_evaluate=0.0),
        "tide",
        budget=budget,
        prices=PricePath(UniformPrice(1, 10), seed=1),
        folder=folder,
        sinks=told,
    )
    grid = LocalGrid(gated_app(), [{"partition-id": number} for number in range(4)])
    one.start(grid, MODEL, rounds, evaluate_fn=judge)
    return one
