"""A process that writes to a buffer is killed at random points; the file must never be wrong."""

import json
import os
import random
import signal
import sqlite3
import time
from pathlib import Path

from tidegate.gate import Gate
from tidegate.retention.sqlite_store import SqliteStore
from tidegate.streams import IndexedStream
from tidegate.wire import Order

KILLS = 500
CAPACITY = 12
HORIZON = 4
STREAM = range(10**9)


def order(now: int) -> Order:
    """The order of a round, the same in every process."""
    return Order(
        run="r",
        round_number=now,
        price=1 + now % 7,
        retention_horizon=HORIZON,
        count=(now * now) % 6,
    )


def write_for_ever(path: Path, asked: Path) -> None:
    """Apply one order after another; every acquisition leaves a line."""
    log = os.open(asked, os.O_WRONLY | os.O_APPEND | os.O_CREAT)

    def acquire(sample: int, key: str) -> int:
        os.write(log, f"{key}\n".encode())
        return sample

    store = SqliteStore(path, "r", CAPACITY)
    gate = Gate(store, IndexedStream(STREAM), acquire)
    while True:
        gate.apply(order(store.books().last_round + 1))


def check(path: Path) -> int:
    """Every invariant of the file; how many samples it has admitted."""
    store = SqliteStore(path, "r", CAPACITY)
    books, stored, samples = store.books(), store.stored(), store.samples()
    with sqlite3.connect(path) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
        answers = connection.execute(
            "SELECT round_number, receipt FROM answers ORDER BY round_number"
        ).fetchall()
    connection.close()
    store.close()
    assert len(stored) <= CAPACITY
    # No sample twice, none lost, cursor and samples agree: content and position are one number.
    assert samples == [entry.position for entry in stored]
    assert books.cursor in (None, str(books.total_admitted))
    # Use counts: every round was applied, in order, once.
    assert [entry.uses for entry in stored] == [
        books.last_round - entry.admitted_round + 1 for entry in stored
    ]
    assert all(entry.uses <= HORIZON for entry in stored)
    assert [number for number, _ in answers] == list(range(1, books.last_round + 1))
    receipts = [json.loads(text) for _, text in answers]
    assert sum(receipt["admitted"] for receipt in receipts) == books.total_admitted
    assert sum(receipt["spent"] for receipt in receipts) == books.total_spent
    return books.total_admitted


def test_five_hundred_kills_leave_the_buffer_right(tmp_path: Path) -> None:
    path, asked = tmp_path / "buffer.sqlite", tmp_path / "asked"
    draw = random.Random(0)  # noqa: S311 - a schedule, not a secret
    admitted, moved = 0, 0
    for _ in range(KILLS):
        writer = os.fork()
        if not writer:
            write_for_ever(path, asked)
        time.sleep(draw.uniform(0, 0.02))
        os.kill(writer, signal.SIGKILL)
        os.waitpid(writer, 0)
        before, admitted = admitted, check(path)
        moved += admitted > before
    assert moved > KILLS / 4  # the kills met a process at work
    keys = asked.read_text().split()
    # Everything stored was acquired; at most one order's samples a kill were asked for again.
    assert {f"r/{position}" for position in range(admitted)} <= set(keys)
    assert len(keys) - len(set(keys)) <= 5 * KILLS
