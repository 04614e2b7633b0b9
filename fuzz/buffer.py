"""A client's buffer file."""

import functools
import json
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np

from fuzz.archives import patched
from fuzz.choices import Choices, text_of
from fuzz.limits import empty_folder, may_refuse
from tidegate.client.gate import Gate
from tidegate.client.store import Store
from tidegate.client.streams import IndexedStream
from tidegate.wire import Order

CAPACITY = 6
ROUNDS = 3
CELLS = (
    ("clients", "last_round"),
    ("clients", "orders"),
    ("clients", "cursor"),
    ("clients", "spent"),
    ("clients", "admitted"),
    ("clients", "sums"),
    ("answers", "sent_order"),
    ("answers", "receipt"),
    ("samples", "number"),
    ("samples", "state"),
    ("samples", "place"),
    ("samples", "since"),
    ("samples", "bought_in"),
    ("samples", "in_group"),
    ("samples", "uses"),
    ("samples", "used_in"),
    ("samples", "mark"),
    ("contents", "number"),
    ("contents", "content"),
)
SCHEMES = (
    "DROP TABLE samples",
    "DROP TABLE clients",
    "DROP TABLE answers",
    "DELETE FROM clients",
    "DELETE FROM contents",
    "DELETE FROM samples",
    "PRAGMA user_version = 0",
    "PRAGMA user_version = 1",
    "PRAGMA user_version = -1",
    "PRAGMA application_id = 7",
    "CREATE TRIGGER t AFTER UPDATE ON samples BEGIN DELETE FROM clients; END",
    "CREATE TABLE more (x)",
    "ALTER TABLE samples ADD COLUMN more",
    """DROP TABLE contents; CREATE VIEW contents AS WITH RECURSIVE endless(number) AS
    (SELECT 0 UNION ALL SELECT number + 1 FROM endless)
    SELECT number, x'00' AS content FROM endless""",
    """WITH RECURSIVE many(n) AS (SELECT 100 UNION ALL SELECT n + 1 FROM many LIMIT 5000)
    INSERT INTO samples
    SELECT n, 1, 'stored', n, 'key', 1.0, 1, 1, 0, 0, '', 1, 1, 1, '', x'', '' FROM many""",
)
"""What somebody else may have done to the file."""


def order(now: int) -> Order:
    """An order that takes samples in and lets some expire."""
    return Order(run="r", round_number=now, price=2.0, retention_horizon=3, count=2)


def open_store(path: Path) -> Store:
    """The store of the one client that there is."""
    return Store(path, "r", "site", CAPACITY)


def use(path: Path) -> None:
    """Open a buffer, read all of it, and apply an order."""
    store = open_store(path)
    try:
        books = store.books()
        store.held("stored")
        list(store.samples())
        store.answer(books.last_round)
        store.void(1)
        stream = IndexedStream([(np.full(3, number), number) for number in range(20)])
        Gate(store, stream).apply(order(min(books.last_round + 1, 2**40)))
        list(store.samples())
    finally:
        store.close()


@functools.cache
def real_buffer() -> bytes:
    """A file after some rounds, in small pages."""
    with empty_folder() as folder:
        path = folder / "buffer.sqlite"
        store = open_store(path)
        gate = Gate(store, IndexedStream([(np.full(3, number), number) for number in range(20)]))
        for now in range(1, ROUNDS + 1):
            gate.apply(order(now))
        store.close()
        with closing(sqlite3.connect(path, isolation_level=None)) as connection:
            connection.execute("PRAGMA journal_mode = DELETE")
            connection.execute("PRAGMA page_size = 512")
            connection.execute("VACUUM")
        return path.read_bytes()


def _edit(path: Path, choices: Choices) -> None:
    """Change cells as a program would that knows the tables but not what belongs into them."""
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        if choices.number(3) == 1:
            connection.executescript(choices.pick(SCHEMES))
            return
        for _ in range(choices.number(3)):
            table, column = choices.pick(CELLS)
            key = "round_number" if table == "answers" else "number"
            rows = connection.execute(f"SELECT {key}, {column} FROM {table}").fetchall()  # noqa: S608
            row, old = choices.pick(rows)
            update = f"UPDATE OR IGNORE {table} SET {column} = ? WHERE {key} = ?"  # noqa: S608
            try:
                connection.execute(update, (_cell(old, choices), row))
            except (sqlite3.Error, OverflowError, UnicodeEncodeError):
                return  # what the database itself does not take


def _cell(old: Any, choices: Choices) -> Any:
    if isinstance(old, str) and choices.number(3):
        try:
            return text_of(choices.edited(json.loads(old)))
        except (ValueError, RecursionError):  # edited before
            return old
    if isinstance(old, bytes) and old and choices.number(3):
        return patched(old, choices)
    value = choices.value()
    return json.dumps(value) if isinstance(value, list | dict) else value


def target(data: bytes) -> None:
    """Use a file of any bytes, a patched one, or one whose cells or tables were changed."""
    choices = Choices(data)
    how = choices.number(3)
    with empty_folder() as folder:
        path = folder / "buffer.sqlite"
        if how == 0:
            path.write_bytes(choices.rest())
        elif how == 1:
            path.write_bytes(patched(real_buffer(), choices))
        else:
            path.write_bytes(real_buffer())
            _edit(path, choices)
        with may_refuse(ValueError, OSError):
            use(path)


def seeds() -> list[bytes]:
    """The file as it is, with cells edited, and with tables that somebody changed."""
    edits = [bytes([2, 0, 1, cell, 0, 1, 1, 3, 2, 0, 3, 9]) for cell in range(len(CELLS))]
    schemes = [bytes([2, 1, number]) for number in range(len(SCHEMES))]
    patches = [
        bytes([1, 3, place, page, 7, 1, 0, 5, 99, 2]) for place in (24, 40) for page in (0, 8)
    ]
    return [b"\0" + real_buffer(), b"\0" + real_buffer()[:700], *edits, *schemes, *patches]
