"""In a spool's file: when each message came, how long it may be held, and deleting what is over.

All functions here are called within a transaction of the file, or only read.
"""

import sqlite3
from collections.abc import Callable, Collection

from tidegate.client.limits import Clock, OwnTime, milliseconds

TABLES = (
    # ``subject`` is a keyed hash, empty for nobody, and nothing for a message not looked at yet.
    "CREATE TABLE arrivals (position INTEGER PRIMARY KEY, at INTEGER NOT NULL, subject TEXT)",
    """CREATE TABLE held (
        only INTEGER PRIMARY KEY CHECK (only = 1), own INTEGER NOT NULL, wall INTEGER NOT NULL,
        keep INTEGER NOT NULL, expired INTEGER NOT NULL, erased INTEGER NOT NULL
    )""",
)


class Arrivals:
    """What a spool knows of time.

    Args:
        execute: statements in its file.
        clock: says the time.
    """

    def __init__(self, execute: Callable[..., sqlite3.Cursor], clock: Clock) -> None:
        self._execute = execute
        self._clock = clock

    def begin(self) -> None:
        """Begin the time of a new file, and note the time of any other."""
        wall = milliseconds(self._clock)
        self._execute("INSERT OR IGNORE INTO held VALUES (1, ?, ?, 0, 0, 0)", (wall, wall))
        self.tick()

    def tick(self) -> int:
        """Note the time; it never goes back."""
        now = self._time().at(milliseconds(self._clock))
        self._execute("UPDATE held SET own = ?, wall = ?", (now.own, now.wall))
        return now.own

    def note(self, position: int, subject: str | None) -> None:
        """A message has come, of a subject, of nobody (empty), or of whom nobody said."""
        self._execute("INSERT INTO arrivals VALUES (?, ?, ?)", (position, self.tick(), subject))

    def unnamed(self) -> list[int]:
        """Positions of messages of which nobody said whose they are."""
        rows = self._execute(
            "SELECT position FROM arrivals JOIN messages USING (position) WHERE subject IS NULL"
        )
        return [int(position) for (position,) in rows.fetchall()]

    def name(self, position: int, subject: str) -> None:
        """Say whose a message is."""
        self._execute("UPDATE arrivals SET subject = ? WHERE position = ?", (subject, position))

    def of(self, position: int) -> int:
        """When a message came, in milliseconds since 1970; 0 for one that is not there."""
        rows = self._execute("SELECT at FROM arrivals WHERE position = ?", (position,)).fetchall()
        return int(rows[0][0]) if rows else 0

    @property
    def keep(self) -> int:
        """How long a message may be held, in milliseconds; 0 for any time."""
        ((keep,),) = self._execute("SELECT keep FROM held")
        return int(keep)

    def set_keep(self, keep: int) -> None:
        """Hold messages for no longer than this from now on."""
        self._execute("UPDATE held SET keep = ?", (keep,))

    def is_over(self, at: int) -> bool:
        """Whether a message that came then may no longer be held."""
        keep = self.keep
        return keep > 0 and at <= self._time().at(milliseconds(self._clock)).own - keep

    def let_go(self, forgotten: Collection[str]) -> tuple[int, int]:
        """Delete messages that were held for too long or are forgotten; how many of each."""
        keep = self.keep
        last = self.tick() - keep if keep else -1
        rows = self._execute("SELECT position, at, subject FROM arrivals").fetchall()
        erased = [(one,) for one, _, subject in rows if subject in forgotten]
        expired = [(one,) for one, at, subject in rows if at <= last and subject not in forgotten]
        counts = []
        for places in (expired, erased):
            delete = "DELETE FROM messages WHERE position = ?"
            counts.append(sum(self._execute(delete, place).rowcount for place in places))
            for place in places:
                self._execute("DELETE FROM arrivals WHERE position = ?", place)
        self._execute("UPDATE held SET expired = expired + ?, erased = erased + ?", tuple(counts))
        self._execute("UPDATE state SET waiting = waiting - ?", (sum(counts),))
        return counts[0], counts[1]

    def refuse(self) -> None:
        """Count a message of a forgotten subject, which is not stored."""
        self._execute("UPDATE held SET erased = erased + 1")

    @property
    def erased(self) -> int:
        """Messages that were deleted or refused, because their subject is forgotten."""
        ((erased,),) = self._execute("SELECT erased FROM held")
        return int(erased)

    @property
    def expired(self) -> int:
        """Messages that were deleted unread, because they were held for too long."""
        ((expired,),) = self._execute("SELECT expired FROM held")
        return int(expired)

    def _time(self) -> OwnTime:
        ((own, wall),) = self._execute("SELECT own, wall FROM held")
        return OwnTime(own, wall)
