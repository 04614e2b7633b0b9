"""What a running server's books cost: time and memory by clients known, without Flower.

    python benchmarks/bookkeeping.py

Every client joins and takes part once; then rounds of a thousand clients are decided, booked and
closed. Memory is that of the books brought back from a checkpoint. A message's bytes are those of
address and order on the way out, and of the receipt on the way back, without the model; a device's
are the files of a buffer in use that holds ten samples of nothing.
"""

import argparse
import contextlib
import gc
import json
import statistics
import tempfile
import time
import tracemalloc
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.progress import track
from rich.table import Table

from tidegate.client.gate import Gate
from tidegate.client.memory_store import MemoryStore
from tidegate.client.sqlite_store import SqliteStore
from tidegate.client.streams import IndexedStream
from tidegate.policies.presets import make_policy
from tidegate.prices import PricePath, UniformPrice
from tidegate.server.controller import Controller
from tidegate.server.fleet import Terms
from tidegate.wire import Introduction, Order, Record

COHORT = 1000
CAPACITY = 10
ROUNDS = 5
RUN = "books"


class Server:
    """A controller and its fleet; what the server does is timed, what clients do is not."""

    def __init__(self, policy: str, clients: int) -> None:
        self.terms = Terms(
            policy=lambda problem: make_policy(policy, problem),
            policy_name=policy,
            budget=5.5 * COHORT,
            prices=PricePath(UniformPrice(1, 10), 1),
            num_rounds=1000,
            fraction_train=min(COHORT / clients, 1.0),
        )
        self.controller = Controller(self.terms, RUN)
        stream = IndexedStream(range(10**6))
        self.gates: dict[str, Gate] = {}
        self.bytes_out = self.bytes_back = 0
        for name in (f"client-{number}" for number in range(clients)):
            store = MemoryStore(RUN, name, CAPACITY)
            buffer_id = store.books().buffer_id
            self.gates[name] = Gate(store, stream)
            self.controller.join(
                Introduction(run=RUN, client=name, buffer_capacity=CAPACITY, buffer_id=buffer_id)
            )

    def round(self, some: Sequence[str]) -> tuple[float, float]:
        """Seconds of deciding, and of booking and closing."""
        started = time.perf_counter()
        orders = self.controller.decide(some, self.gates)
        decided = time.perf_counter()
        receipts = {name: self.gates[name].apply(order) for name, order in orders.items()}
        answered = time.perf_counter()
        for name, receipt in receipts.items():
            self.controller.book(name, receipt)
        self.controller.close()
        self.bytes_out = _size(self.controller.address(some[0]), orders[some[0]])
        self.bytes_back = _size(receipts[some[0]])
        return decided - started, time.perf_counter() - answered


def _size(*records: Record) -> int:
    return sum(len(json.dumps(record.to_record())) for record in records)


def device_bytes() -> int:
    """What a full buffer takes on disk, beside the samples themselves."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "buffer"
        with contextlib.closing(SqliteStore(file, RUN, "client-0", CAPACITY)) as store:
            gate = Gate(store, IndexedStream([b""] * CAPACITY))
            gate.apply(
                Order(run=RUN, round_number=1, count=CAPACITY, price=1.0, retention_horizon=9)
            )
            return sum(one.stat().st_size for one in Path(folder).iterdir())


def measure(policy: str, clients: int) -> list[str]:
    """One row."""
    server = Server(policy, clients)
    names = list(server.gates)
    cohorts = [names[first : first + COHORT] for first in range(0, clients, COHORT)]
    for some in cohorts:
        server.round(some)
    times = [server.round(cohorts[number % len(cohorts)]) for number in range(ROUNDS)]
    decided, booked = (statistics.median(column) for column in zip(*times, strict=True))
    started = time.perf_counter()
    record = server.controller.to_record()
    state = record.pop("state")
    text = json.dumps(record)
    saved = time.perf_counter() - started
    tracemalloc.start()
    back = Controller.from_record(server.terms, {**json.loads(text), "state": state})
    gc.collect()
    held, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    if back.round_number != server.controller.round_number:
        raise SystemExit("the books are not the same")
    return [
        *(policy, f"{clients:,}", f"{1e3 * decided:.0f}", f"{1e3 * booked:.0f}"),
        *(f"{held / clients:,.0f}", f"{1e3 * saved:,.0f}", f"{(len(text) + len(state)) / 1e6:.1f}"),
        f"{server.bytes_out:,} + {server.bytes_back:,}",
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--clients", type=int, nargs="+", default=[1_000, 10_000, 100_000])
    parser.add_argument("--policies", nargs="+", default=["acdpp", "tide"])
    given = parser.parse_args()
    table = Table(
        *("policy", "clients", "decide, ms", "book, ms", "bytes a client"),
        *("checkpoint, ms", "checkpoint, MB", "message, bytes"),
        title=f"Rounds of {COHORT:,} clients; medians of {ROUNDS}",
    )
    cases = [(policy, count) for policy in given.policies for count in given.clients]
    for policy, count in track(cases, "measuring", transient=True):
        table.add_row(*measure(policy, count))
    Console().print(table)
    print(f"A buffer's files on a device: {device_bytes() / 1e3:,.0f} kB")


if __name__ == "__main__":
    main()
