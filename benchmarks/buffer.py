"""What a large buffer costs: each thing beside the same thing on raw SQLite, in one run.

    python benchmarks/buffer.py            # up to 10,000 samples of 3 kB and 1,000 of 150 kB
    python benchmarks/buffer.py --full     # up to 100,000 and 10,000

Times are processor time of this process, medians of five rounds; ratios are to the same work on
raw SQLite: a table of numbered blobs with the same settings (write-ahead log, ``synchronous=FULL``,
``secure_delete``), whose numbers are listed once a round. ``folder`` is torch's ``DataLoader``
without workers over a folder of files. Memory is what Python and NumPy held at most beyond what
they held before.
"""

import argparse
import resource
import sqlite3
import tempfile
import tracemalloc
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch.utils.data import DataLoader

from tidegate.client.gate import Gate
from tidegate.client.samples import Samples
from tidegate.client.store import Store
from tidegate.client.streams import IndexedStream
from tidegate.selection import Selection
from tidegate.wire import Order

BATCH, BATCHES, ROUNDS = 32, 20, 5
QUICK = {3_000: (100, 1_000, 10_000), 150_000: (100, 1_000)}
FULL = {3_000: (100, 1_000, 10_000, 100_000), 150_000: (100, 1_000, 10_000)}
Image = NDArray[np.uint8]


class Frames:
    """Images of so many bytes."""

    def __init__(self, size: int, count: int = 10**9) -> None:
        self._image: Image = np.random.default_rng(0).integers(0, 256, size, np.uint8)
        self._count = count

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, index: int) -> Image:
        return self._image ^ np.uint8(index % 251)


class Raw:
    """The same samples in a table of blobs."""

    def __init__(self, path: Path, frames: Frames, capacity: int) -> None:
        self._frames, self._capacity, self._next = frames, capacity, 0
        self._execute = sqlite3.connect(path, isolation_level=None).execute
        for pragma in ("journal_mode = WAL", "synchronous = FULL", "secure_delete = ON"):
            self._execute(f"PRAGMA {pragma}")
        self._execute("CREATE TABLE samples (number INTEGER PRIMARY KEY, content)")

    def replace(self, count: int) -> None:
        """Insert new samples and delete as many of the oldest, on disk and overwritten."""
        end = self._next + count
        while self._next < end:
            self._execute("BEGIN IMMEDIATE")
            for number in range(self._next, min(self._next + 50, end)):
                content = self._frames[number].tobytes()
                self._execute("INSERT INTO samples VALUES (?, ?)", (number, content))
                self._next = number + 1
            oldest = self._next - self._capacity
            self._execute("DELETE FROM samples WHERE number < ?", (oldest,))
            self._execute("COMMIT")
            self._execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()

    def train(self, places: Sequence[int]) -> None:
        """Read batches."""
        numbers = [number for (number,) in self._execute("SELECT number FROM samples")]
        for begin in range(0, len(places), BATCH):
            chosen = ", ".join(str(numbers[place]) for place in places[begin : begin + BATCH])
            query = f"SELECT content FROM samples WHERE number IN ({chosen})"  # noqa: S608
            [np.frombuffer(content, np.uint8).copy() for (content,) in self._execute(query)]


class Ours:
    """A gate that applies one order after another."""

    def __init__(self, path: Path, frames: Frames, capacity: int) -> None:
        self._gate = Gate(Store(path, "r", "c", capacity), IndexedStream(frames))
        self._rounds = 0

    def replace(self, count: int) -> None:
        """Apply an order that lets the oldest samples go."""
        self._rounds += 1
        self._gate.apply(order(self._rounds, count, horizon=100))

    def train(self, places: Sequence[int]) -> None:
        """Read batches."""
        samples = self._gate.samples()
        for begin in range(0, len(places), BATCH):
            samples.__getitems__(places[begin : begin + BATCH])


def order(round_number: int, count: int, horizon: int = 10**6) -> Order:
    """Return an order of a number of samples."""
    return Order(
        run="r", round_number=round_number, price=1.0, retention_horizon=horizon, count=count
    )


def seconds(work: Callable[[], object]) -> float:
    """Return the processor time of this process, with the system's part."""
    before = resource.getrusage(resource.RUSAGE_SELF)
    work()
    after = resource.getrusage(resource.RUSAGE_SELF)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def added(work: Callable[[], object]) -> float:
    """Return the megabytes that were held at most beyond what was held before."""
    tracemalloc.start()
    work()
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return peak / 1e6


def from_folder(folder: Path, frames: Frames, places: Sequence[int]) -> float:
    """Return how long torch's loader takes for these samples from files."""
    for place in {*places}:
        np.save(folder / f"{place}.npy", frames[place])
    files = [folder / f"{place}.npy" for place in places]

    class Folder:
        def __len__(self) -> int:
            return len(files)

        def __getitem__(self, index: int) -> Image:
            image: Image = np.load(files[index])
            return image

    loader: DataLoader[Any] = DataLoader(Folder(), batch_size=BATCH)  # type: ignore[arg-type]
    return seconds(lambda: [None for _ in loader])


def compare(folder: Path, size: int, capacity: int) -> None:
    """Print one row: apply an order of 1 %, train on twenty batches, train on all."""
    frames, share = Frames(size), max(capacity // 100, 1)
    sides = [make(folder / f"{make.__name__}.sqlite", frames, capacity) for make in (Ours, Raw)]
    for _ in range(capacity // share):
        for side in sides:
            side.replace(share)
    draw = np.random.default_rng(1)
    times = np.zeros((ROUNDS, 3, 2))
    files = []
    for number in range(ROUNDS):
        places = draw.integers(0, capacity, BATCH * BATCHES).tolist()
        for which, side in enumerate(sides):
            times[number, 0, which] = seconds(lambda side=side: side.replace(share))  # type: ignore[misc]
            times[number, 1, which] = seconds(lambda side=side: side.train(places))  # type: ignore[misc] # noqa: B023
            if capacity * size < 4e8:
                times[number, 2, which] = seconds(lambda side=side: side.train(range(capacity)))  # type: ignore[misc]
        files.append(from_folder(folder, frames, places))
    ours, raw = np.moveaxis(np.median(times, axis=0), -1, 0)
    cells = [f"{size // 1000:>3} kB x {capacity:>7,}"]
    for mine, other in zip(ours, raw, strict=True):
        cells.append(f"{mine * 1e3:7.1f} ms, {mine / other:4.1f}" if other else "not played")
    cells.append(f"{ours[1] / np.median(files):4.2f}")
    cells.append(f"{added(lambda: sides[0].train(places)):5.1f} MB")
    print("| " + " | ".join(cells) + " |", flush=True)


def backlog(path: Path, count: int) -> None:
    """Print what orders cost beside a full backlog."""
    frames = Frames(3_000, count)
    store = Store(path, "r", "c", 100)
    stream = IndexedStream(frames)
    step = count // 10
    for number in range(1, 11):
        Gate(store, stream, selection=Selection(step, backlog=count)).apply(order(number, 0))
    gate = Gate(store, stream, selection=Selection(20, backlog=count))

    def worth(candidates: Samples) -> list[float]:
        return [float(image[0]) for image in candidates]

    rounds = iter(range(11, 100))
    nothing = [seconds(lambda: gate.apply(order(next(rounds), 0))) for _ in range(ROUNDS)]
    memory = added(lambda: gate.apply(order(next(rounds), 0)))
    print(f"buys nothing beside {count:,}: {np.median(nothing) * 1e3:.1f} ms, {memory:.1f} MB")
    ten = seconds(lambda: gate.apply(order(next(rounds), 10), worth=worth))
    read = seconds(lambda: worth(store.candidates(store.numbers("candidate"), [])))
    memory = added(lambda: gate.apply(order(next(rounds), 10), worth=worth))
    print(f"buys ten of them: {ten:.2f} s, to rate them alone {read:.2f} s, {memory:.1f} MB")


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--full", action="store_true", help="the largest sizes, too")
    sizes = FULL if (full := parser.parse_args().full) else QUICK
    print("| samples | order of 1 % | 20 batches | all | 20 batches, of folder | memory |")
    print("|---|---|---|---|---|---|")
    for size, capacities in sizes.items():
        for capacity in capacities:
            with tempfile.TemporaryDirectory() as folder:
                compare(Path(folder), size, capacity)
    with tempfile.TemporaryDirectory() as folder:
        backlog(Path(folder) / "backlog.sqlite", 100_000 if full else 10_000)


if __name__ == "__main__":
    main()
