"""What an earlier run of a client stored, for a run that begins with it."""

import logging
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from tidegate._internal.sqlite_file import databases, opened_to_read
from tidegate.client.buffer_files import is_marked
from tidegate.client.device_file import DeviceFile
from tidegate.client.forgotten import Forgotten
from tidegate.client.store import Earlier
from tidegate.errors import ConfigurationError

logger = logging.getLogger(__name__)

NEWEST = "newest"
"""In place of a run's name."""


@dataclass(frozen=True)
class EarlierRun:
    """A buffer of the same client in another run.

    Args:
        path: of its file.
        run: whose buffer it is.
    """

    path: Path
    run: str

    def samples(self, client: str) -> Iterator[Earlier]:
        """Yield what it stored and kept, the newest purchase first, with what it was used."""
        with closing(DeviceFile(self.path, is_reader=True)) as file:
            rows = file.rows(
                (int, str, str, str, int, float, int, int),
                "SELECT samples.number, key, in_group, subject, held_at, price, bought_round, "
                "max(iif(train_on, uses, iif(state = 'stored', orders - since, uses)), 1) "
                "FROM samples JOIN clients ON samples.client = clients.number "
                "WHERE run = ? AND clients.client = ? AND state IN ('stored', 'kept') "
                "AND mark != '' ORDER BY state DESC, place DESC",
                *(self.run, client),
            )
            forgotten = file.hashes()
            for number, key, group, subject, *about in rows:
                if subject not in forgotten:
                    for _, packed in file.contents.read([number]):
                        place = key.removeprefix(f"{self.run}/{client}/")
                        yield Earlier(place, packed, group, subject, *about)


def earlier_run(
    begin_with: str | Path, folder: Path | None, run: str, client: str
) -> EarlierRun | None:
    """Return the run that a buffer begins with; None if there is none yet, and any will do.

    Args:
        begin_with: the run's name, or ``"newest"``; a path for the newest one in that folder.
        folder: of the buffer that begins.
        run: that begins.
        client: its name.
    """
    where = begin_with if isinstance(begin_with, Path) else folder
    named = NEWEST if isinstance(begin_with, Path) else begin_with
    known = [] if where is None else list(_runs_of(where, client))
    fitting = [
        (used_at, earlier)
        for used_at, earlier in known
        if earlier.run != run and named in (NEWEST, earlier.run)
    ]
    if not fitting and begin_with == NEWEST:
        logger.info("%s has no earlier run in %s, so it begins without samples", client, where)
        return None
    if not fitting:
        runs = ", ".join(sorted({repr(earlier.run) for _, earlier in known})) or "none"
        raise ConfigurationError(
            f"begin_with is {str(begin_with)!r}, but {where or 'the memory of this process'} holds "
            f"no buffer of {client!r} in such a run; its runs there are: {runs}. Name one of them, "
            "give the folder as a Path, or leave out begin_with"
        )
    return max(fitting, key=lambda item: item[0])[1]


def earlier_samples(
    begin_with: str | Path, folder: Path | None, run: str, client: str
) -> Iterator[Earlier]:
    """Return the samples that a buffer begins with; ``earlier_run`` has the arguments."""
    earlier = earlier_run(begin_with, folder, run, client)
    if earlier is None:
        return iter(())
    if folder is not None:
        Forgotten(folder).adopt(Forgotten(earlier.path.parent))
    return earlier.samples(client)


def _runs_of(folder: Path, client: str) -> Iterator[tuple[int, EarlierRun]]:
    """Yield the runs of a client in a folder, with the time when each was last used."""
    for path in databases(folder):
        if is_marked(path):
            with closing(opened_to_read(path)) as file:
                query = "SELECT used_at, run FROM clients WHERE client = ?"
                try:
                    rows = file.execute(query, (client,)).fetchall()
                except sqlite3.DatabaseError:
                    continue  # damaged; `tidegate buffers` names it
                yield from ((used_at, EarlierRun(path, run)) for used_at, run in rows)
