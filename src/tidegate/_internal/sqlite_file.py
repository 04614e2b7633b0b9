"""Our SQLite files: their tables, their format, and what counts as damage."""

import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from tidegate._internal.sqlite_errors import is_busy
from tidegate.errors import ConfigurationError, DamagedFileError, RunDiffersError

BUSY_SECONDS = 30.0
"""How long to wait for another process that is writing to the same file."""
OWNER_ONLY = 0o600
SUFFIX = ".sqlite"
"""Of the names that we give; who opens a spool or a ``Store`` chooses its name."""
BESIDE = ("-wal", "-shm", "-journal")
"""What SQLite adds to a file's name for those that belong to it."""


@dataclass(frozen=True)
class FileKind:
    """What a file is for, and the tables that it has."""

    name: str
    application_id: int
    """Marks a file as one of this kind."""
    schema: int
    """The number of its format, from 1; a file with another one is refused."""
    tables: tuple[str, ...]
    """The statements that create them."""
    remedy: str
    """What to do where it is damaged."""
    page_size: int = 4096
    """Bytes, of a new file: what is written at least where a row changes."""


def is_damage(wrong: sqlite3.DatabaseError | OverflowError) -> bool:
    """Return whether the file's content is at fault, not a full disk or a locked file."""
    code = getattr(wrong, "sqlite_errorcode", sqlite3.SQLITE_ERROR)
    return not isinstance(wrong, sqlite3.OperationalError) or code == sqlite3.SQLITE_ERROR


def connect(path: Path, *, any_thread: bool = False, owner_only: bool = True) -> sqlite3.Connection:
    """Open a file.

    Args:
        path: of the file, which is created if it does not exist.
        any_thread: several threads use the connection, one at a time; its owner ensures that.
        owner_only: only the file's owner can read it.
    """
    if owner_only:
        path.touch(mode=OWNER_ONLY)  # its log and its lock file take the same permissions
        path.chmod(OWNER_ONLY)
    return sqlite3.connect(
        path, timeout=BUSY_SECONDS, isolation_level=None, check_same_thread=not any_thread
    )


@contextmanager
def opening(connection: sqlite3.Connection, path: Path, kind: FileKind) -> Iterator[None]:
    """Close a file that cannot be opened after all, and say what is wrong with it."""
    try:
        yield
    except (sqlite3.DatabaseError, OverflowError) as wrong:
        connection.close()
        message = f"cannot be opened as a {kind.name}: {wrong}"
        if is_damage(wrong):
            raise DamagedFileError(path, message, kind.remedy) from wrong
        raise ConfigurationError(
            f"{path} {message}; check that its disk has room, that this user may write to it, and "
            "that no other program holds it"
        ) from wrong
    except BaseException:
        connection.close()
        raise


def prepare(
    connection: sqlite3.Connection,
    path: Path,
    kind: FileKind,
    first: tuple[str, tuple[object, ...]] | None = None,
) -> None:
    """Create the tables of a new file, and refuse one of another kind or format.

    Args:
        connection: to the file.
        path: names it in errors.
        kind: what it must be.
        first: a statement and its values, executed in a new file; if any.
    """
    ((tables,),) = connection.execute("SELECT count(*) FROM sqlite_master")
    # In this order: whoever sees our tables sees the mark that was written with them.
    if tables and _pragma(connection, "application_id") != kind.application_id:
        raise ConfigurationError(f"{path} is a database, but not a {kind.name}; use another file")
    if tables or _pragma(connection, "user_version"):
        check_tables(connection, path, kind)
    connection.execute(f"PRAGMA page_size = {kind.page_size}")  # of one that has no pages yet
    _use_write_ahead_log(connection)
    connection.execute("PRAGMA synchronous = FULL")
    connection.execute("PRAGMA secure_delete = ON")
    connection.execute("PRAGMA temp_store = MEMORY")  # no copy of a page outside of the file
    if _pragma(connection, "user_version") != kind.schema:
        _create(connection, kind, first)


@contextmanager
def transaction(
    connection: sqlite3.Connection, kind: Literal["IMMEDIATE", "DEFERRED"] = "IMMEDIATE"
) -> Iterator[None]:
    """Execute everything within it, or nothing; reads see one moment.

    Args:
        connection: to the file.
        kind: ``DEFERRED`` blocks no writer, for reading.
    """
    try:
        connection.execute(f"BEGIN {kind}")
        yield
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


def empty_log(connection: sqlite3.Connection, *, wait: bool = False) -> bool:
    """Overwrite what was deleted in the file, and leave nothing of it in the log.

    Args:
        connection: to the file.
        wait: up to ``BUSY_SECONDS`` if a program is reading it; otherwise it is done next time.

    Returns:
        Whether it is done.
    """
    busy, usual = 1, int(1000 * BUSY_SECONDS)
    with suppress(sqlite3.OperationalError):  # the change itself is made, whatever this does
        connection.execute(f"PRAGMA busy_timeout = {usual if wait else 0}")
        ((busy, _, _),) = connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
    connection.execute(f"PRAGMA busy_timeout = {usual}")
    return not busy


def check_tables(connection: sqlite3.Connection, path: Path, kind: FileKind) -> None:
    """Refuse another format, and foreign tables, views and triggers: reading them may run anything.

    A file without any is new.
    """
    version = _pragma(connection, "user_version")
    if version not in (0, kind.schema):
        raise RunDiffersError(
            f"{path} has format {version}, but this program reads {kind.schema}: another version "
            f"of Tidegate wrote it; continue with that version, or use another file",
            name="format",
            saved=version,
            given=kind.schema,
        )
    ours = set(kind.tables) if version else set()
    tables = connection.execute(
        "SELECT sql FROM sqlite_master WHERE name NOT LIKE 'sqlite_%'"  # its own tables
    ).fetchall()
    if {statement for (statement,) in tables} != ours:
        raise DamagedFileError(
            path, f"is damaged (it has other tables than a {kind.name})", kind.remedy
        )


def _use_write_ahead_log(connection: sqlite3.Connection) -> None:
    """Switch to the write-ahead log; SQLite itself does not wait if two processes do so at once."""
    deadline = time.monotonic() + BUSY_SECONDS
    while True:
        try:
            connection.execute("PRAGMA journal_mode = WAL")
        except sqlite3.OperationalError as wrong:
            if not is_busy(wrong) or time.monotonic() > deadline:
                raise
            time.sleep(0.005)
        else:
            return


def _create(
    connection: sqlite3.Connection,
    kind: FileKind,
    first: tuple[str, tuple[object, ...]] | None,
) -> None:
    with transaction(connection):
        if _pragma(connection, "user_version") == kind.schema:
            return  # another process was faster
        for statement in kind.tables:
            connection.execute(statement)
        if first is not None:
            connection.execute(*first)
        connection.execute(f"PRAGMA application_id = {kind.application_id}")
        connection.execute(f"PRAGMA user_version = {kind.schema}")


def _pragma(connection: sqlite3.Connection, name: str) -> int:
    ((value,),) = connection.execute(f"PRAGMA {name}")
    return int(value)


def opened_to_read(path: Path) -> sqlite3.Connection:
    """Open the file; without the right to create a log, read the file as it is."""
    address = f"{path.absolute().as_uri()}?mode=ro"
    connection = _reader(address)
    try:
        connection.execute("SELECT count(*) FROM sqlite_master").fetchall()
    except sqlite3.OperationalError:
        connection.close()
        if path.with_name(f"{path.name}-wal").exists():
            raise
        return _reader(f"{address}&immutable=1")
    except BaseException:
        connection.close()
        raise
    return connection


def _reader(address: str) -> sqlite3.Connection:
    return sqlite3.connect(
        address, uri=True, timeout=BUSY_SECONDS, isolation_level=None, check_same_thread=False
    )


def databases(folder: Path) -> list[Path]:
    """Return the databases in a folder, whatever their names, and what is named like one."""

    def is_database(path: Path) -> bool:
        # Who opens a database himself, and closes it, drops the locks of his whole process on it.
        try:
            with closing(_reader(f"{path.absolute().as_uri()}?mode=ro")) as file:
                file.execute("PRAGMA schema_version").fetchall()
        except sqlite3.DatabaseError:
            return False
        return True

    if not folder.is_dir():
        return []
    files = (path for path in sorted(folder.iterdir()) if path.is_file())
    return [
        path
        for path in files
        if path.suffix == SUFFIX or (not path.name.endswith(BESIDE) and is_database(path))
    ]
