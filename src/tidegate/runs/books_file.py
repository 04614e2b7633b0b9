"""The file of a server's books: its tables, and the checksum in every row.

A round that is decided adds a short row for each client that takes part, and the rule that these
share is written once. A round that is settled writes the accounts of the clients that replied.
SQLite does not notice a bit that changed on disk: ``write`` adds a checksum to each row, and
``read`` compares it.
"""

import re
import reprlib
import sqlite3
import zlib
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from tidegate._internal.saving import reading
from tidegate._internal.sqlite_file import (
    FileKind,
    check_tables,
    is_damage,
    opened_to_read,
    transaction,
)
from tidegate.errors import ConfigurationError, DamagedFileError
from tidegate.runs.folder import FORMAT_VERSION, REMEDY

RUN = """CREATE TABLE run (
    id INTEGER PRIMARY KEY CHECK (id = 1),
    name TEXT, app TEXT, model TEXT,
    terms TEXT, state TEXT, rule_state BLOB,
    checksum INTEGER
)"""
"""One row: what there is once. ``terms`` and ``state`` (the round, and sums over all clients) are
JSON, ``rule_state`` is an archive."""
ACCOUNTS = """CREATE TABLE accounts (
    number INTEGER PRIMARY KEY,
    client TEXT, buffer_capacity INTEGER, buffer_id TEXT, train_on INTEGER,
    candidates INTEGER, missing TEXT, retired_in INTEGER,

    lost_buffers INTEGER, lost_admitted INTEGER, lost_spent REAL, lost_refunded REAL,
    lost_read INTEGER, lost_unsure INTEGER, lost_last_taken TEXT,

    run TEXT, round_number INTEGER,
    bought INTEGER, admitted INTEGER, refused INTEGER,
    spent REAL, refunded REAL, under_way_spent REAL,
    holding TEXT, expiring INTEGER, occupancy INTEGER, uses INTEGER,
    read INTEGER, is_dry INTEGER, last_taken TEXT, record TEXT, health TEXT,

    plan INTEGER, ordered INTEGER, credits REAL,
    checksum INTEGER
)"""
"""A row a client, in the order in which they joined: the client; what it bought for buffers that it
lost (``Lost``); its newest receipt (``Receipt``); what it was ordered and is owed under the plan of
this number. ``missing``, ``holding`` and ``health`` are JSON."""
ORDERS = """CREATE TABLE orders (
    number INTEGER PRIMARY KEY,
    rule INTEGER, count INTEGER, price REAL,
    plan INTEGER, ordered INTEGER, credits REAL,
    checksum INTEGER
)"""
"""Orders without a reply, by the client's number, with what it was ordered and is owed since."""
RULES = """CREATE TABLE rules (
    rule INTEGER PRIMARY KEY,
    round_number INTEGER, retention TEXT, retention_horizon INTEGER, thresholds TEXT,
    checksum INTEGER
)"""
"""What these orders have in common; ``thresholds`` is JSON."""
PLANS = """CREATE TABLE plans (
    id INTEGER PRIMARY KEY CHECK (id = 1),
    plan INTEGER, members BLOB, shares BLOB, credits BLOB,
    checksum INTEGER
)"""
"""One row: the numbers of the clients in the plan, sorted by name; the share of each; and what each
was owed when the plan was made."""
AWAY = """CREATE TABLE away (number INTEGER PRIMARY KEY, since INTEGER, checksum INTEGER)"""
"""Clients in the plan that are offline, and the last look that found each."""
TABLES = {
    "run": RUN,
    "accounts": ACCOUNTS,
    "orders": ORDERS,
    "rules": RULES,
    "plans": PLANS,
    "away": AWAY,
}
KINDS = {"INTEGER": int, "REAL": float, "TEXT": str, "BLOB": bytes}
COLUMNS = {
    table: {
        name: KINDS[kind] for name, kind in re.findall(rf"(\w+) ({'|'.join(KINDS)})", statement)
    }
    for table, statement in TABLES.items()
}
"""Of each table, with what they hold."""
BOOKS_KIND = FileKind(
    name="server's books",
    application_id=0x74676273,
    schema=FORMAT_VERSION,
    tables=tuple(TABLES.values()),
    remedy=REMEDY,
    page_size=1024,  # a round touches accounts all over the file, a page each
)


def write(connection: sqlite3.Connection, table: str, rows: Iterable[Sequence[object]]) -> None:
    """Write rows in place of those with the same numbers, each with its checksum."""
    checked = []
    for row in rows:
        # SQLite does not keep the sign of zero.
        stored = [value + 0.0 if type(value) is float else value for value in row]
        checked.append((*stored, checksum(stored)))
    if checked:
        places = ", ".join("?" * len(COLUMNS[table]))
        statement = f"REPLACE INTO {table} VALUES ({places})"  # noqa: S608 - names of ours
        connection.executemany(statement, checked)


def read(
    connection: sqlite3.Connection, table: str, where: str = "", *values: object
) -> Iterator[dict[str, Any]]:
    """Yield rows by the names of their columns; refuse one that is not what was written."""
    names, kinds = COLUMNS[table], list(COLUMNS[table].values())
    query = f"SELECT * FROM {table} {where}"  # noqa: S608 - names of ours
    for row in connection.execute(query, values):
        *stored, written = row
        if written != checksum(stored):
            raise ValueError(f"the checksum of {reprlib.repr(row)} in {table} is wrong")
        if list(map(type, row)) != kinds:
            raise ValueError(f"{reprlib.repr(row)} in {table} has other kinds of values")
        yield dict(zip(names, row, strict=True))


def checksum(values: list[object]) -> int:
    """Return the checksum of a row's other values."""
    if bytes in map(type, values):  # which may be long
        values = [zlib.crc32(cell) if isinstance(cell, bytes) else cell for cell in values]
    return zlib.crc32(ascii(values).encode())


@contextmanager
def readable(path: Path) -> Iterator[None]:
    """Name the file and the remedy if its content cannot be read."""
    try:
        with reading(path, REMEDY):
            yield
    except sqlite3.DatabaseError as wrong:
        if isinstance(wrong, sqlite3.ProgrammingError) or not is_damage(wrong):
            raise  # closed books, or a full disk, are not damage
        raise DamagedFileError(path, f"is damaged ({wrong})", REMEDY) from wrong


@contextmanager
def read_only(path: Path) -> Iterator[sqlite3.Connection]:
    """Open the file at one moment, also while it is written, and without the right to write."""
    try:
        with (
            readable(path),
            closing(opened_to_read(path)) as connection,
            transaction(connection, "DEFERRED"),
        ):
            check_tables(connection, path, BOOKS_KIND)
            yield connection
    except sqlite3.OperationalError as wrong:
        raise ConfigurationError(
            f"{path} cannot be read: {wrong}; check that this user may read it and the files "
            "beside it"
        ) from wrong
