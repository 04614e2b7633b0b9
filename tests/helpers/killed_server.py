"""A server in a process of its own that ends itself with SIGKILL in the middle of a round."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
from flwr.app import Array, ArrayRecord, Context, Message, MetricRecord
from flwr.serverapp.strategy import FedAdagrad, FedAdam, FedAvg, FedAvgM, FedYogi, Result, Strategy
from gated_apps import MODEL, gated_app

from tidegate.flower import AdmissionControl, LocalGrid
from tidegate.runs.reader import read_run

ROUNDS = 6
DIES_IN = 4


class Momentum(FedAvg):
    """A user's own strategy: momentum at the server, in arrays that it changes in place."""

    def __init__(self) -> None:
        super().__init__(fraction_evaluate=0.0)
        self.before: dict[str, Any] = {}
        self.velocity: dict[str, Any] = {}
        self.steps = 0

    def configure_train(self, server_round: int, arrays: ArrayRecord, *rest: Any) -> Any:
        self.before = {name: array.numpy() for name, array in arrays.items()}
        return super().configure_train(server_round, arrays, *rest)

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        arrays, metrics = super().aggregate_train(server_round, replies)
        if arrays is None:
            return arrays, metrics
        self.steps += 1
        moved = {}
        for name, array in arrays.items():
            velocity = self.velocity.setdefault(name, np.zeros_like(array.numpy()))
            velocity *= 0.9
            velocity += array.numpy() - self.before[name]
            moved[name] = Array(self.before[name] + velocity / (1 + 0.1 * self.steps))
        return ArrayRecord(moved), metrics


class SavedMomentum(Momentum):
    """The same, with the two methods."""

    def state(self) -> dict[str, Any]:
        return {"velocity": self.velocity, "steps": self.steps}

    def restore(self, state: dict[str, Any]) -> None:
        self.velocity, self.steps = state["velocity"], state["steps"]


STRATEGIES: dict[str, Callable[[], Strategy]] = {
    "SavedMomentum": SavedMomentum,
    "FedAdam": lambda: FedAdam(fraction_evaluate=0.0),
    "FedYogi": lambda: FedYogi(fraction_evaluate=0.0),
    "FedAdagrad": lambda: FedAdagrad(fraction_evaluate=0.0),
    "FedAvgM": lambda: FedAvgM(fraction_evaluate=0.0, server_momentum=0.9),
}


def serve(folder: Path, strategy: Strategy, dies_in: int = 0) -> Result:
    """Play a run, or the part of it up to a client's training in a round."""

    def on_train(message: Message, context: Context) -> None:
        if len(control.rounds) == dies_in - 1 and context.node_config["partition-id"] == 1:
            os.kill(os.getpid(), signal.SIGKILL)

    control = AdmissionControl(
        strategy, "acdpp", budget=16.5, prices="uniform:1,10", folder=folder, run="r"
    )
    nodes: list[dict[str, Any]] = [
        {"partition-id": number, "tidegate-folder": str(folder / "buffers")} for number in range(3)
    ]
    return control.start(LocalGrid(gated_app(on_train), nodes), MODEL, ROUNDS)


def killed(folder: Path, name: str) -> None:
    """Let a server of its own process die by SIGKILL in its fourth round."""
    path = os.pathsep.join([str(Path(__file__).parent), *sys.path])
    done = subprocess.run(
        [sys.executable, __file__, str(folder), name],
        env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == -signal.SIGKILL, done.stderr
    assert len(read_run(folder).rounds) == DIES_IN - 1


if __name__ == "__main__":
    serve(Path(sys.argv[1]), STRATEGIES[sys.argv[2]](), DIES_IN)
