"""Sweep a folder: overwrite what its buffers and spools may no longer hold.

This is for devices that get no messages for weeks. It also completes what a process that died had
begun.
"""

import sqlite3
import time
from dataclasses import dataclass
from pathlib import Path

from tidegate._internal.sqlite_errors import is_busy
from tidegate._internal.sqlite_file import BUSY_SECONDS, SUFFIX, databases
from tidegate.client.buffer_files import REMEDY, mark_of_file, remedy
from tidegate.client.device_file import APPLICATION_ID, DeviceFile
from tidegate.client.limits import Clock
from tidegate.client.other_files import other_files
from tidegate.client.store import Store
from tidegate.errors import DamagedFileError, TidegateError


@dataclass(frozen=True)
class Swept:
    """What was done to one file."""

    path: Path
    kind: str
    """``"buffer"`` or ``"spool"``."""
    deleted: int
    """Samples, candidates and purchases whose content was overwritten; messages of a spool."""
    erased: int
    """Of these, those about a subject that was forgotten; the others were held for too long."""
    held: int
    """That are left."""
    unnamed: int
    """Of these, those of which nobody said whom they are about."""
    has_limit: bool
    """Whether the app has set ``keep_at_most``."""


def sweep_file(path: Path, clock: Clock = time.time) -> Swept | None:
    """Overwrite what a file may no longer hold; None for a file that is not ours."""
    mark = mark_of_file(path)
    try:
        if mark == APPLICATION_ID:
            return _sweep_buffer(path, clock)
        for others in other_files():
            if mark == others.mark:
                return others.sweep(path, clock)
    except sqlite3.OperationalError as wrong:
        told = "is in use and was not swept" if is_busy(wrong) else f"was not swept ({wrong})"
        later = "sweep again later" if is_busy(wrong) else remedy(path)
        raise DamagedFileError(path, told, later) from wrong
    return None


def _sweep_buffer(path: Path, clock: Clock) -> Swept:
    deleted = erased = 0
    has_limit = False
    with DeviceFile(path) as file:
        for store in Store.of_each(file, clock):
            expired, forgotten = store.let_go("swept")
            deleted, erased = deleted + expired + forgotten, erased + forgotten
            has_limit = has_limit or store.books().keep > 0
        ((held, unnamed),) = file.rows(
            (int, int),
            "SELECT count(*), count(*) FILTER (WHERE subject = '') FROM samples WHERE mark != ''",
        )
        check_gone(path, is_gone=file.empty_log())
    return Swept(path, "buffer", deleted, erased, held, unnamed, has_limit)


def sweep(folder: Path, clock: Clock = time.time) -> tuple[list[Swept], list[TidegateError]]:
    """Sweep every buffer and spool in a folder; also return what is wrong with the others."""
    swept: list[Swept] = []
    wrong: list[TidegateError] = []
    for contents in sorted(folder.glob("*-contents")):
        if (
            contents.is_dir()
            and not contents.with_name(contents.name[: -len("-contents")]).exists()
        ):
            told = "holds large contents of a buffer that is gone"
            wrong.append(
                DamagedFileError(contents, told, "restore the buffer, or delete the folder")
            )
    for path in databases(folder):
        try:
            done = sweep_file(path, clock)
        except TidegateError as reason:
            wrong.append(reason)
            continue
        except (sqlite3.DatabaseError, OSError) as reason:
            wrong.append(DamagedFileError(path, f"was not swept ({reason})", remedy(path)))
            continue
        if done is not None:
            swept.append(done)
        elif path.suffix == SUFFIX:
            wrong.append(DamagedFileError(path, "is not a buffer or spool of Tidegate", REMEDY))
    return swept, wrong


def check_gone(path: Path, *, is_gone: bool) -> None:
    """Refuse to call a file swept while its log still has what was deleted."""
    if not is_gone:
        raise DamagedFileError(
            path,
            (
                f"was read by another program for {BUSY_SECONDS:g} seconds, and its log still has "
                "deleted content"
            ),
            "end that program, and sweep again",
        )
