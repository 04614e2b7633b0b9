"""The SQLite file in which a device keeps its buffer: its tables, and who may change them.

Write-ahead log, ``synchronous=FULL``: what was committed is on disk before the client replies. Only
the file's owner can read it; content that has left is overwritten in it. Large contents are files
beside it: on disk before the row that names them is committed, and overwritten after the commit
that no longer names them. What a crash leaves in between goes when the buffer is opened.
"""

import hashlib
import json
import logging
import os
import re
import secrets
import sqlite3
from collections.abc import Collection, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from typing import Any, Self

from tidegate._internal.saving import sync_folder
from tidegate._internal.sqlite_file import (
    OWNER_ONLY,
    FileKind,
    connect,
    empty_log,
    is_damage,
    opened_to_read,
    opening,
    prepare,
    transaction,
)
from tidegate.client.forgotten import Forgotten
from tidegate.errors import DamagedFileError

logger = logging.getLogger(__name__)

APPLICATION_ID = 0x71DE6A7E
"""Marks a file as ours, so that nobody else's database is ever changed."""
REMEDY = (
    "copy it to a safe place if you must account for what it held, and delete it, both with the "
    "folder NAME-contents beside it; the client then begins again with an empty buffer"
)
SCHEMA = 1
"""The number of the format; raised with each change of the tables or of what is in them."""
TABLES = (
    # A row a client: how far it is, what it paid, its own time, and the end of its record.
    """CREATE TABLE clients (
        number INTEGER PRIMARY KEY, run TEXT NOT NULL, client TEXT NOT NULL,
        buffer_capacity INTEGER NOT NULL, train_on INTEGER NOT NULL, buffer_id TEXT NOT NULL,
        begun TEXT NOT NULL,
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
        is_asked INTEGER NOT NULL, since INTEGER NOT NULL, in_group TEXT NOT NULL,
        uses INTEGER NOT NULL, used_in INTEGER NOT NULL,
        held_at INTEGER NOT NULL, subject TEXT NOT NULL, secret BLOB NOT NULL, mark TEXT NOT NULL
    )""",
    "CREATE INDEX sample_states ON samples (client, state, place, since, bought_in, in_group)",
    "CREATE INDEX sample_times ON samples (client, state, held_at)",
    "CREATE INDEX sample_keys ON samples (client, key)",
    "CREATE INDEX sample_subjects ON samples (subject) WHERE subject != ''",
    # Apart from the rows, which are read and changed more often; either a content or its file.
    """CREATE TABLE contents (
        number INTEGER PRIMARY KEY, file TEXT NOT NULL, content BLOB NOT NULL
    )""",
    "CREATE INDEX content_files ON contents (file) WHERE file != ''",
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
LARGE = 1_000_000
"""Bytes from which a content is a file of its own."""
FILE_NAME = re.compile("[0-9a-f]{32}")
OWNER_ONLY_FOLDER = 0o700
ZEROS = bytes(1_000_000)
KIND = FileKind("buffer", APPLICATION_ID, SCHEMA, TABLES, REMEDY)


class DeviceFile:
    """An open file.

    Args:
        path: of the file, which is created if it does not exist; None for a database in memory.
        is_shared: all clients of a run in this process use it. What they change survives the end
            of the process at once, and a loss of power from the next ``sync`` on.
        is_reader: it is only read, while another process may change it.
    """

    def __init__(
        self, path: Path | None, *, is_shared: bool = False, is_reader: bool = False
    ) -> None:
        self.path = Path(":memory:") if path is None else path
        self.is_in_memory = path is None
        self.is_shared = is_shared
        self.forgotten = None if path is None else Forgotten(path.parent)
        """Who is forgotten in the file's folder; what is in memory goes with its process."""
        self._connection = (
            opened_to_read(self.path)
            if is_reader
            else connect(self.path, any_thread=is_shared, owner_only=path is not None)
        )
        self._connection.text_factory = as_text
        self.execute = self._connection.execute
        self.contents = Contents(self, None if path is None else contents_folder(path))
        if is_reader:
            return
        with self.opening():
            prepare(self._connection, self.path, KIND)
            self.sync()  # a process that died may have left deleted content
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
        with self.naming_damage(), self.contents.changing(), transaction(self._connection):
            yield
            self.contents.sync_names()
        if not (self.is_shared or self.is_in_memory):
            self.sync()

    def alone(self) -> AbstractContextManager[None]:
        """Wait until nobody changes the file, and let nobody begin."""
        return transaction(self._connection)

    @contextmanager
    def naming_damage(self) -> Iterator[None]:
        """Name a damaged file in errors; a full disk or a locked file stays SQLite's own error."""
        try:
            yield
        except (sqlite3.DatabaseError, OverflowError) as wrong:
            self._name_damage(wrong)
            raise

    def _name_damage(self, wrong: Exception) -> None:
        if isinstance(wrong, OverflowError):  # a number of its books that SQLite cannot hold
            raise self.damaged(f"it holds a number that is too large: {wrong}") from wrong
        is_misuse = isinstance(wrong, sqlite3.ProgrammingError)  # closed, or of another thread
        if isinstance(wrong, sqlite3.DatabaseError) and not is_misuse and is_damage(wrong):
            raise self.damaged(f"{type(wrong).__name__}: {str(wrong)[:500]}") from wrong

    def damaged(self, reason: str) -> DamagedFileError:
        """Return the error of a file whose content is not possible."""
        return DamagedFileError(self.path, f"is damaged ({reason})", REMEDY)

    def rows(self, kinds: tuple[type, ...], statement: str, *values: object) -> list[Any]:
        """Return the rows of a query; those of a damaged file may hold other kinds of values."""
        try:  # written out: an order asks twenty times
            rows = self.execute(statement, values).fetchall()
        except (sqlite3.DatabaseError, OverflowError) as wrong:
            self._name_damage(wrong)
            raise
        return [self.checked(kinds, row) for row in rows]

    def checked(self, kinds: tuple[type, ...], row: tuple[Any, ...]) -> tuple[Any, ...]:
        """Return a row that holds values of these kinds; refuse another."""
        if tuple(map(type, row)) != kinds:
            names = ", ".join(kind.__name__ for kind in kinds)
            raise self.damaged(f"it holds {str(row)[:300]} in place of {names}")
        return row

    def clients(self, *whose: str) -> list[tuple[str, str, int, int]]:
        """Return the run, name, capacity and number of samples to train on of each client.

        Args:
            whose: run and name, to look for this client alone.
        """
        query = "SELECT run, client, buffer_capacity, train_on FROM clients"
        only = " WHERE run = ? AND client = ?" if whose else ""
        return self.rows((str, str, int, int), f"{query}{only} ORDER BY number", *whose)

    def sync(self) -> None:
        """Have everything on disk, and nothing in the log that was deleted in the file.

        While somebody reads the file, the log stays; then it is on disk itself.
        """
        if not empty_log(self._connection) and self.is_shared:
            self.sync_log()
        self.contents.overwrite_left()

    def sync_log(self) -> None:
        """Have the log on disk."""
        log = self.path.with_name(f"{self.path.name}-wal")
        if log.exists():
            with log.open("rb") as file:
                os.fsync(file.fileno())

    def empty_log(self) -> bool:
        """Wait until nothing that was deleted is left; False if somebody reads on."""
        return empty_log(self._connection, wait=True) and self.contents.overwrite_left()


class Contents:
    """The contents of samples.

    Args:
        file: that names them.
        folder: of large ones; None for a buffer in memory, which has no files.
    """

    def __init__(self, file: "DeviceFile", folder: Path | None) -> None:
        self._file = file
        self._folder = folder
        self._has_written = False
        """Whether the present change wrote a file."""
        self._leaving: list[Path] = []
        """Files that no row names any longer."""
        self._may_have_orphans = True
        """Whether a process that died, or a change that failed, may have left others."""

    def write(self, number: int, packed: bytes) -> None:
        """Write the content of a sample, in place of an earlier one."""
        name = ""
        if len(packed) >= LARGE and self._folder is not None:
            name, packed = self._write_file(self._folder, packed), b""
        self.remove(number)
        self._file.execute("INSERT INTO contents VALUES (?, ?, ?)", (number, name, packed))

    def remove(self, number: int) -> None:
        """Delete the content of a sample, if it has one."""
        if self._folder is not None:
            query = "SELECT file FROM contents WHERE number = ? AND file != ''"
            names = self._file.rows((str,), query, number)
            self._leaving += [content_file(self._file.path, name) for (name,) in names]
        self._file.execute("DELETE FROM contents WHERE number = ?", (number,))

    def read(self, numbers: Collection[int]) -> Iterator[tuple[int, bytes]]:
        """Yield numbers of samples and their contents one by one, without those that are gone."""
        query = (
            "SELECT number, file, content FROM contents "
            "WHERE number IN (SELECT value FROM json_each(?))"
        )
        large = []
        with self._file.naming_damage():
            for row in self._file.execute(query, (json.dumps(list(numbers)),)):
                number, name, content = self._file.checked((int, str, bytes), row)
                if name:
                    large.append((number, name))
                else:
                    yield number, content
        for number, name in large:  # after the query, which sees one moment
            read = self._read_file(number, name)
            if read is not None:
                yield number, read

    @contextmanager
    def changing(self) -> Iterator[None]:
        """Remember that a change which is not made may leave files."""
        try:
            yield
        except BaseException:
            self._leaving, self._may_have_orphans = [], True
            raise

    def sync_names(self) -> None:
        """Have the names of new files on disk, before the rows that name them are committed."""
        if self._has_written and self._folder is not None:
            sync_folder(self._folder)
        self._has_written = False

    def overwrite_left(self) -> bool:
        """Overwrite files that no row on disk names any longer; False if that has to wait."""
        try:
            if self._may_have_orphans:
                self._leaving = self._orphans()
                if self._leaving:
                    with self._file.alone():
                        self._leaving = self._orphans()  # without those of a change under way
                        self._file.sync_log()  # who shares the file may not have synced it yet
            self._may_have_orphans = False
            while self._leaving:
                overwrite(self._leaving[-1])
                self._leaving.pop()
        except (OSError, sqlite3.OperationalError):
            self._may_have_orphans = True
            logger.exception(
                "contents that have left %s are not overwritten yet; that is tried again with its "
                "next change",
                self._file.path,
            )
        return not self._may_have_orphans

    def _orphans(self) -> list[Path]:
        """Return files that no row names: a process died before or after it changed the rows."""
        if self._folder is None:
            return []
        files = {file.name: file for file in large_contents(self._file.path)}
        query = "SELECT file FROM contents WHERE file != ''"
        for (name,) in self._file.rows((str,), query):
            files.pop(name, None)
        return list(files.values())

    def _write_file(self, folder: Path, packed: bytes) -> str:
        """Write a new file, on disk when this returns; return its name."""
        if not folder.is_dir():
            folder.mkdir(mode=OWNER_ONLY_FOLDER, exist_ok=True)
            sync_folder(folder.parent)
        self._has_written = True
        file = folder / secrets.token_hex(16)
        file.touch(mode=OWNER_ONLY, exist_ok=False)
        with file.open("wb") as content:
            content.write(packed)
            content.flush()
            os.fsync(content.fileno())
        return file.name

    def _read_file(self, number: int, name: str) -> bytes | None:
        """Return a file's content; None if it was deleted with its row meanwhile."""
        content = None
        with suppress(FileNotFoundError):
            content = content_file(self._file.path, name).read_bytes()
        query = "SELECT 1 FROM contents WHERE number = ? AND file = ?"
        if not self._file.rows((int,), query, number, name):
            return None  # and what was read may be half overwritten
        if content is None:
            raise self._file.damaged(f"its content {name} is missing")
        return content


def contents_folder(path: Path) -> Path:
    """Return where the large contents of a buffer are."""
    return path.with_name(f"{path.name}-contents")


def content_file(path: Path, name: str) -> Path:
    """Return the file of a large content; refuse a name that is not ours, which may be a path."""
    if not FILE_NAME.fullmatch(name):
        reason = f"is damaged (it names {name[:50]!r} as a content's file)"
        raise DamagedFileError(path, reason, REMEDY)
    return contents_folder(path) / name


def overwrite(file: Path) -> None:
    """Overwrite a file and delete it; it may be gone already. Of a link, only the link goes."""
    with suppress(FileNotFoundError):
        if not file.is_symlink():
            with os.fdopen(os.open(file, os.O_RDWR | os.O_NOFOLLOW), "r+b") as content:
                left = os.fstat(content.fileno()).st_size
                while left > 0:
                    left -= content.write(ZEROS[:left])
                content.flush()
                os.fsync(content.fileno())
        file.unlink()


def large_contents(path: Path) -> list[Path]:
    """Return the files in a buffer's folder of large contents."""
    folder = contents_folder(path)
    return [file for file in folder.iterdir() if not file.is_dir()] if folder.is_dir() else []


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
