"""What an earlier run of a client stored, for a run that begins with it."""

import logging
import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

from tidegate._internal.sqlite_file import SUFFIX, check_tables, databases, opened_to_read
from tidegate.client.buffer_files import is_marked
from tidegate.client.device_file import KIND, REMEDY, DeviceFile
from tidegate.client.forgotten import Forgotten
from tidegate.client.limits import OwnTime, milliseconds
from tidegate.client.store import Earlier
from tidegate.errors import ConfigurationError, DamagedFileError

logger = logging.getLogger(__name__)

NEWEST = "newest"
"""In place of a run's name."""


def earlier_samples(
    begin_with: str | Path | None, folder: Path | None, run: str, client: str
) -> Iterator[Earlier]:
    """Return the samples that a buffer begins with, those that shall train first at the beginning.

    Args:
        begin_with: the name of the run that they are from, or ``"newest"``; a path for the newest
            one in that folder; None for no samples.
        folder: of the buffer that begins; None if it is in memory.
        run: that begins.
        client: its name.
    """
    if begin_with is None:
        return iter(())
    where = begin_with if isinstance(begin_with, Path) else folder
    named = NEWEST if isinstance(begin_with, Path) else begin_with
    known = [] if where is None else list(_runs_of(where, client))
    fitting = [
        (used_at, name, path)
        for used_at, name, path in known
        if name != run and named in (NEWEST, name)
    ]
    if not fitting and begin_with == NEWEST:
        logger.info("%s has no earlier run in %s, so it begins without samples", client, where)
        return iter(())
    if not fitting:
        runs = ", ".join(sorted({repr(name) for _, name, _ in known})) or "none"
        raise ConfigurationError(
            f"begin_with is {str(begin_with)!r}, but {where or 'the memory of this process'} holds "
            f"no buffer of {client!r} in such a run; its runs there are: {runs}. Name one of them, "
            "give the folder as a Path, or leave out begin_with"
        )
    _, name, path = max(fitting)
    if folder is not None:
        Forgotten(folder).adopt(Forgotten(path.parent))
    return _samples(path, name, client)


def _runs_of(folder: Path, client: str) -> Iterator[tuple[int, str, Path]]:
    """Yield when each run of a client in a folder was last used, its name and its file."""
    for path in databases(folder):
        if not is_marked(path, unreadable=path.suffix == SUFFIX):
            continue  # somebody else's, or a spool
        try:
            with closing(opened_to_read(path)) as file:
                check_tables(file, path, KIND)
                query = "SELECT used_at, run FROM clients WHERE client = ?"
                rows = file.execute(query, (client,)).fetchall()
        except sqlite3.DatabaseError as wrong:
            reason = f"cannot be read as a buffer ({wrong}), so nothing can begin with it"
            raise DamagedFileError(path, reason, REMEDY) from wrong
        yield from ((used_at, run, path) for used_at, run in rows)


def _samples(path: Path, run: str, client: str) -> Iterator[Earlier]:
    """Yield what a buffer stores and keeps, the newest first, without what it may not hold."""
    with closing(DeviceFile(path, is_reader=True)) as file:
        (about,) = file.rows(
            (int, int, int, int),
            "SELECT number, keep, own_time, wall_time FROM clients WHERE run = ? AND client = ?",
            *(run, client),
        )
        number, keep, own_time, wall_time = about
        oldest = OwnTime(own_time, wall_time).at(milliseconds(time.time)).own - keep
        rows = file.rows(
            (int, str, str, str, int, float, int, int),
            "SELECT samples.number, key, in_group, subject, held_at, price, bought_round, "
            "max(iif(train_on OR state = 'kept', uses, orders - since), 1) "
            "FROM samples JOIN clients ON samples.client = clients.number "
            "WHERE samples.client = ? AND state IN ('stored', 'kept') AND mark != '' "
            "AND (NOT keep OR held_at > ?) ORDER BY state DESC, place DESC",
            *(number, oldest),
        )
        forgotten = file.hashes()
        for sample, key, group, subject, *more in rows:
            if subject not in forgotten:  # the folder that begins may be in memory
                for _, packed in file.contents.read([sample]):
                    cursor = key.removeprefix(f"{run}/{client}/")
                    yield Earlier(cursor, packed, group, subject, *more)
