"""Seal the record of a buffer's file: sum up old entries, and remove them later.

An entry of the record names the sums long before they replace the entries. By then the server holds
a digest that covers this entry, so made-up sums are noticed.
"""

import logging
import sqlite3
from collections.abc import Callable

from tidegate.client.record import FIRST, Entry, Replay, next_digest

KEPT_ENTRIES = 1000
"""Entries of the record that are kept at least."""
SEALED_AT_ONCE = 250
"""So many at a time, because a seal names all that is held."""
ORDERS_BETWEEN = 2
"""At least so many orders lie between the entry that binds a seal and the seal itself."""

logger = logging.getLogger("flwr.tidegate")


def binding(last: int, digest: str, seal: str) -> str:
    """Return what an entry says about the sums of all entries up to number ``last``."""
    return f"{last} {next_digest(digest, seal)}"


class Sealing:
    """Sums up the record of one file.

    Args:
        execute: runs a statement on the file.
    """

    def __init__(self, execute: Callable[..., sqlite3.Cursor]) -> None:
        self._execute = execute
        self._failed = False

    def next_note(self, newest: int) -> str:
        """Seal what is due, and name the next sums.

        A record that cannot be followed is left as it is, for an audit to show; orders continue.

        Args:
            newest: number of the newest entry.

        Returns:
            What the next entry names; empty if nothing is due.
        """
        ((first,),) = self._execute("SELECT min(number) FROM record")
        more = newest - KEPT_ENTRIES - first + 1
        if self._failed or more < SEALED_AT_ONCE or more % SEALED_AT_ONCE:
            return ""
        try:
            return self._seal(first, newest - KEPT_ENTRIES)
        except (ValueError, TypeError, LookupError):
            self._failed = True
            logger.exception(
                "the record is inconsistent, so its old entries stay; run tidegate audit on "
                "the file"
            )
            return ""

    def _seal(self, first: int, last: int) -> str:
        rows = self._execute(
            'SELECT number, content FROM record WHERE content LIKE \'{"event":"sealed"%\' '
            "ORDER BY number DESC LIMIT 1"
        ).fetchall()
        notes = [(number, Entry.read(text).note) for number, text in rows]
        bound = [(number, note) for number, note in notes if int(note.split()[0]) >= first]
        if not bound:
            return binding(*self._sums(last))
        ((number, note),) = bound
        ((orders,),) = self._execute(
            'SELECT count(*) FROM record WHERE number > ? AND content LIKE \'{"event":"order"%\'',
            (number,),
        )
        if orders < ORDERS_BETWEEN:
            return ""
        sums = self._sums(int(note.split()[0]))
        if binding(*sums) != note:
            raise ValueError(f"entry {number} names other sums")
        after = self._sums(last)
        self._execute("INSERT OR REPLACE INTO seal VALUES (1, ?, ?, ?)", sums)
        self._execute("DELETE FROM record WHERE number <= ?", (sums[0],))
        return binding(*after)

    def _sums(self, last: int) -> tuple[int, str, str]:
        """Up to which entry; the digest of that one; and what all up to it add up to."""
        row = self._execute("SELECT digest, content FROM seal").fetchone()
        digest, seal = (FIRST, "") if row is None else row
        replay = Replay(seal)
        texts = self._execute(
            "SELECT content FROM record WHERE number <= ? ORDER BY number", (last,)
        )
        for (text,) in texts.fetchall():
            replay.follow(Entry.read(text))
            digest = next_digest(digest, text)
        return last, digest, replay.seal()
