"""The SQLite file in which a device keeps its buffer: its tables, and who may change them.

Write-ahead log, ``synchronous=FULL``: what was committed is on disk before the client replies. Only
the file's owner can read it; content that has left is overwritten in it.
"""

import hashlib
import json
import os
import re
import sqlite3
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any, Self

from tidegate._internal.sqlite_file import (
    FileKind,
    connect,
    empty_log,
    is_damage,
    opening,
    prepare,
    transaction,
)
from tidegate.client.forgotten import Forgotten
from tidegate.errors import DamagedFileError

APPLICATION_ID = 0x71DE6A7E
"""Marks a file as ours, so that nobody else's database is ever changed."""
REMEDY = (
    "copy it to a safe place if you must account for what it held, and delete it; the client then "
    "begins again with an empty buffer"
)
SCHEMA = 1
"""The number of the format; raised with each change of the tables or of what is in them."""
TABLES = (
    # A row a client: how far it is, what it paid, its own time, and the end of its record.
    """CREATE TABLE clients (
        number INTEGER PRIMARY KEY, run TEXT NOT NULL, client TEXT NOT NULL,
        buffer_capacity INTEGER NOT NULL, buffer_id TEXT NOT NULL,
        last_round INTEGER NOT NULL, orders INTEGER NOT NULL, void_round INTEGER NOT NULL,
        chosen_round INTEGER NOT NULL, steps INTEGER NOT NULL, places INTEGER NOT NULL,
        cursor TEXT, is_dry INTEGER NOT NULL, read INTEGER NOT NULL,
        bought INTEGER NOT NULL, admitted INTEGER NOT NULL, refused INTEGER NOT NULL,
        spent REAL NOT NULL, refunded REAL NOT NULL,
        set_aside INTEGER NOT NULL, expired INTEGER NOT NULL, erased INTEGER NOT NULL,
        keep INTEGER NOT NULL, own_time INTEGER NOT NULL, wall_time INTEGER NOT NULL,
        used_at INTEGER NOT NULL,
        record_number INTEGER NOT NULL, record_digest TEXT NOT NULL, sums TEXT NOT NULL
    )""",
    "CREATE UNIQUE INDEX client_names ON clients (run, client)",
    # A row a sample, from when it is read until it leaves; ``place`` is its order within its state.
    # Its number is never another's, so that what a sweep has deleted meanwhile is missed.
    """CREATE TABLE samples (
        number INTEGER PRIMARY KEY AUTOINCREMENT, client INTEGER NOT NULL, state TEXT NOT NULL,
        place INTEGER NOT NULL, key TEXT NOT NULL,
        price REAL NOT NULL, bought_round INTEGER NOT NULL, bought_in INTEGER NOT NULL,
        is_asked INTEGER NOT NULL, since INTEGER NOT NULL,
        held_at INTEGER NOT NULL, subject TEXT NOT NULL, secret BLOB NOT NULL, mark TEXT NOT NULL
    )""",
    "CREATE INDEX sample_states ON samples (client, state, place, since, bought_in)",
    "CREATE INDEX sample_times ON samples (client, state, held_at)",
    "CREATE INDEX sample_subjects ON samples (subject) WHERE subject != ''",
    # Apart from the rows, which are read and changed more often.
    "CREATE TABLE contents (number INTEGER PRIMARY KEY, content BLOB NOT NULL)",
    """CREATE TABLE failures (
        number INTEGER PRIMARY KEY, client INTEGER NOT NULL, key TEXT NOT NULL,
        tries INTEGER NOT NULL, error TEXT NOT NULL, set_aside INTEGER NOT NULL
    )""",
    "CREATE INDEX failure_kinds ON failures (client, set_aside, number)",
    """CREATE TABLE answers (
        client INTEGER NOT NULL, round_number INTEGER NOT NULL,
        sent_order TEXT NOT NULL, receipt TEXT NOT NULL
    )""",
    "CREATE UNIQUE INDEX answer_rounds ON answers (client, round_number)",
    # ``before`` is the digest of all earlier entries.
    """CREATE TABLE record (
        client INTEGER NOT NULL, number INTEGER NOT NULL,
        before TEXT NOT NULL, entry TEXT NOT NULL
    )""",
    "CREATE UNIQUE INDEX record_numbers ON record (client, number)",
)
KIND = FileKind("buffer", APPLICATION_ID, SCHEMA, TABLES, REMEDY)


class DeviceFile:
    """An open file.

    Args:
        path: of the file, which is created if it does not exist; None for a database in memory.
        is_shared: all clients of a run in this process use it. What they change survives the end
            of the process at once, and a loss of power from the next ``sync`` on.
    """

    def __init__(self, path: Path | None, *, is_shared: bool = False) -> None:
        self.path = Path(":memory:") if path is None else path
        self.is_shared = is_shared
        self.forgotten = None if path is None else Forgotten(path.parent)
        """Who is forgotten in the file's folder; what is in memory goes with its process."""
        self._connection = connect(self.path, any_thread=is_shared, owner_only=path is not None)
        self._connection.text_factory = as_text
        self.execute = self._connection.execute
        with self.opening():
            prepare(self._connection, self.path, KIND)
            empty_log(self._connection)  # a process that died may have left deleted content in it
            if is_shared:
                self.execute("PRAGMA synchronous = NORMAL")
                self.execute("PRAGMA wal_autocheckpoint = 0")

    def opening(self) -> AbstractContextManager[None]:
        """Close the file again if it cannot be used after all, and say what is wrong with it."""
        return opening(self._connection, self.path, KIND)

    def hashes(self) -> frozenset[str]:
        """Return the keyed hashes of all who are forgotten in the file's folder."""
        return frozenset() if self.forgotten is None else self.forgotten.hashes()

    def close(self) -> None:
        """Close the file."""
        self._connection.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @contextmanager
    def changing(self) -> Iterator[None]:
        """Change everything within it, or nothing; it is on disk afterwards."""
        with self.naming_damage(), transaction(self._connection):
            yield
        if not self.is_shared:
            self.sync()

    @contextmanager
    def reading(self) -> Iterator[None]:
        """Read several things of one moment."""
        with self.naming_damage(), transaction(self._connection, "DEFERRED"):
            yield

    @contextmanager
    def naming_damage(self) -> Iterator[None]:
        """Name a damaged file in errors; a full disk or a locked file stays SQLite's own error."""
        try:
            yield
        except sqlite3.ProgrammingError:  # closed, or used by another thread
            raise
        except sqlite3.DatabaseError as wrong:
            if not is_damage(wrong):
                raise
            raise self.damaged(f"{type(wrong).__name__}: {str(wrong)[:500]}") from wrong
        except OverflowError as wrong:  # a number of its books that SQLite cannot hold
            raise self.damaged(f"it holds a number that is too large: {wrong}") from wrong

    def damaged(self, reason: str) -> DamagedFileError:
        """Return the error of a file whose content is not possible."""
        return DamagedFileError(self.path, f"is damaged ({reason})", REMEDY)

    def rows(self, kinds: tuple[type, ...], statement: str, *values: object) -> list[Any]:
        """Return the rows of a query; those of a damaged file may hold other kinds of values."""
        with self.naming_damage():
            rows = self.execute(statement, values).fetchall()
        for row in rows:
            if tuple(map(type, row)) != kinds:
                names = ", ".join(kind.__name__ for kind in kinds)
                raise self.damaged(f"it holds {str(row)[:300]} in place of {names}")
        return rows

    def clients(self, *whose: str) -> list[tuple[str, str, int]]:
        """Return the run, the name and the capacity of each client in the file.

        Args:
            whose: run and name, to look for this client alone.
        """
        query = "SELECT run, client, buffer_capacity FROM clients"
        only = " WHERE run = ? AND client = ?" if whose else ""
        return self.rows((str, str, int), f"{query}{only} ORDER BY number", *whose)

    def sync(self) -> None:
        """Have everything on disk, and nothing in the log that was deleted in the file.

        While somebody reads the file, the log stays; then it is on disk itself.
        """
        log = self.path.with_name(f"{self.path.name}-wal")
        if not empty_log(self._connection) and self.is_shared and log.exists():
            with log.open("rb") as file:
                os.fsync(file.fileno())

    def empty_log(self) -> bool:
        """Wait until nothing that was deleted is left in the log; False if somebody reads on."""
        return empty_log(self._connection, wait=True)


def as_text(content: bytes) -> str:
    """Return a text of the file; a cursor may be a file name that is not Unicode."""
    return content.decode("utf-8", "surrogateescape")


def as_bytes(text: str | None) -> bytes | None:
    """Return a text as the file keeps it with ``CAST(? AS TEXT)``."""
    return None if text is None else text.encode("utf-8", "surrogateescape")


def store_path(folder: Path, run: str, client: str) -> Path:
    """The file of one client in one run; ``client`` is its registered name or public key.

    >>> store_path(Path("data"), "run 7", "site-0").name
    'run_7-site-0-81aa4eed77220514a854d29b6141b802.sqlite'
    """
    readable = "-".join(re.sub(r"[^A-Za-z0-9._-]+", "_", name)[:40] for name in (run, client))
    # Names that read the same once cleaned, or were cut, must not share a file.
    exact = hashlib.sha256(json.dumps([run, client]).encode()).hexdigest()[:32]
    return folder / f"{readable}-{exact}.sqlite"
