"""Buffers in a folder: whose they are, when they were last used, and how to remove one.

A node does not learn that a run is over, so age has to tell: every message that a node answers
marks its buffer as used.
"""

import os
import sqlite3
from collections.abc import Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path

from tidegate._internal.sqlite_errors import is_busy
from tidegate._internal.sqlite_file import BESIDE, SUFFIX, databases, opened_to_read
from tidegate.client.device_file import APPLICATION_ID, contents_folder, large_contents, overwrite
from tidegate.errors import ConfigurationError, DamagedFileError

REMEDY = "check what it is, and delete it yourself if it is not needed"
AS_OWNER = "this user may not open it: run the command as the user of the SuperNode"


@dataclass(frozen=True)
class BufferFile:
    """A file with the buffer of a client, or of all clients of a run in one process."""

    path: Path
    run: str
    client: str
    """Its name; of several, how many there are."""
    samples: int
    candidates: int
    """Candidates that wait in its backlog, or are chosen and not yet paid for."""
    under_way: int
    """Samples of purchases under way."""
    under_way_size: int
    """Bytes of these samples."""
    size: int
    """Bytes, with those of its log and of large contents."""
    used_at: float
    """When a message was last answered with it, in seconds since 1970; sweeping is no use."""


def users_folder() -> Path:
    """Return where nodes without a folder keep their buffers, by the XDG specification."""
    state = Path(os.environ.get("XDG_STATE_HOME", ""))
    if not state.is_absolute():  # as its specification has it
        try:
            state = Path.home() / ".local" / "state"
        except RuntimeError:
            raise ConfigurationError(
                "this user has no home directory for samples: give the SuperNode --node-config "
                "'tidegate-folder=\"/var/lib/tidegate\"'"
            ) from None
    return state / "tidegate"


def find_buffers(folder: Path) -> tuple[list[BufferFile], list[DamagedFileError]]:
    """Return the buffers in a folder, the last used at the end, and files that are unreadable."""
    found, unreadable = [], []
    for path in databases(folder):
        if path.suffix != SUFFIX and not is_marked(path):
            continue  # somebody else's, or a spool
        try:
            found.append(read_buffer(path))
        except DamagedFileError as wrong:
            unreadable.append(wrong)
    return sorted(found, key=lambda one: one.used_at), unreadable


def read_buffer(path: Path) -> BufferFile:
    """Read a buffer's file; reading does not count as use."""
    parts = [*_parts(path)[:2], *large_contents(path)]
    sizes = {part.name: part.stat().st_size for part in parts if part.exists()}
    try:
        with closing(opened_to_read(path)) as file:
            check_ours(path, file)
            clients = file.execute("SELECT run, client FROM clients").fetchall()
            ((samples, candidates),) = file.execute(
                "SELECT count(*) FILTER (WHERE state = 'stored'), "
                "count(*) FILTER (WHERE state IN ('candidate', 'chosen')) FROM samples"
            ).fetchall()
            under_way = file.execute(
                "SELECT file, length(content) FROM samples JOIN contents USING (number) "
                "WHERE state = 'under way'"
            ).fetchall()
            used_at = _used_at(file)
            (run, client), *others = clients
    except (sqlite3.DatabaseError, ValueError) as wrong:
        if isinstance(wrong, DamagedFileError):
            raise
        reason = f"cannot be read as a buffer ({wrong})"
        raise DamagedFileError(path, reason, remedy(path)) from wrong
    return BufferFile(
        path=path,
        run=str(run),
        client=f"{len(clients):,} clients" if others else str(client),
        samples=int(samples),
        candidates=int(candidates),
        under_way=len(under_way),
        under_way_size=sum(sizes.get(name, length) for name, length in under_way),
        size=sum(sizes.values()),
        used_at=used_at,
    )


def remove_buffer(buffer: BufferFile, unused_since: float) -> bool:
    """Overwrite a buffer's samples and delete its files; return whether that was done.

    Nothing is done if another process has it open, or has used it meanwhile. Raises
    ``DamagedFileError`` if it cannot be overwritten, because it is damaged or belongs to another
    user.

    Args:
        buffer: as it was found.
        unused_since: seconds since 1970; a buffer that was used later stays.
    """
    path = buffer.path
    try:
        with closing(sqlite3.connect(path, timeout=0, isolation_level=None)) as file:
            check_ours(path, file)
            file.execute("PRAGMA locking_mode = EXCLUSIVE")
            # Only who is alone can leave the write-ahead log. Pages that are overwritten must not
            # be copied to a journal on disk before.
            file.execute("PRAGMA journal_mode = MEMORY")
            file.execute("PRAGMA secure_delete = ON")
            file.execute("BEGIN EXCLUSIVE")
            if _used_at(file) > unused_since:
                file.execute("ROLLBACK")
                return False
            tables = file.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall()
            for (table,) in tables:
                file.execute(f'DELETE FROM "{table}"')  # noqa: S608 - its own names
            for content in large_contents(path):  # before the rows that name them are gone
                overwrite(content)
            file.execute("COMMIT")
            with suppress(OSError):  # it is not there, or has something that is not ours
                contents_folder(path).rmdir()
            for part in _parts(path):
                part.unlink(missing_ok=True)
    except (sqlite3.Error, OSError) as wrong:
        if isinstance(wrong, sqlite3.Error) and is_busy(wrong):
            return False
        raise DamagedFileError(path, f"cannot be removed ({wrong})", REMEDY) from wrong
    return True


def mark_of_file(path: Path) -> int:
    """Return the mark of a database's kind; raise ``DamagedFileError`` if it is not a database."""
    try:
        with closing(opened_to_read(path)) as file:
            ((mark,),) = file.execute("PRAGMA application_id").fetchall()
    except sqlite3.DatabaseError as wrong:
        told = f"cannot be read as a database ({wrong})"
        raise DamagedFileError(path, told, remedy(path)) from wrong
    return int(mark)


def is_marked(
    path: Path, marks: Sequence[int] = (APPLICATION_ID,), *, unreadable: bool = False
) -> bool:
    """Return whether a database is of one of these kinds, by default a buffer.

    Args:
        path: the file.
        marks: of the kinds.
        unreadable: returned for a file that cannot be read as a database.
    """
    try:
        return mark_of_file(path) in marks
    except (DamagedFileError, OSError):
        return unreadable


def may_be_buffer(path: Path) -> bool:
    """Return whether a file is a buffer, or could have been one before it was damaged."""
    is_empty = path.exists() and not path.stat().st_size
    return is_empty or is_marked(path, unreadable=True)


def remedy(path: Path) -> str:
    """Return what to do about a file that cannot be opened."""
    return REMEDY if _may_write(path) else AS_OWNER


def _may_write(path: Path) -> bool:
    effective = os.access in os.supports_effective_ids
    return all(os.access(one, os.W_OK, effective_ids=effective) for one in (path, path.parent))


def check_ours(path: Path, file: sqlite3.Connection) -> None:
    """Refuse a database that is not a buffer."""
    ((mark,),) = file.execute("PRAGMA application_id").fetchall()
    if mark != APPLICATION_ID:
        raise DamagedFileError(path, "is not a buffer of Tidegate", REMEDY)


def _used_at(file: sqlite3.Connection) -> float:
    """Return when a message was last answered, in seconds since 1970."""
    ((used_at,),) = file.execute("SELECT max(used_at) FROM clients").fetchall()
    if type(used_at) is not int:
        raise ValueError(f"it was last used at {used_at!r}")
    return used_at / 1000


def _parts(path: Path) -> list[Path]:
    return [path.with_name(path.name + ending) for ending in ("", *BESIDE)]
