"""FedAvg under a budget; the server can be told to stop, and to wait for its nodes."""

import itertools
import json
import os
import time
from collections.abc import Callable, Iterable
from pathlib import Path

import numpy as np
from flwr.app import Array, ArrayRecord, Context, Message
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg

from tidegate.flower import AdmissionControl, Deployment
from tidegate.prices import PricePath, UniformPrice
from tidegate.runs.reader import saved_books

app = ServerApp()


def heard(folder: Path) -> list[str]:
    """The clients whose receipts of the round that was closed last came in time."""
    books = saved_books(folder)
    newest = {name: one.newest.round_number for name, one in books.accounts.items()}
    return [name for name, last in newest.items() if last == books.closed_round > 0]


def closed_rounds(folder: Path) -> int:
    """Rounds that were played, by this process or an earlier one."""
    path = folder / "rounds.jsonl"
    return len(path.read_text().splitlines()) if path.exists() else 0


def wait(until: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 600
    while not until():
        if time.monotonic() > deadline:
            raise TimeoutError("nobody came")
        time.sleep(0.05)


@app.main()
def main(grid: Grid, context: Context) -> None:
    config = context.run_config
    signals, folder = Path(str(config["signals"])), Path(str(config["folder"]))

    calls = itertools.count()

    def note(what: str, **more: object) -> None:
        with (signals / "trace.jsonl").open("a") as file:
            file.write(json.dumps({"time": time.time(), "what": what, **more}) + "\n")

    def after(server_round: int, arrays: ArrayRecord) -> None:
        if next(calls):  # the first comes before any round
            note("round", round=server_round, heard=heard(folder))
        if server_round and server_round == config["pause-server"]:
            (signals / "server").write_text(str(os.getpid()))
            wait(lambda: False)  # until it is killed
        if server_round and server_round == config["calm-round"]:
            wait((signals / "calm").exists)
            note("calm")
        if server_round >= 3:
            wait(lambda: len(list(grid.get_node_ids())) >= int(config["await-nodes"]))

    ask = grid.send_and_receive

    def seconds() -> float:
        """How long the next round waits for its clients."""
        rough = closed_rounds(folder) + 1 >= int(config["rough-round"])
        return float(config["timeout"]) if rough and not (signals / "calm").exists() else 600.0

    def patient(messages: Iterable[Message], *, timeout: float | None = None) -> Iterable[Message]:
        return ask(messages, timeout=seconds())

    grid.send_and_receive = patient  # type: ignore[method-assign]
    strategy = AdmissionControl(
        FedAvg(fraction_evaluate=0.0),
        str(config["policy"]),
        budget=16.5,
        prices=PricePath(UniformPrice(1, 10), seed=1),
        folder=folder,
        run=str(config["run"]),
        deployment=Deployment(time_to_live=float(config["time-to-live"])),
    )
    note("start", pid=os.getpid())
    strategy.start(
        grid,
        ArrayRecord({"w": Array(np.zeros(3))}),
        num_rounds=int(config["num-server-rounds"]),
        timeout=seconds(),
        evaluate_fn=after,
    )
    note("end")
