"""A process that writes to a buffer is killed at random points; the file must never be wrong."""

import itertools
import json
import os
import random
import sqlite3
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from check_size import at_size
from client_parts import contents_of
from killed_work import killed_at_work

from tidegate.client import buying, device_file
from tidegate.client.auditing import audit_file
from tidegate.client.gate import Gate
from tidegate.client.store import KEPT_ANSWERS, Store
from tidegate.client.streams import IndexedStream
from tidegate.selection import Selection
from tidegate.wire import Order

KILLS = at_size(50, 500)
CAPACITY = 12
HORIZON = 4
FEW = Selection(candidates=6, backlog=10)
SAMPLE_BYTES = 40_000  # many pages of the file, so that a commit takes a while


def order(now: int) -> Order:
    """The order of a round, the same in every process."""
    return Order(
        run="r",
        round_number=now,
        price=float(1 + now % 7),
        retention_horizon=HORIZON,
        count=(now * now) % 6,
    )


class Numbered:
    """Sample number i: a large array that begins with i."""

    def __len__(self) -> int:
        return 10**9

    def __getitem__(self, index: int) -> object:
        return np.full(SAMPLE_BYTES // 8, index)


def moody(candidates: Sequence[Any]) -> list[float]:
    """Another ranking in every process, and in every round."""
    return [random.SystemRandom().random() for _ in candidates]


def write_for_ever(path: Path, asked: Path, selection: Selection | None, tell: int) -> None:
    """Apply one order after another, and say so; every acquisition leaves a line."""
    log = os.open(asked, os.O_WRONLY | os.O_APPEND | os.O_CREAT)

    def acquire(sample: object, key: str) -> object:
        os.write(log, f"{key}\n".encode())
        return sample

    store = Store(path, "r", "site", CAPACITY)
    gate = Gate(store, IndexedStream(Numbered()), acquire, selection)
    while True:
        gate.apply(order(store.books().last_round + 1), worth=moody)
        os.write(tell, b".")


def check_files(path: Path) -> None:
    """Each large content is the file that its row names, and there is no other."""
    with sqlite3.connect(path) as connection:
        rows = connection.execute("SELECT file FROM contents WHERE file != ''").fetchall()
    connection.close()
    folder = device_file.contents_folder(path)
    files = {file.name for file in folder.iterdir()} if folder.is_dir() else set()
    assert files == {name for (name,) in rows}


def check(path: Path) -> int:
    """Every invariant of the file; how many samples it has admitted."""
    store = Store(path, "r", "site", CAPACITY)
    books, stored, samples = store.books(), store.held("stored"), list(store.samples())
    paid = store.count("paid")
    store.close()
    check_files(path)
    with sqlite3.connect(path) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
        answers = connection.execute(
            "SELECT round_number, receipt FROM answers ORDER BY round_number"
        ).fetchall()
    connection.close()
    assert len(stored) <= CAPACITY
    # No sample twice, none lost, cursor and samples agree: content and position are one number.
    newest = [*range(books.admitted - len(stored), books.admitted)]
    assert [int(sample[0]) for sample in samples] == newest
    assert all(sample.nbytes == SAMPLE_BYTES and np.ptp(sample) == 0 for sample in samples)
    assert books.cursor == str(books.admitted + paid)
    # Use counts: every round was applied, in order, once.
    assert [entry.since + 1 for entry in stored] == [entry.bought_round for entry in stored]
    assert all(books.orders - entry.since <= HORIZON for entry in stored)
    oldest = max(books.last_round - KEPT_ANSWERS, 0) + 1
    assert [number for number, _ in answers] == list(range(oldest, books.last_round + 1))
    receipts = [json.loads(text) for _, text in answers]
    newest = receipts[-1]
    assert (newest["admitted"], newest["spent"]) == (books.admitted, books.spent)
    for before, after in itertools.pairwise(receipts):
        bought = after["bought"] - before["bought"]
        assert after["admitted"] - before["admitted"] == bought >= 0
        assert after["spent"] == before["spent"] + order(after["round_number"]).price * bought
    return books.admitted


@pytest.mark.process
@pytest.mark.parametrize(
    ("seconds", "repeated", "large"), [(1.0, 5, 10**6), (0.0, 1, 10**6), (1.0, 5, 1000)]
)
def test_kills_leave_the_buffer_right(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seconds: float, repeated: int, large: int
) -> None:
    """What was paid for is written down with the order, or sample by sample; in rows or files."""
    monkeypatch.setattr(buying, "BATCH_SECONDS", seconds)
    monkeypatch.setattr(device_file, "LARGE", large)
    path, asked = tmp_path / "buffer.sqlite", tmp_path / "asked"
    draw = random.Random(0)  # noqa: S311 - a schedule, not a secret
    admitted = 0
    for _ in range(KILLS):
        killed_at_work(partial(write_for_ever, path, asked, None), draw.uniform(0, 0.01))
        admitted = check(path)
    keys = asked.read_text().split()
    # Everything stored was acquired; at most one group's samples a kill were asked for again.
    assert {f"r/site/{number}" for number in range(1, admitted + 1)} <= set(keys)
    assert len(keys) - len(set(keys)) <= repeated * KILLS


def check_choices(path: Path, keys: set[str]) -> None:
    """Every invariant of a file whose client chooses; ``keys`` were asked for, perhaps paid for."""
    store = Store(path, "r", "site", CAPACITY)
    books, samples = store.books(), list(store.samples())
    waiting = [one.key for one in store.held("candidate")]
    chosen = [one.key for one in store.held("chosen")]
    contents = [int(one[0]) for one in contents_of(store, "chosen", "candidate")]
    store.close()
    check_files(path)
    assert len(waiting) <= FEW.backlog
    assert [f"r/site/{number + 1}" for number in contents] == [*waiting, *chosen]
    held = [int(sample[0]) for sample in samples]
    assert len({*held, *contents}) == len(held) + len(contents), "a sample twice"
    assert books.cursor == str(books.read)
    assert not set(waiting) & keys, "paid for, and chosen no longer"
    # Whatever was ever asked for was admitted, or is the next to be.
    assert len(keys - {*chosen}) == books.admitted


@pytest.mark.process
@pytest.mark.parametrize("large", [10**6, 1000])
def test_kills_pay_for_what_was_chosen_and_for_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, large: int
) -> None:
    monkeypatch.setattr(device_file, "LARGE", large)
    path, asked = tmp_path / "buffer.sqlite", tmp_path / "asked"
    draw = random.Random(1)  # noqa: S311 - a schedule, not a secret
    between = 0
    for _ in range(KILLS):
        killed_at_work(partial(write_for_ever, path, asked, FEW), draw.uniform(0, 0.02))
        keys = set(asked.read_text().split())
        check_choices(path, keys)
        store = Store(path, "r", "site", CAPACITY)
        between += store.books().chosen_round > store.books().last_round
        store.close()
    assert between, "no kill fell between a choice and its payment"


CEILING = 9.0
TRAIN_ON = 5


def keep_for_ever(path: Path, tell: int) -> None:
    """Apply orders that ask for more than the device may spend, and store more than trains."""
    store = Store(path, "r", "site", CAPACITY, train_on=TRAIN_ON)
    gate = Gate(
        *(store, IndexedStream(Numbered())),
        group=lambda sample: int(sample[0]) % 4 == 0,
        keep_bought=True,
        spend_at_most=CEILING,
    )
    while True:
        number = store.books().last_round + 1
        gate.apply(
            Order(
                run="r",
                round_number=number,
                price=float(1 + number % 7),
                retention="oldest_first",
                count=CAPACITY,
            )
        )
        os.write(tell, b".")


@pytest.mark.process
def test_kills_leave_what_trains_stays_and_was_spent_right(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(device_file, "LARGE", 1000)
    path, draw = tmp_path / "buffer.sqlite", random.Random(1)  # noqa: S311
    for _ in range(KILLS):
        killed_at_work(partial(keep_for_ever, path), draw.uniform(0, 0.02))
        with Store(path, "r", "site", CAPACITY, train_on=TRAIN_ON) as store:
            books, samples = store.books(), list(store.samples())
            assert store.count("stored") + store.count("kept") == books.admitted
            kept = {int(sample[0]) for sample in contents_of(store, "stored", "kept")}
        assert kept == set(range(books.admitted))
        assert len(samples) == min(TRAIN_ON, books.admitted)
        assert books.spent <= CEILING * books.orders
        check_files(path)
        (audit,) = audit_file(path)
        assert audit.is_right, audit.problems
