"""Samples are read when they are asked for, in any process, and stay those of their round."""

import multiprocessing
import pickle
import sqlite3
import tracemalloc
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader

from tidegate._internal.sqlite_file import databases
from tidegate.client.codec import ArrayCodec
from tidegate.client.forgotten import Forgotten
from tidegate.client.gate import Gate
from tidegate.client.samples import Samples
from tidegate.client.store import Store
from tidegate.client.streams import IndexedStream
from tidegate.client.sweeping import sweep_file
from tidegate.errors import ConfigurationError, SampleGoneError
from tidegate.selection import Selection
from tidegate.wire import Order


class Counting(ArrayCodec):
    """Counts how many samples were read."""

    def __init__(self) -> None:
        super().__init__()
        self.read = 0

    def decode(self, data: bytes) -> Any:
        self.read += 1
        return super().decode(data)


def order(count: int, round_number: int = 1) -> Order:
    return Order(run="r", round_number=round_number, price=1.0, retention_horizon=1000, count=count)


def filled(path: Path | None, data: Any, codec: ArrayCodec | None = None, **options: Any) -> Gate:
    """A gate that has bought all of its data."""
    gate = Gate(Store(path, "r", "site", len(data), codec), IndexedStream(data), **options)
    gate.apply(order(len(data)))
    return gate


@pytest.mark.parametrize("kind", ["memory", "file"])
def test_only_what_is_asked_for_is_read(tmp_path: Path, kind: str) -> None:
    codec = Counting()
    path = tmp_path / "b.sqlite" if kind == "file" else None
    samples = filled(path, [f"sample {n}" for n in range(100)], codec).samples()
    assert (len(samples), codec.read) == (100, 0)
    assert (samples[7], samples[-1], codec.read) == ("sample 7", "sample 99", 2)
    assert samples.__getitems__([3, 1, 3]) == ["sample 3", "sample 1", "sample 3"]
    middle = samples[10:20][::3]
    assert (isinstance(middle, Samples), codec.read) == (True, 5)
    assert list(middle) == ["sample 10", "sample 13", "sample 16", "sample 19"]
    assert list(samples) == [f"sample {n}" for n in range(100)]
    with pytest.raises(IndexError):
        samples[100]


def test_a_transform_is_drawn_anew_whenever_a_sample_is_read(tmp_path: Path) -> None:
    generator = np.random.default_rng(0)
    samples = filled(tmp_path / "b.sqlite", [0.0] * 8).samples()
    noisy = samples.transformed(lambda sample: sample + generator.random())
    assert len({*noisy, *noisy, *noisy[:4]}) == 20
    assert set(samples) == {0.0}


def test_samples_stack_by_their_fields(tmp_path: Path) -> None:
    pairs = [(np.full((2, 2), n, np.float32), n) for n in range(5)]
    images, labels = filled(tmp_path / "a.sqlite", pairs).samples().as_arrays()
    assert (images.shape, images.dtype, labels.tolist()) == ((5, 2, 2), np.float32, [*range(5)])
    rows = [{"x": torch.tensor([n, n + 1]), "y": str(n)} for n in range(3)]
    columns = filled(tmp_path / "b.sqlite", rows).samples().as_arrays()
    assert columns["x"].tolist() == [[0, 1], [1, 2], [2, 3]]
    assert columns["y"].tolist() == ["0", "1", "2"]


@pytest.mark.process
@pytest.mark.parametrize(
    ("kind", "workers", "start"),
    [("file", 0, None), ("file", 2, "fork"), ("file", 2, "spawn"), ("memory", 2, "fork")],
)
@pytest.mark.filterwarnings("ignore:.*use of fork:DeprecationWarning")
@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded")
def test_workers_of_a_loader_read_the_file_themselves(
    tmp_path: Path, kind: str, workers: int, start: str | None
) -> None:
    data = [(np.full(4, n, np.float32), n) for n in range(50)]
    samples = filled(tmp_path / "b.sqlite" if kind == "file" else None, data).samples()
    samples[0]  # this process has a connection, which must not cross a fork
    loader: DataLoader[Any] = DataLoader(
        samples,  # type: ignore[arg-type] # torch asks for no more than its methods
        batch_size=8,
        shuffle=True,
        num_workers=workers,
        multiprocessing_context=start,
    )
    for _ in range(2):
        seen = []
        for images, labels in loader:
            assert torch.equal(images[:, 0].long(), labels)
            seen += labels.tolist()
        assert sorted(seen) == list(range(50))
    assert samples[1][1] == 1


def test_samples_in_memory_cannot_be_sent_to_a_process() -> None:
    with pytest.raises(ConfigurationError, match="keep buffers in files"):
        pickle.dumps(filled(None, [1, 2]).samples())


def test_a_sample_that_is_swept_in_mid_round_is_missed_by_name(tmp_path: Path) -> None:
    path = tmp_path / "b.sqlite"
    gate = filled(path, ["ann 1", "bob 2", "ann 3"], subject=lambda sample: sample.split()[0])
    samples = gate.samples()
    Forgotten(tmp_path).add("ann")
    sweep_file(path)
    assert (len(samples), samples[1]) == (3, "bob 2")
    for place in (0, 2):
        with pytest.raises(SampleGoneError, match="was deleted after the round began"):
            samples[place]
    with pytest.raises(SampleGoneError):
        list(samples)
    assert list(gate.samples()) == ["bob 2"]


def test_samples_of_a_round_that_is_over_say_so(tmp_path: Path) -> None:
    samples = filled(tmp_path / "b.sqlite", [1, 2]).samples()
    part = samples[:1]
    samples.close()
    with pytest.raises(ConfigurationError, match="a round that is over"):
        part[0]


def test_threads_read_and_a_round_ends_all_the_same(tmp_path: Path) -> None:
    samples = filled(tmp_path / "b.sqlite", list(range(20))).samples()
    with ThreadPoolExecutor(2) as pool:
        assert list(pool.map(samples.__getitem__, range(20))) == list(range(20))
    samples.close()


@pytest.mark.process
def test_looking_for_databases_keeps_the_locks_of_this_process(tmp_path: Path) -> None:
    store = Store(tmp_path / "b.data", "r", "site", 3)
    with store.file.changing():
        assert databases(tmp_path) == [tmp_path / "b.data"]
        context = multiprocessing.get_context("spawn")
        with context.Pool(1) as pool:
            assert pool.apply(is_locked, (tmp_path / "b.data",))
    assert databases(tmp_path / "nothing") == []


def is_locked(path: Path) -> bool:
    """Whether another process may not write to a file."""
    file = sqlite3.connect(path, timeout=0, isolation_level=None)
    try:
        file.execute("BEGIN IMMEDIATE")
    except sqlite3.OperationalError:
        return True
    finally:
        file.close()
    return False


def test_candidates_are_read_when_they_are_asked_for(tmp_path: Path) -> None:
    codec = Counting()
    store = Store(tmp_path / "b.sqlite", "r", "site", 10, codec)
    gate = Gate(store, IndexedStream(range(40)), selection=Selection(20, 30, random_share=0))
    gate.apply(order(0), worth=lambda _: pytest.fail("nothing is bought"))
    assert (store.count("candidate"), codec.read) == (20, 0)
    seen: list[Any] = []

    def by_parts(candidates: Samples) -> list[float]:
        assert (len(candidates), codec.read) == (40, 0)
        for begin in range(0, len(candidates), 7):
            seen.extend(candidates[begin : begin + 7])
        return [float(number) for number in seen]

    receipt = gate.apply(order(3, 2), worth=by_parts)
    assert (seen, receipt.bought, store.count("candidate")) == (list(range(40)), 3, 30)
    assert sorted(gate.samples()) == [37, 38, 39]
    assert store.numbers("candidate")[0] == 8, "the oldest are pushed out"


@pytest.mark.long
def test_a_round_needs_the_memory_of_a_few_batches(tmp_path: Path) -> None:
    size, count, batch = 150_000, 2000, 32

    class Frames:
        def __len__(self) -> int:
            return count

        def __getitem__(self, index: int) -> Any:
            return np.full(size, index % 251, np.uint8), index

    store = Store(tmp_path / "b.sqlite", "r", "site", count)
    gate = Gate(store, IndexedStream(Frames()))
    tracemalloc.start()
    try:
        gate.apply(order(count))
        filling = tracemalloc.get_traced_memory()[1]
        tracemalloc.reset_peak()
        before = tracemalloc.get_traced_memory()[0]
        places = np.random.default_rng(0).permutation(count).tolist()
        samples = gate.samples()
        for begin in range(0, count, batch):
            labels = [label for _, label in samples.__getitems__(places[begin : begin + batch])]
        assert len(labels) == count % batch
        assert all(int(frame[0]) == label % 251 for frame, label in samples)
        training = tracemalloc.get_traced_memory()[1] - before
    finally:
        tracemalloc.stop()
    assert training < 3 * batch * size
    assert filling < 3 * 8_000_000  # a group, packed and as it is written


@pytest.mark.long
def test_an_order_that_buys_nothing_looks_at_no_candidate(tmp_path: Path) -> None:
    count = 20_000
    store = Store(tmp_path / "b.sqlite", "r", "site", 10)
    choice = Selection(candidates=count, backlog=count)
    gate = Gate(store, IndexedStream([b"x" * 300] * (2 * count)), selection=choice)
    gate.apply(order(0))
    assert store.count("candidate") == count
    gate = Gate(store, IndexedStream([]), selection=Selection(20, backlog=count))
    gate.apply(order(0, 2))
    tracemalloc.start()
    try:
        gate.apply(order(0, 3), worth=lambda _: pytest.fail("nothing is bought"))
        assert tracemalloc.get_traced_memory()[1] < 1_000_000
    finally:
        tracemalloc.stop()
