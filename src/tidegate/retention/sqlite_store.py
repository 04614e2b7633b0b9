"""A store in one SQLite file: it survives crashes of the process and of the machine.

Write-ahead log, ``synchronous=FULL``: what was committed is on disk before an order is answered.
"""

import hashlib
import json
import re
import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

from tidegate.retention.codec import ArrayCodec, SampleCodec
from tidegate.retention.store import Books, Change, StoredSample
from tidegate.wire import Order, Receipt

MIGRATIONS: tuple[str, ...] = (
    """
    CREATE TABLE books (only INTEGER PRIMARY KEY CHECK (only = 1), content TEXT NOT NULL);
    CREATE TABLE samples (
        position INTEGER PRIMARY KEY,
        admitted_round INTEGER NOT NULL,
        uses INTEGER NOT NULL,
        content BLOB NOT NULL
    );
    CREATE TABLE answers (
        round_number INTEGER PRIMARY KEY,
        sent_order TEXT NOT NULL,
        receipt TEXT NOT NULL
    );
    """,
)
"""Script number v takes a file of schema version v to version v + 1."""

BUSY_SECONDS = 30.0
"""How long to wait for another process that is writing to the same file."""


def store_path(folder: Path, run: str, client: str) -> Path:
    """The file of one client in one run; ``client`` is its registered name or public key.

    >>> store_path(Path("data"), "run 7", "site-0").name
    'run_7-site-0-81aa4eed.sqlite'
    """
    readable = "-".join(re.sub(r"[^A-Za-z0-9._-]+", "_", name)[:40] for name in (run, client))
    # Names that read the same once cleaned, or were cut, must not share a file.
    exact = hashlib.sha256(json.dumps([run, client]).encode()).hexdigest()[:8]
    return folder / f"{readable}-{exact}.sqlite"


class SqliteStore:
    """A client's buffer in a file; the same file again goes on where it stopped."""

    def __init__(
        self, path: Path, run: str, buffer_capacity: int, codec: SampleCodec | None = None
    ) -> None:
        self._codec = ArrayCodec() if codec is None else codec
        self._connection = sqlite3.connect(path, timeout=BUSY_SECONDS, isolation_level=None)
        self._connection.execute("PRAGMA journal_mode = WAL")
        self._connection.execute("PRAGMA synchronous = FULL")
        self._migrate(path)
        start = Books(run=run, buffer_capacity=buffer_capacity)
        with self._transaction():
            self._connection.execute(
                "INSERT OR IGNORE INTO books VALUES (1, ?)", (json.dumps(asdict(start)),)
            )
        kept = self.books()
        if (kept.run, kept.buffer_capacity) != (run, buffer_capacity):
            self.close()
            raise ValueError(
                f"{path} belongs to run {kept.run!r} with capacity {kept.buffer_capacity}, "
                f"not to {run!r} with {buffer_capacity}; use another folder or file"
            )

    def close(self) -> None:
        """Close the file."""
        self._connection.close()

    def books(self) -> Books:
        """Where the client stands."""
        ((content,),) = self._connection.execute("SELECT content FROM books")
        return Books(**json.loads(content))

    def stored(self) -> list[StoredSample]:
        """What is in the buffer, oldest first."""
        rows = self._connection.execute(
            "SELECT position, admitted_round, uses FROM samples ORDER BY position"
        )
        return [StoredSample(*row) for row in rows]

    def samples(self) -> list[Any]:
        """The samples themselves, oldest first."""
        rows = self._connection.execute("SELECT content FROM samples ORDER BY position")
        return [self._codec.decode(content) for (content,) in rows]

    def answer(self, round_number: int) -> tuple[Order, Receipt] | None:
        """The order of a round and the receipt that was given for it."""
        row = self._connection.execute(
            "SELECT sent_order, receipt FROM answers WHERE round_number = ?", (round_number,)
        ).fetchone()
        if row is None:
            return None
        return Order.from_record(json.loads(row[0])), Receipt.from_record(json.loads(row[1]))

    def commit(self, change: Change) -> None:
        """Apply a change in one transaction, on disk when this returns."""
        now, execute = change.order.round_number, self._connection.execute
        contents = [self._codec.encode(sample) for sample in change.admitted]
        with self._transaction():
            before = self.books()
            if before.last_round >= now:
                raise ValueError(f"round {before.last_round} is applied already, not {now} again")
            for position in change.removed:
                execute("DELETE FROM samples WHERE position = ?", (position,))
            execute("UPDATE samples SET uses = uses + 1")
            for position, content in enumerate(contents, start=before.total_admitted):
                execute("INSERT INTO samples VALUES (?, ?, 1, ?)", (position, now, content))
            execute("UPDATE books SET content = ?", (json.dumps(asdict(change.books)),))
            execute(
                "INSERT INTO answers VALUES (?, ?, ?)",
                (now, _text(change.order.to_record()), _text(change.receipt.to_record())),
            )

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        self._connection.execute("BEGIN IMMEDIATE")
        try:
            yield
            self._connection.execute("COMMIT")
        except BaseException:
            if self._connection.in_transaction:
                self._connection.execute("ROLLBACK")
            raise

    def _migrate(self, path: Path) -> None:
        with self._transaction():
            ((version,),) = self._connection.execute("PRAGMA user_version")
            if version > len(MIGRATIONS):
                raise ValueError(
                    f"{path} has schema {version}, this program knows {len(MIGRATIONS)}; "
                    "it was written by a newer one"
                )
            for script in MIGRATIONS[version:]:
                for statement in script.split(";"):
                    self._connection.execute(statement)
            self._connection.execute(f"PRAGMA user_version = {len(MIGRATIONS)}")


def _text(record: Mapping[str, object]) -> str:
    return json.dumps(record, sort_keys=True)
