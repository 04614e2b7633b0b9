"""Files as a version of Tidegate leaves them, for later versions to read.

``python tests/helpers/old_files.py tests/fixtures/version_X_Y_Z`` makes them with the version that
is installed; run it before a release changes a format, and never again for that version. A name
that ends in ``.sqlite`` makes a client's buffer alone.
"""

import dataclasses
import json
import re
import shutil
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
from flwr.app import Message
from flwr.serverapp.strategy import FedAdam, FedAvg, Strategy
from gated_apps import MODEL, gated_app

from tidegate.client.gate import Gate
from tidegate.client.sqlite_store import SqliteStore
from tidegate.client.streams import IndexedStream
from tidegate.flower import AdmissionControl, LocalGrid
from tidegate.flower.records import asks_who
from tidegate.prices import PricePath, UniformPrice
from tidegate.selection import Selection
from tidegate.wire import Order

ROUNDS = 10
DIES_IN = 5
"""The round in which one client has acted, and the server dies before it hears of it."""
RUNS: dict[str, tuple[str, Callable[[], Strategy]]] = {
    "tide": ("tide", lambda: FedAvg(fraction_evaluate=0.0)),
    "acdpp": ("acdpp", lambda: FedAdam(fraction_evaluate=0.0)),
    "constant": ("constant_admission", lambda: FedAvg(fraction_evaluate=0.0)),
}
"""Name of a run's folder, its policy and its strategy."""


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


def outcome(server: AdmissionControl, arrays: Iterable[Any]) -> dict[str, Any]:
    """What a whole run came to, as JSON can carry it."""
    return {
        "rounds": [dataclasses.asdict(row) for row in server.rounds],
        "weights": [np.ravel(array).tolist() for array in arrays],
    }


def make(folder: Path) -> None:
    """A run that is over, the same run interrupted, and what it came to, for each of the runs."""
    for name in RUNS:
        whole = control(name, folder / name / "finished")
        result = whole.start(grid(), MODEL, ROUNDS)
        told = outcome(whole, (array.numpy() for array in result.arrays.values()))
        (folder / name / "outcome.json").write_text(json.dumps(told))
        try:
            control(name, folder / name / "interrupted").start(grid(DyingGrid), MODEL, ROUNDS)
        except ServerDiesError:
            continue
        raise RuntimeError("the server did not die")
    for journal in folder.rglob("metrics.jsonl"):
        text = re.sub(r'"machine": "[^"]*"', '"machine": "somewhere"', journal.read_text())
        journal.write_text(text)
    for buffers in folder.glob("*/finished/buffers"):
        shutil.rmtree(buffers)


def make_buffer(path: Path) -> None:
    """A client's buffer with candidates that wait, and one that was chosen and not paid for."""

    def acquire(letter: str, key: str) -> str:
        if letter == "e":
            raise OSError("nobody knows e")
        return letter.upper()

    store = SqliteStore(path, "r", "a-client", 4)
    choosing = Selection(candidates=3, backlog=3)
    gate = Gate(store, IndexedStream("abcdefghijkl"), acquire, choosing)
    for now in (1, 2):
        order = Order(run="r", round_number=now, price=1.5 * now, retention_horizon=9, count=2)
        gate.apply(order, worth=lambda letters: [float(ord(letter)) for letter in letters])
    store.close()


if __name__ == "__main__":
    made = Path(sys.argv[1])
    make_buffer(made) if made.suffix == ".sqlite" else make(made)
