"""Small runs of three clients, and a server that dies in the middle of one."""

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from flwr.app import Message
from flwr.serverapp.strategy import FedAdam, FedAvg, Strategy
from gated_apps import gated_app

from tidegate.flower import AdmissionControl, LocalGrid
from tidegate.flower.records import asks_who
from tidegate.prices import PricePath, UniformPrice

ROUNDS = 10
DIES_IN = 5
"""The round in which one client has acted, and the server dies before it hears of it."""
RUNS: dict[str, tuple[str, Callable[[], Strategy]]] = {
    "tide": ("tide", lambda: FedAvg(fraction_evaluate=0.0)),
    "acdpp": ("acdpp", lambda: FedAdam(fraction_evaluate=0.0)),
    "constant": ("constant_admission", lambda: FedAvg(fraction_evaluate=0.0)),
}
"""Name of a run, its policy and its strategy."""


class ServerDiesError(Exception):
    """The server is gone: nothing after this point happened."""


class DyingGrid(LocalGrid):
    """Lets one client act in one round, and dies."""

    def send_and_receive(
        self, messages: Iterable[Message], *, timeout: float | None = None
    ) -> list[Message]:
        batch = list(messages)
        if batch and not asks_who(batch[0].content):
            self._trains = getattr(self, "_trains", 0) + 1
            if self._trains == DIES_IN:
                super().send_and_receive(batch[:1])
                raise ServerDiesError
        return super().send_and_receive(batch, timeout=timeout)


def control(name: str, folder: Path) -> AdmissionControl:
    """The server of a run, the same whenever it is called."""
    policy, make_strategy = RUNS[name]
    return AdmissionControl(
        make_strategy(),
        policy,
        budget=22.0,
        prices=PricePath(UniformPrice(1, 10), seed=1),
        folder=folder,
        run=name,
    )


def grid(kind: type[LocalGrid] = LocalGrid) -> LocalGrid:
    """Three clients, whose buffers lie beside the run."""
    nodes: list[dict[str, Any]] = [{"partition-id": number} for number in range(3)]
    return kind(gated_app(), nodes)
