"""What the record of a buffer costs: bytes and time a round, beside the same round without it.

python benchmarks/record.py --rounds 2000

Both buffers are SQLite files with ``synchronous=FULL``; their orders are applied in turn, so that
whatever else the machine does falls on both alike. Without the record, entries are neither written
nor hashed, and samples have no marks; times and origins of samples are kept in both.
"""

import argparse
import sqlite3
import statistics
import tempfile
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from unittest.mock import patch

import numpy as np

from tidegate.client import record
from tidegate.client.gate import Gate
from tidegate.client.store import Change, Store
from tidegate.client.streams import IndexedStream
from tidegate.wire import Order


class Images:
    """Samples of 784 bytes."""

    def __len__(self) -> int:
        return 10**9

    def __getitem__(self, number: int) -> object:
        return np.full(784, number % 251, dtype=np.uint8), number % 10


@contextmanager
def no_record() -> Iterator[None]:
    """Nothing is written to the record."""
    with (
        patch.object(Change, "note", lambda *_, **__: None),
        patch.object(record, "mark_of", lambda *_: "-"),
    ):
        yield


def size(path: Path) -> int:
    """Bytes of a file and of its log."""
    return sum(one.stat().st_size for one in path.parent.glob(f"{path.name}*"))


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=2000)
    parser.add_argument("--capacity", type=int, default=100)
    parser.add_argument("--count", type=int, default=10)
    parser.add_argument("--folder", type=Path, help="On the disk to measure; default: temporary.")
    given = parser.parse_args()
    horizon = given.capacity // given.count
    with tempfile.TemporaryDirectory(dir=given.folder) as folder:
        plain, kept = Path(folder) / "plain.sqlite", Path(folder) / "kept.sqlite"
        with no_record():
            first = Store(plain, "r", "plain", given.capacity)
            gates = [Gate(first, IndexedStream(Images()))]
        second = Store(kept, "r", "kept", given.capacity)
        gates.append(Gate(second, IndexedStream(Images())))
        took: list[list[float]] = [[], []]
        for now in range(1, given.rounds + 1):
            order = Order(
                run="r", round_number=now, price=1.0, retention_horizon=horizon, count=given.count
            )
            for place, gate in enumerate(gates):
                begun = time.perf_counter()
                if place:
                    gate.apply(order)
                else:
                    with no_record():
                        gate.apply(order)
                took[place].append(time.perf_counter() - begun)
        first.close()
        second.close()
        with closing(sqlite3.connect(kept)) as file:
            ((entry,),) = file.execute("SELECT avg(length(entry)) FROM record").fetchall()
        without, with_it = (1e6 * statistics.median(one) for one in took)
        means = [1e6 * statistics.fmean(one) for one in took]
        print(f"{given.rounds} rounds, {given.count} samples a round, {given.capacity} stored")
        print("                       without    with  ratio")
        print(f"us a round, median   {without:9,.0f} {with_it:7,.0f}   {with_it / without:.2f}")
        print(f"us a round, mean     {means[0]:9,.0f} {means[1]:7,.0f}   {means[1] / means[0]:.2f}")
        sizes = [size(one) / 1e3 for one in (plain, kept)]
        print(f"kB of the file       {sizes[0]:9,.0f} {sizes[1]:7,.0f}   {sizes[1] / sizes[0]:.2f}")
        print(f"bytes of an entry    {entry:17,.0f}")


if __name__ == "__main__":
    main()
