"""Times and record of a buffer's file: since when content is held, and when it must go.

All functions here run within a transaction of the file, and change nothing else in it.
"""

import json
import logging
import secrets
import sqlite3
import time
from collections.abc import Collection
from dataclasses import replace

from tidegate.client.limits import Clock, OwnTime, milliseconds
from tidegate.client.record import (
    FIRST,
    Entry,
    Event,
    Held,
    mark_of,
    next_digest,
)
from tidegate.client.sealing import Sealing
from tidegate.client.store import Books, Origin

SECRET_BYTES = 16
CONTENTS = {
    "sample": ("samples", "contents", "position"),
    "candidate": ("candidates", "candidate_contents", "number"),
    "purchase": ("purchases", "purchase_contents", "number"),
}
"""For each kind: the table of its rows, that of its content, and the column that both have."""

logger = logging.getLogger("flwr.tidegate")


class Keeping:
    """Time, origins and record of a file.

    Args:
        connection: to the file.
        clock: returns the time.
    """

    def __init__(self, connection: sqlite3.Connection, clock: Clock = time.time) -> None:
        self._execute = connection.execute
        self._clock = clock
        self._sealing = Sealing(connection.execute)
        self._order_at = 0

    def begin(self, books: Books) -> Books:
        """Begin the record of a new file."""
        if books.record_number:
            return books
        wall = milliseconds(self._clock)
        self._execute("INSERT INTO own_time VALUES (1, ?, ?, 0)", (wall, wall))
        began = Entry(
            event="begun",
            at=wall,
            note=f"{books.run}/{books.client}/{books.buffer_id}",
        )
        return self.append(books, began)

    def now(self) -> int:
        """The file's own time, without noting it."""
        return self._time().at(milliseconds(self._clock)).own

    def tick(self, books: Books) -> tuple[Books, int]:
        """Note the time; a clock that has jumped goes into the record."""
        wall, before = milliseconds(self._clock), self._time()
        after, jump = before.at(wall), before.jump(wall)
        self._execute("UPDATE own_time SET own = ?, wall = ?", (after.own, after.wall))
        if jump:
            logger.warning(
                "the clock of %s was set %s by %.1f days: %s",
                books.client,
                "ahead" if jump > 0 else "back",
                abs(jump) / 86_400_000,
                "samples that are now past their limit will be deleted"
                if jump > 0
                else "samples continue to age from the latest time that it showed",
            )
            books = self.append(books, Entry(event="clock", at=after.own, jump=jump))
        return books, after.own

    def order_time(self) -> int:
        """Return the time of the present order, the same from its start to its end.

        A sample whose limit passes while an order is applied was within it when the order began; it
        is no longer handed out.
        """
        return self._order_at or self.now()

    def end_order(self) -> None:
        """End the order: the next one has a time of its own."""
        self._order_at = 0

    def note(self, books: Books) -> Books:
        """Note the time, except within an order, which has the time of its start.

        This comes after the entry of an order, whose receipt names the digest before it.
        """
        return books if self._order_at else self.tick(books)[0]

    @property
    def keep(self) -> int:
        """How long content may be held, in milliseconds; 0 for any time."""
        ((keep,),) = self._execute("SELECT keep FROM own_time")
        return int(keep)

    def set_keep(self, books: Books, keep: int) -> Books:
        """Hold content for at most this long from now on."""
        books, now = self.tick(books)
        self._execute("UPDATE own_time SET keep = ?", (keep,))
        return self.append(books, Entry(event="limit", at=now, keep=keep))

    def hold(self, kind: str, number: int, content: bytes, origin: Origin, now: int) -> Held:
        """Note that content is held from now on, or was before in another place."""
        secret = origin.secret or secrets.token_bytes(SECRET_BYTES)
        held = mark_of(secret, origin.subject, content), min(origin.held_at or now, now)
        row = kind, number, held[1], secret, held[0], origin.subject
        self._execute("INSERT INTO origins VALUES (?, ?, ?, ?, ?, ?)", row)
        return held

    def release(self, kind: str, number: int) -> list[str]:
        """Note that content is gone; return its mark, if it was held."""
        place = kind, number
        marks = self._execute("SELECT mark FROM origins WHERE kind = ? AND number = ?", place)
        found = [mark for (mark,) in marks.fetchall()]
        self._execute("DELETE FROM origins WHERE kind = ? AND number = ?", place)
        return found

    def last_over(self) -> int:
        """Return the time since which content is held for too long; the lowest if no limit."""
        keep = self.keep
        return self.now() - keep if keep else -1

    def let_go(
        self, books: Books, event: Event, forgotten: Collection[str]
    ) -> tuple[Books, tuple[int, int]]:
        """Overwrite what was held for too long, or is about a forgotten subject.

        The time is noted even if nothing is due: after a clock was set back, samples age only by
        the time between two notes. An order that is applied now counts by this time.

        Args:
            books: of the file.
            event: the record's name for content that was held for too long.
            forgotten: keyed hashes of subjects.

        Returns:
            The books, and how much was held for too long and was about a forgotten subject.
        """
        books, now = self.tick(books)
        self._order_at = now
        named = "SELECT kind, number, subject FROM origins WHERE subject != ''"
        rows = self._execute(named).fetchall() if forgotten else []
        erased = [(kind, number) for kind, number, subject in rows if subject in forgotten]
        last = now - self.keep if self.keep else -1
        over = self._execute("SELECT kind, number FROM origins WHERE held_at <= ?", (last,))
        expired = [place for place in over.fetchall() if place not in erased]
        self._shorten_errors()
        for why, places in ((event, expired), ("erased", erased)):
            if places:
                books, marks = self._overwrite(books, places, is_erased=why == "erased")
                books = self.append(books, Entry(event=why, at=now, gone=tuple(marks)))  # type: ignore[arg-type]
        return books, (len(expired), len(erased))

    def append(self, books: Books, entry: Entry) -> Books:
        """Add to the record; return the books, which then name its end."""
        text, number = entry.text(), books.record_number + 1
        digest = next_digest(books.record_digest or FIRST, text)
        self._execute("INSERT INTO record VALUES (?, ?)", (number, text))
        books = replace(books, record_number=number, record_digest=digest)
        note = self._sealing.next_note(number)
        return self.append(books, Entry(event="sealed", at=entry.at, note=note)) if note else books

    def _overwrite(
        self, books: Books, places: list[tuple[str, int]], *, is_erased: bool
    ) -> tuple[Books, list[str]]:
        marks: list[str] = []
        samples = candidates = 0
        for kind, number in places:
            rows, contents, column = CONTENTS[kind]
            samples += kind == "sample"
            candidates += kind == "candidate"
            marks += self.release(kind, number)
            self._execute(f"DELETE FROM {contents} WHERE {column} = ?", (number,))  # noqa: S608
            if kind != "purchase":  # it is paid for, and stays until the supplier gives it up
                self._execute(f"DELETE FROM {rows} WHERE {column} = ?", (number,))  # noqa: S608
        expired = 0 if is_erased else samples
        after = replace(
            books,
            candidates=books.candidates - candidates,
            total_expired=books.total_expired + expired,
            total_erased=books.total_erased + samples - expired,
        )
        return after, marks

    def _shorten_errors(self) -> None:
        """Shorten errors to their kind: the text of an error may quote a sample."""
        for number, text in self._execute("SELECT number, content FROM failures").fetchall():
            told = json.loads(text)
            kind, _, quoted = told["error"].partition(":")
            if quoted:
                shorter = json.dumps(told | {"error": kind}, sort_keys=True)
                row = shorter, number
                self._execute("UPDATE failures SET content = ? WHERE number = ?", row)

    def _time(self) -> OwnTime:
        ((own, wall),) = self._execute("SELECT own, wall FROM own_time")
        return OwnTime(own, wall)
