"""A buffer's file as every program needs it that opens one: its books, and letting go.

A store is more than this; ``tidegate sweep``, which has no codec and trains nothing, needs no more.
"""

import functools
import json
import sqlite3
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Concatenate, ParamSpec, Self, TypeVar

from tidegate._internal.saving import plain, reading
from tidegate._internal.sqlite_file import (
    connect,
    empty_log,
    is_damage,
    opening,
    prepare,
    transaction,
)
from tidegate.client.forgotten import Forgotten
from tidegate.client.keeping import Keeping
from tidegate.client.limits import Clock
from tidegate.client.record import Event
from tidegate.client.sqlite_file import REMEDY, buffer_kind
from tidegate.client.store import Books, BooksMovedError, Origin
from tidegate.errors import DamagedFileError, RunDiffersError
from tidegate.wire import LARGEST_INTEGER

Given = ParamSpec("Given")
Result = TypeVar("Result")
Owner = TypeVar("Owner", bound="SqliteBooks")
Method = Callable[Concatenate[Owner, Given], Result]


def names_the_file(method: Method[Owner, Given, Result]) -> Method[Owner, Given, Result]:
    """Name a damaged file in errors; a full disk or a locked file stays SQLite's own error."""

    @functools.wraps(method)
    def wrapped(self: Owner, /, *given: Given.args, **named: Given.kwargs) -> Result:
        try:
            return method(self, *given, **named)
        except sqlite3.ProgrammingError:  # closed, or used by another thread
            raise
        except sqlite3.DatabaseError as wrong:
            if not is_damage(wrong):
                raise
            reason = f"is damaged ({type(wrong).__name__}: {str(wrong)[:500]})"
            raise DamagedFileError(self._path, reason, REMEDY) from wrong
        except OverflowError as wrong:  # a number of its books that SQLite cannot hold
            raise self._damaged(f"holds a number that is too large: {wrong}") from wrong

    return wrapped


class SqliteBooks:
    """The books of a buffer's file.

    Args:
        path: of the file.
        start: the books of a new file; without them, a file that has none is refused.
        clock: returns the time.
    """

    def __init__(self, path: Path, start: Books | None = None, clock: Clock = time.time) -> None:
        self._path = path
        self._connection = connect(path)
        kind = buffer_kind()
        with opening(self._connection, path, kind):
            first: tuple[str, tuple[object, ...]] = "SELECT 1", ()
            if start is not None:
                first = "INSERT INTO books VALUES (1, ?)", (as_text(asdict(start)),)
            prepare(self._connection, path, kind, first)
            if start is not None:
                self._check_owner(start)
            self._keeping = Keeping(self._connection, clock)
            self._forgotten = Forgotten(path.parent)
            if not self.books().record_number:
                with transaction(self._connection):
                    self._write(self._keeping.begin(self.books()))
            empty_log(self._connection)  # a process that died may have left deleted content in it

    def close(self) -> None:
        """Close the file."""
        self._connection.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @names_the_file
    def books(self) -> Books:
        """Return the state of the client."""
        rows = self._connection.execute("SELECT content FROM books LIMIT 2").fetchall()
        with reading(self._path, REMEDY):
            if len(rows) != 1:
                raise ValueError(f"{len(rows)} books in place of one")
            books = plain(Books, json.loads(rows[0][0]))
            if max(books.last_round, books.void_round, books.total_admitted) > LARGEST_INTEGER:
                raise ValueError(f"counts must be at most {LARGEST_INTEGER}, got {books}")
        return books

    @names_the_file
    def keep_at_most(self, length: int) -> None:
        """Hold samples for at most so many milliseconds from now on; 0 for any time."""
        if self._keeping.keep != length:
            with transaction(self._connection):
                self._write(self._keeping.set_keep(self.books(), length))

    @property
    @names_the_file
    def has_limit(self) -> bool:
        """Whether samples may be held for a limited time only."""
        return bool(self._keeping.keep)

    def let_go(self) -> None:
        """Overwrite what may no longer be held, and leave nothing of it in the log."""
        self.delete("expired")

    @names_the_file
    def delete(self, event: Event) -> tuple[int, int]:
        """Overwrite what may no longer be held, and leave nothing of it in the log.

        Args:
            event: the record's name for samples that were held for too long.

        Returns:
            How much was held for too long, and how much was about a forgotten subject.
        """
        forgotten = self._forgotten.hashes()
        self._keeping.end_order()
        if not (self._keeping.keep or forgotten):
            return 0, 0
        with transaction(self._connection), reading(self._path, REMEDY):
            before = self.books()
            after, gone = self._keeping.let_go(before, event, forgotten)
            if after != before:
                self._write(after)
        empty_log(self._connection)
        return gone

    @names_the_file
    def empty_log(self) -> bool:
        """Wait until nothing deleted is left; return False if another program kept reading."""
        return empty_log(self._connection, wait=True)

    def whose(self, subject: str) -> str | None:
        """Return the keyed hash of a subject in this folder; None for a forgotten one."""
        known = self._forgotten.hash_of(subject)
        return None if known in self._forgotten.hashes() else known

    def _refuse_forgotten(self, origins: Iterable[Origin]) -> None:
        """Refuse samples of a subject that was forgotten meanwhile, within their transaction."""
        subjects = {one.subject for one in origins} - {""}
        if subjects and subjects & self._forgotten.hashes():
            raise BooksMovedError("a subject was forgotten meanwhile; apply the order again")

    @names_the_file
    def held(self) -> int:
        """Return how many samples, candidates and purchases have content in the file."""
        ((count,),) = self._connection.execute("SELECT count(*) FROM origins")
        return int(count)

    @names_the_file
    def unnamed(self) -> int:
        """Return how many of these have no known subject."""
        ((count,),) = self._connection.execute("SELECT count(*) FROM origins WHERE subject = ''")
        return int(count)

    def _write(self, books: Books) -> None:
        self._connection.execute("UPDATE books SET content = ?", (as_text(asdict(books)),))

    def _damaged(self, reason: str) -> DamagedFileError:
        return DamagedFileError(self._path, f"is damaged (it {reason})", REMEDY)

    def _check_owner(self, start: Books) -> None:
        """Refuse a file that is not this client's."""
        kept, path = self.books(), self._path
        mine = start.run, start.client, start.buffer_capacity
        if (kept.run, kept.client, kept.buffer_capacity) != mine:
            raise RunDiffersError(
                f"{path} belongs to {kept.client!r} in run {kept.run!r} with capacity "
                f"{kept.buffer_capacity}, not to {start.client!r} in {start.run!r} with "
                f"{start.buffer_capacity}; restore these settings, or use another folder or file",
                name="run, client and buffer_capacity",
                saved=(kept.run, kept.client, kept.buffer_capacity),
                given=mine,
            )


def as_text(record: Mapping[str, object]) -> str:
    """A record as it is stored."""
    return json.dumps(record, sort_keys=True)
