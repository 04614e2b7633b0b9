"""A long run in one process with buffers and checkpoints on disk: what grows, and what does not.

python benchmarks/soak.py --rounds 10000 --policy tide

One row for each tenth of the run: milliseconds a round, the process's memory, the largest buffer
file with its log, the checkpoint's files, cost debt, and whether all books agree.
"""

import argparse
import logging
import math
import resource
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from flwr.app import Array, ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp.strategy import FedAvg
from rich.progress import Progress

from tidegate.client.device_file import store_path
from tidegate.client.store import Store
from tidegate.flower import AdmissionControl, ClientGate, LocalGrid
from tidegate.prices import PricePath, UniformPrice

CLIENTS = 4
CAPACITY = 10
BUDGET = 22.0
SAMPLE = 100
"""Numbers in a sample."""
RUN = "soak"


@dataclass(frozen=True)
class Row:
    """A tenth of the run, as it is at its end."""

    round_number: int
    milliseconds: float
    """A round, on average over the tenth."""
    memory: float
    """MB that the process holds."""
    buffer_file: float
    """kB of the largest buffer's files."""
    checkpoint: float
    """kB of the books and the model."""
    history: float
    """kB of rounds.jsonl, which has a row for every round."""
    cost_debt: float
    discrepancies: int


def make_app() -> ClientApp:
    def open_stream(context: Context) -> "Endless":
        return Endless(int(context.node_config["partition-id"]))

    gate = ClientGate(open_stream, CAPACITY)
    app = ClientApp(mods=[gate])

    @app.train()
    def train(message: Message, context: Context) -> Message:
        mean = np.mean(gate.samples(context), axis=0)
        arrays = ArrayRecord({"mean": Array(mean)})
        metrics = MetricRecord({"norm": float(mean @ mean)})
        return Message(RecordDict({"arrays": arrays, "metrics": metrics}), reply_to=message)

    return app


class Endless:
    """Sample number i can be had at once, so that a stream is read on where it stopped."""

    def __init__(self, seed: int) -> None:
        self._seed, self._taken = seed, 0

    @property
    def cursor(self) -> str:
        """Samples taken."""
        return str(self._taken)

    def seek(self, cursor: str) -> None:
        """Go on after so many samples."""
        self._taken = int(cursor)

    def take(self, count: int) -> list[np.ndarray]:
        """The next samples."""
        numbers = range(self._taken, self._taken + count)
        self._taken += count
        return [np.random.default_rng((self._seed, one)).normal(size=SAMPLE) for one in numbers]


def size(*paths: Path) -> float:
    return sum(path.stat().st_size for path in paths if path.exists()) / 1e3


def memory() -> float:
    """MB that are in use now, not at the peak."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize() / 1e6


def discrepancies(strategy: AdmissionControl, folder: Path) -> int:
    """Accounts that differ from their client's own file."""
    wrong, ledger = 0, strategy._running().ledger  # noqa: SLF001 - between two rounds
    for client in ledger.clients:
        store = Store(store_path(folder / "buffers", RUN, client), RUN, client, CAPACITY)
        books, account = store.books(), ledger.account(client)
        store.close()
        same = (
            account.admitted == books.admitted
            and math.isclose(account.paid, books.spent)
            and account.newest.round_number == books.last_round
        )
        wrong += not same
    booked = math.fsum(row.spent for row in strategy.rounds)
    accounts = math.fsum(ledger.account(client).paid for client in ledger.clients)
    return wrong + (not math.isclose(booked, accounts))


def soak(folder: Path, rounds: int, policy: str, progress: Progress | None = None) -> list[Row]:
    """Play the run, and measure after every tenth of it."""
    configs: list[dict[str, int | str]] = [
        {"partition-id": number, "tidegate-folder": str(folder / "buffers")}
        for number in range(CLIENTS)
    ]
    strategy = AdmissionControl(
        FedAvg(fraction_evaluate=0.0),
        policy,
        budget=BUDGET,
        prices=PricePath(UniformPrice(1, 10), seed=1),
        folder=folder / "run",
        run=RUN,
    )
    measured: list[Row] = []
    tenth = max(rounds // 10, 1)
    began = [time.perf_counter()]
    task = None if progress is None else progress.add_task(policy, total=rounds)

    def after(now: int, _: ArrayRecord) -> None:
        if progress is not None and task is not None:
            progress.update(task, completed=now)
        if not now or now % tenth:
            return
        seconds = time.perf_counter() - began[0]
        run = folder / "run"
        files = [
            [path, path.with_name(f"{path.name}-wal")]
            for path in (folder / "buffers").glob("*.sqlite")
        ]
        measured.append(
            Row(
                round_number=now,
                milliseconds=1e3 * seconds / tenth,
                memory=memory(),
                buffer_file=max(size(*one) for one in files),
                checkpoint=size(run / "books.sqlite", *run.glob("model-*.npz")),
                history=size(run / "rounds.jsonl"),
                cost_debt=strategy.rounds[-1].cost_debt,
                discrepancies=discrepancies(strategy, folder),
            )
        )
        began[0] = time.perf_counter()

    grid = LocalGrid(make_app(), configs)
    strategy.start(grid, ArrayRecord({"mean": Array(np.zeros(SAMPLE))}), rounds, evaluate_fn=after)
    return measured


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=10_000)
    parser.add_argument("--policy", default="tide")
    options = parser.parse_args()
    for name in ("flwr", "tidegate"):
        logging.getLogger(name).setLevel(logging.ERROR)
    with tempfile.TemporaryDirectory() as folder, Progress(transient=True) as progress:
        rows = soak(Path(folder), options.rounds, options.policy, progress)
    print(f"{options.policy}, {CLIENTS} clients of {CAPACITY} slots, {options.rounds} rounds\n")
    print("| round | ms a round | memory, MB | buffer, kB | checkpoint, kB | history, kB | debt |")
    print("|---|---|---|---|---|---|---|")
    for row in rows:
        print(f"| {row.round_number} | {row.milliseconds:.1f} | {row.memory:.1f} "
              f"| {row.buffer_file:.0f} | {row.checkpoint:.1f} | {row.history:.0f} "
              f"| {row.cost_debt:.1f} |")  # fmt: skip
    print(f"\ndiscrepancies: {sum(row.discrepancies for row in rows)}")


if __name__ == "__main__":
    main()
