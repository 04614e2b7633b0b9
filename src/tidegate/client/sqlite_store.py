"""A store in one SQLite file: it survives crashes of the process and of the machine.

Write-ahead log, ``synchronous=FULL``: what was committed is on disk before an order is answered.
Only its owner can read the file; a sample that has left the buffer is overwritten in it.
"""

import functools
import json
import sqlite3
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, Concatenate, Literal, ParamSpec, TypeVar

from tidegate._internal.saving import plain, reading
from tidegate.client.codec import ArrayCodec, SampleCodec
from tidegate.client.sqlite_file import (
    REMEDY,
    buffer_kind,
    connect,
    empty_log,
    is_damage,
    opening,
    prepare,
    transaction,
)
from tidegate.client.store import (
    KEPT_ANSWERS,
    KEPT_FAILURES,
    Books,
    Candidate,
    Change,
    Choice,
    FailedSample,
    Purchase,
    StoredSample,
    checked_books,
    with_void,
)
from tidegate.errors import DamagedFileError, RunDiffersError
from tidegate.wire import LARGEST_INTEGER, Order, Receipt

Given = ParamSpec("Given")
Result = TypeVar("Result")
Method = Callable[Concatenate["SqliteStore", Given], Result]


def _names_the_file(method: Method[Given, Result]) -> Method[Given, Result]:
    """Say which file is damaged; a full disk or a locked file stays SQLite's own error."""

    @functools.wraps(method)
    def wrapped(self: "SqliteStore", /, *given: Given.args, **named: Given.kwargs) -> Result:
        try:
            return method(self, *given, **named)
        except sqlite3.ProgrammingError:  # closed, or used by another thread
            raise
        except sqlite3.DatabaseError as wrong:
            if not is_damage(wrong):
                raise
            reason = f"is damaged ({type(wrong).__name__}: {str(wrong)[:500]})"
            raise DamagedFileError(self._path, reason, REMEDY) from wrong

    return wrapped


class SqliteStore:
    """A client's buffer in a file; the same file again goes on where it stopped."""

    def __init__(
        self,
        path: Path,
        run: str,
        client: str,
        buffer_capacity: int,
        codec: SampleCodec | None = None,
    ) -> None:
        self._path = path
        self._codec = ArrayCodec() if codec is None else codec
        self._capacity = buffer_capacity
        start = Books(run=run, client=client, buffer_capacity=buffer_capacity)
        self._connection = connect(path)
        kind = buffer_kind()
        with opening(self._connection, path, kind):
            first = "INSERT OR IGNORE INTO books VALUES (1, ?)", (_text(asdict(start)),)
            prepare(self._connection, path, kind, first)
            self._check_owner(start)

    def close(self) -> None:
        """Close the file."""
        self._connection.close()

    @_names_the_file
    def books(self) -> Books:
        """Where the client stands."""
        rows = self._connection.execute("SELECT content FROM books LIMIT 2").fetchall()
        with reading(self._path, REMEDY):
            if len(rows) != 1:
                raise ValueError(f"{len(rows)} books in place of one")
            books = plain(Books, json.loads(rows[0][0]))
            if max(books.last_round, books.void_round, books.total_admitted) > LARGEST_INTEGER:
                raise ValueError(f"counts must be at most {LARGEST_INTEGER}, got {books}")
        return books

    @_names_the_file
    def stored(self) -> list[StoredSample]:
        """What is in the buffer, oldest first."""
        rows = self._connection.execute(
            "SELECT position, admitted_round, uses FROM samples ORDER BY position LIMIT ?",
            (self._capacity + 1,),
        ).fetchall()
        if len(rows) > self._capacity or not all(type(cell) is int for row in rows for cell in row):
            raise self._damaged(f"holds more than {self._capacity} samples, or no numbers")
        return [StoredSample(*row) for row in rows]

    def samples(self) -> list[Any]:
        """The samples themselves, oldest first."""
        return [self._codec.decode(content) for content in self._contents()]

    @_names_the_file
    def _contents(self) -> list[bytes]:
        """The samples as they are stored."""
        rows = self._connection.execute(
            "SELECT content FROM contents ORDER BY position LIMIT ?", (self._capacity + 1,)
        ).fetchall()
        contents = [content for (content,) in rows if type(content) is bytes]
        if not len(contents) == len(rows) <= self._capacity:
            raise self._damaged(f"holds more than {self._capacity} samples, or no bytes")
        return contents

    def _damaged(self, reason: str) -> DamagedFileError:
        return DamagedFileError(self._path, f"is damaged (it {reason})", REMEDY)

    @_names_the_file
    def answer(self, round_number: int) -> tuple[Order, Receipt] | None:
        """The order of a round and the receipt that was given for it."""
        row = self._connection.execute(
            "SELECT sent_order, receipt FROM answers WHERE round_number = ?", (round_number,)
        ).fetchone()
        if row is None:
            return None
        with reading(self._path, REMEDY):
            return Order.from_record(json.loads(row[0])), Receipt.from_record(json.loads(row[1]))

    @_names_the_file
    def failures(self) -> list[FailedSample]:
        """Samples that failed, in the order in which they were noted."""
        rows = self._connection.execute(
            "SELECT content FROM failures ORDER BY number LIMIT ?", (2 * KEPT_FAILURES,)
        ).fetchall()
        with reading(self._path, REMEDY):
            return [plain(FailedSample, json.loads(content)) for (content,) in rows]

    def pack(self, sample: Any) -> bytes:
        """A sample as it will be stored."""
        return self._codec.encode(sample)

    def unpack(self, packed: bytes) -> Any:
        """The sample that was packed."""
        return self._codec.decode(packed)

    @_names_the_file
    def candidates(self, *, only_chosen: bool = False) -> list[Candidate]:
        """First those that were chosen, in that order; then those that wait, oldest first."""
        with transaction(self._connection, "DEFERRED"):  # books and rows of one moment
            most = self.books().candidates
            rows = self._connection.execute(
                "SELECT key, content, choice IS NOT NULL FROM candidates "
                "JOIN candidate_contents USING (number) WHERE choice IS NOT NULL OR NOT ? "
                "ORDER BY choice IS NULL, choice, number LIMIT ?",
                (only_chosen, most + 1),
            ).fetchall()
        complete = len(rows) <= most if only_chosen else len(rows) == most
        if not complete or not all(type(row[0]) is str and type(row[1]) is bytes for row in rows):
            raise self._damaged(f"holds other candidates than the {most} of its books")
        return [Candidate(key, content, bool(chosen)) for key, content, chosen in rows]

    @_names_the_file
    def choose(self, choice: Choice) -> None:
        """Write a choice down in one transaction, on disk when this returns."""
        execute = self._connection.execute
        with transaction(self._connection):
            books = checked_books(choice, self.books())
            for one in choice.fresh:
                added = execute("INSERT INTO candidates (key) VALUES (?)", (one.key,))
                execute(
                    "INSERT INTO candidate_contents VALUES (?, ?)", (added.lastrowid, one.packed)
                )
            ((last,),) = execute("SELECT coalesce(max(choice), 0) FROM candidates")
            for place, key in enumerate(choice.chosen, start=last + 1):
                execute("UPDATE candidates SET choice = ? WHERE key = ?", (place, key))
            self._forget(choice.dropped, "candidate")
            self._note(choice.failed)
            execute("UPDATE books SET content = ?", (_text(asdict(books)),))
        empty_log(self._connection)

    def _forget(self, keys: Sequence[str], kind: Literal["candidate", "purchase"]) -> None:
        """Delete candidates or purchases; their content is overwritten."""
        for key in keys:
            self._connection.execute(
                f"DELETE FROM {kind}_contents WHERE number = "  # noqa: S608 - a word of ours
                f"(SELECT number FROM {kind}s WHERE key = ?)",
                (key,),
            )
            self._connection.execute(f"DELETE FROM {kind}s WHERE key = ?", (key,))  # noqa: S608

    @_names_the_file
    def purchases(self) -> list[Purchase]:
        """What was bought and has not come yet, oldest first."""
        with transaction(self._connection, "DEFERRED"):  # books and rows of one moment
            most = self.books().under_way
            rows = self._connection.execute(
                "SELECT key, price, round_number, asked FROM purchases ORDER BY number LIMIT ?",
                (most + 1,),
            ).fetchall()
        kinds = all(tuple(map(type, row)) == (str, float, int, int) for row in rows)
        if len(rows) != most or not kinds:
            raise self._damaged(f"holds other purchases than the {most} of its books")
        return [Purchase(key, price, now, bool(asked)) for key, price, now, asked in rows]

    @_names_the_file
    def purchased(self, key: str) -> bytes:
        """The packed sample of a purchase that is under way."""
        row = self._connection.execute(
            "SELECT content FROM purchase_contents JOIN purchases USING (number) WHERE key = ?",
            (key,),
        ).fetchone()
        if row is None or type(row[0]) is not bytes:
            raise self._damaged(f"holds no sample for the purchase {key!r}")
        content: bytes = row[0]
        return content

    @_names_the_file
    def mark_asked(self, keys: Sequence[str]) -> None:
        """Note that the supplier knows of these purchases."""
        with transaction(self._connection):
            for key in keys:
                self._connection.execute("UPDATE purchases SET asked = 1 WHERE key = ?", (key,))

    @_names_the_file
    def commit(self, change: Change) -> None:
        """Apply a change in one transaction, on disk when this returns."""
        now, execute = change.order.round_number, self._connection.execute
        with transaction(self._connection):
            books = checked_books(change, self.books())
            for position in change.removed:
                execute("DELETE FROM samples WHERE position = ?", (position,))
                execute("DELETE FROM contents WHERE position = ?", (position,))
            execute("UPDATE samples SET uses = uses + 1")
            for position, packed in enumerate(change.admitted, change.before.total_admitted):
                execute("INSERT INTO samples VALUES (?, ?, 1)", (position, now))
                execute("INSERT INTO contents VALUES (?, ?)", (position, packed))
            self._forget(change.done, "candidate")
            self._forget(change.ended, "purchase")
            for one in change.asked:
                added = execute(
                    "INSERT INTO purchases (key, price, round_number, asked) VALUES (?, ?, ?, 0)",
                    (one.key, change.order.price, now),
                )
                execute(
                    "INSERT INTO purchase_contents VALUES (?, ?)", (added.lastrowid, one.packed)
                )
            self._note(change.failed)
            execute("UPDATE books SET content = ?", (_text(asdict(books)),))
            execute(
                "INSERT INTO answers VALUES (?, ?, ?)",
                (now, _text(change.order.to_record()), _text(change.receipt.to_record())),
            )
            execute("DELETE FROM answers WHERE round_number <= ?", (now - KEPT_ANSWERS,))
        empty_log(self._connection)

    def _note(self, failed: Sequence[FailedSample]) -> None:
        """Keep what failed; what was to be tried again is among it, or is done with."""
        execute = self._connection.execute
        execute("DELETE FROM failures WHERE set_aside = 0")
        for one in failed:
            row = int(one.set_aside), _text(asdict(one))
            execute("INSERT INTO failures (set_aside, content) VALUES (?, ?)", row)
        if failed:
            execute(
                "DELETE FROM failures WHERE set_aside AND number NOT IN "
                "(SELECT number FROM failures WHERE set_aside ORDER BY number DESC LIMIT ?)",
                (KEPT_FAILURES,),
            )

    @_names_the_file
    def void(self, round_number: int) -> None:
        """Never apply an order of a round up to this one, from now on."""
        if self.books().void_round < round_number:
            with transaction(self._connection):
                books = with_void(self.books(), round_number)
                self._connection.execute("UPDATE books SET content = ?", (_text(asdict(books)),))

    def _check_owner(self, start: Books) -> None:
        """Refuse a file that is not this client's."""
        kept, path = self.books(), self._path
        mine = start.run, start.client, start.buffer_capacity
        if (kept.run, kept.client, kept.buffer_capacity) != mine:
            raise RunDiffersError(
                f"{path} belongs to {kept.client!r} in run {kept.run!r} with capacity "
                f"{kept.buffer_capacity}, not to {start.client!r} in {start.run!r} with "
                f"{start.buffer_capacity}; give it what it had, or use another folder or file",
                name="run, client and buffer_capacity",
                saved=(kept.run, kept.client, kept.buffer_capacity),
                given=mine,
            )


def _text(record: Mapping[str, object]) -> str:
    return json.dumps(record, sort_keys=True)
