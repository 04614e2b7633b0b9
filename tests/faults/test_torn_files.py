"""What a power cut leaves of a buffer's file, and a disk that is full."""

import random
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest
from check_size import at_size

from tidegate.client.gate import Gate
from tidegate.client.store import Store
from tidegate.client.streams import IndexedStream
from tidegate.wire import Order

CAPACITY = 6
WHOLE = 3
"""Rounds that were on disk before the one that is torn."""


def order(now: int) -> Order:
    return Order(run="r", round_number=now, price=2.0, retention_horizon=3, count=now % 3 + 1)


def open_gate(path: Path) -> tuple[Store, Gate]:
    store = Store(path, "r", "site", CAPACITY)
    return store, Gate(store, IndexedStream([np.full(300, number) for number in range(100)]))


def check_whole(path: Path, first: int, last: int) -> int:
    """The file holds one of some rounds, with all that belongs to it, and goes on from there."""
    store, gate = open_gate(path)
    try:
        books = store.books()
        assert first <= books.last_round <= last
        given = [store.answer(now) for now in range(1, books.last_round + 1)]
        receipts = [answer[1] for answer in given if answer is not None]
        assert len(receipts) == books.last_round
        bought, spent = 0, 0.0
        for sent, receipt in filter(None, given):
            assert receipt.admitted == receipt.bought >= bought
            assert receipt.spent == spent + sent.price * (receipt.bought - bought)
            bought, spent = receipt.bought, receipt.spent
        assert (books.admitted, books.spent) == (bought, spent)
        stored, samples = store.held("stored"), list(store.samples())
        assert [int(sample[0]) for sample in samples] == [
            *range(books.admitted - len(stored), books.admitted)
        ]
        assert len(stored) == (receipts[-1].occupancy if receipts else 0)
        gate.apply(order(books.last_round + 1))
        return books.last_round
    finally:
        store.close()


@pytest.fixture
def torn(tmp_path: Path) -> tuple[Path, Path, int]:
    """A file and its log with one commit more, and where in the log that commit begins."""
    store, gate = open_gate(tmp_path / "now.sqlite")
    for now in range(1, WHOLE + 1):
        gate.apply(order(now))
    log = tmp_path / "now.sqlite-wal"
    before = log.stat().st_size
    with closing(sqlite3.connect(tmp_path / "now.sqlite")) as reader:
        reader.execute("BEGIN")
        reader.execute("SELECT * FROM clients").fetchall()  # so that the log stays as it is
        gate.apply(order(WHOLE + 1))
    for name in ("", "-wal"):  # as a power cut finds them, before anybody closes the file
        shutil.copy(tmp_path / f"now.sqlite{name}", tmp_path / f"cut.sqlite{name}")
    store.close()
    assert before < (tmp_path / "cut.sqlite-wal").stat().st_size
    return tmp_path / "cut.sqlite", tmp_path / "cut.sqlite-wal", before


def test_a_log_that_was_cut_anywhere_holds_whole_rounds(
    torn: tuple[Path, Path, int], tmp_path: Path
) -> None:
    file, log, before = torn
    content = log.read_bytes()
    lengths = [*range(before, len(content), at_size(2111, 211)), len(content)]
    found = []
    for length in lengths:
        again = tmp_path / f"{length}.sqlite"
        shutil.copy(file, again)
        again.with_name(f"{again.name}-wal").write_bytes(content[:length])
        found.append(check_whole(again, WHOLE, WHOLE + 1))
    assert found[0] == WHOLE
    assert found[-1] == WHOLE + 1
    assert found == sorted(found)


def test_a_log_with_wrong_bytes_holds_whole_rounds(
    torn: tuple[Path, Path, int], tmp_path: Path
) -> None:
    file, log, before = torn
    content, draw = log.read_bytes(), random.Random(1)  # noqa: S311 - nothing here is secret
    for number in range(at_size(12, 60)):
        place = draw.randrange(before, len(content))
        wrong = bytearray(content)
        wrong[place] ^= 1 << draw.randrange(8)
        again = tmp_path / f"{number}.sqlite"
        shutil.copy(file, again)
        again.with_name(f"{again.name}-wal").write_bytes(wrong)
        assert check_whole(again, WHOLE, WHOLE) == WHOLE  # what does not add up never happened


def until_it_fails(store: Store, gate: Gate) -> tuple[object, sqlite3.OperationalError]:
    """What was there before the order that could not be carried out, and why."""
    while True:
        before = store.books(), store.held("stored")
        try:
            gate.apply(order(store.books().last_round + 1))
        except sqlite3.OperationalError as failure:
            return before, failure


def test_a_full_disk_changes_nothing_and_is_made_good(tmp_path: Path) -> None:
    store, gate = open_gate(tmp_path / "full.sqlite")
    gate.apply(order(1))
    ((pages,),) = store.file.execute("PRAGMA page_count")
    store.file.execute(f"PRAGMA max_page_count = {pages}")
    before, full = until_it_fails(store, gate)
    assert "full" in str(full)
    assert (store.books(), store.held("stored")) == before
    store.file.execute("PRAGMA max_page_count = 1000000")
    now = store.books().last_round + 1
    receipt = gate.apply(order(now))
    assert receipt.round_number == now
    assert store.books().admitted == receipt.admitted
    store.close()
    assert check_whole(tmp_path / "full.sqlite", now, now) == now
