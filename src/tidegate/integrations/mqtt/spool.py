"""A client's spool: messages on disk between the network and the gate.

One bounded SQLite file that only its owner can read. A message is in it before it is acknowledged,
and leaves it, overwritten, when the client's books hold its sample. Received, repeated, dropped and
missing messages are counted in the same transactions.
"""

import hashlib
import logging
import time
from pathlib import Path
from typing import Literal

from tidegate._internal.arguments import check_whole_number
from tidegate._internal.sqlite_file import empty_log, transaction
from tidegate.client.limits import Clock
from tidegate.errors import ConfigurationError, DamagedFileError, RunDiffersError
from tidegate.integrations.mqtt.messages import REMEDY, Delivery, Gap, Message, SpoolHealth
from tidegate.integrations.mqtt.numbering import follows, missing, note
from tidegate.integrations.mqtt.spool_file import SpoolFile

WhenFull = Literal["wait", "drop_oldest"]
Outcome = Literal["stored", "repeated", "full"]

WINDOW = 100
"""Messages that a broker may have under way to a client, and so the most that can come again."""
KEPT_GAPS = 100
"""Descriptions of gaps that are kept; all are counted."""
NO_SESSION = "the broker had no session of this client: what came meanwhile is lost"
NEW_SPOOL = "the spool is new, and the broker had a session: what an older spool held is lost"
_NEVER, _ASKED_FOR, _HAD = range(3)
"""What is known of a session with the broker."""

logger = logging.getLogger(__name__)


class _FullError(Exception):
    """There is no room, and none can be made."""


class Spool(SpoolFile):
    """Messages in a file, in order of arrival; several threads and processes may use it.

    Args:
        path: of the file; it and its folder are created if they do not exist.
        most_messages: the most messages that it holds.
        when_full: ``"wait"`` accepts no more messages, so that the broker keeps them as far as its
            queue goes; ``"drop_oldest"`` drops the oldest unread message, and counts it.
    """

    def __init__(
        self,
        path: Path | str,
        *,
        most_messages: int = 10_000,
        when_full: WhenFull = "wait",
        clock: Clock = time.time,
    ) -> None:
        check_whole_number("most_messages", most_messages)
        if when_full not in ("wait", "drop_oldest"):
            raise ConfigurationError(
                f"when_full must be 'wait' or 'drop_oldest', got {when_full!r}"
            )
        self._most = most_messages
        self._drops = when_full == "drop_oldest"
        self._has_told = False
        self._repeating: set[str] = set()
        self.read_up_to = 0
        """Messages up to this position are being read, and not dropped."""
        super().__init__(Path(path).expanduser(), clock)

    def claim(self, owner: str) -> None:
        """Refuse a file that belongs to another client or topic."""
        with self._writing():
            known = str(self._state("owner"))
            if not known:
                self._execute("UPDATE state SET owner = ?", (owner,))
            elif known != owner:
                raise RunDiffersError(
                    f"{self.path} is the spool of {known}, not of {owner}; use a separate file "
                    "for each client id and topic",
                    name="owner",
                    saved=known,
                    given=owner,
                )

    @property
    def taken(self) -> int:
        """The position up to which messages are confirmed, and gone."""
        with self._changed:
            return int(self._state("taken"))

    @property
    def is_full(self) -> bool:
        """Whether there is no room for another message."""
        with self._changed:
            return not self._drops and self._state("waiting") >= self._most

    def put(
        self, message: Message, numbered: tuple[str, int] | None, delivery: Delivery
    ) -> Outcome:
        """Store a message once; it is on disk when this returns.

        Args:
            message: the message.
            numbered: who sent it, and its number there. A number that came before is a repetition.
            delivery: recognises repetitions of messages without a number: delivered again in the
                same session, with the same packet identifier and content as one of the last
                ``WINDOW`` messages, the only ones whose acknowledgement can have been lost.

        Returns:
            ``"full"`` if it was not stored and must not be acknowledged.
        """
        digest = hashlib.sha256(message.topic.encode() + b"\0" + message.payload).digest()[:16]
        try:
            with self._writing():
                if numbered is not None and not follows(self._execute, numbered[0]):
                    numbered = None
                if numbered is None:
                    again = delivery.again and self._was_delivered(delivery.packet, digest)
                    missed = None if again else 0
                else:
                    missed = note(self._execute, *numbered)
                if missed is None:
                    self._execute("UPDATE state SET repeated = repeated + 1")
                    self._tell_of_repetition(numbered, delivery)
                    return "repeated"
                whose = self._whose(message)
                if whose and whose in self._forgotten.hashes():
                    self._arrivals.refuse()
                    return "stored"  # as far as the broker is concerned
                self._make_room()
                self._insert(message, whose, delivery, digest, is_numbered=numbered is not None)
        except _FullError:  # and its number was not noted
            return "full"
        if numbered is not None and missed:
            logger.warning(
                "%d messages before number %d of %a are missing", missed, *numbered[::-1]
            )
        return "stored"

    def after(self, position: int) -> tuple[int, Message] | None:
        """Return the next message after a position, with its own."""
        with self._changed:
            row = self._execute(
                "SELECT position, topic, payload FROM messages WHERE position > ? "
                "ORDER BY position LIMIT 1",
                (position,),
            ).fetchone()
            if row is not None and self._arrivals.is_over(self._arrivals.of(row[0])):
                self._let_go()
                return self.after(position)
        if row is None:
            return None
        if type(row[1]) is not str or type(row[2]) is not bytes:
            raise DamagedFileError(self.path, "is damaged (it holds no message)", REMEDY)
        return int(row[0]), Message(row[1], row[2])

    def positions(self, after: int) -> list[int]:
        """Positions of all messages after one."""
        with self._changed:
            rows = self._execute(
                "SELECT position FROM messages WHERE position > ? ORDER BY position", (after,)
            ).fetchall()
        return [int(position) for (position,) in rows]

    def wait(self, after: int, count: int, seconds: float) -> bool:
        """Wait until so many messages are there after a position; return whether they are."""
        with self._changed:
            if self._has(after, count):
                return True
            self._changed.wait(seconds)
            return self._has(after, count)

    def confirm(self, position: int) -> None:
        """Overwrite and delete the messages up to a position: they are safe elsewhere."""
        with self._changed:
            if position <= self._state("taken"):
                return
        with self._writing():
            gone = self._execute("DELETE FROM messages WHERE position <= ?", (position,)).rowcount
            self._execute("DELETE FROM arrivals WHERE position <= ?", (position,))
            self._execute(
                "UPDATE state SET taken = max(taken, ?), waiting = waiting - ?", (position, gone)
            )
        with self._changed:
            empty_log(self._connection)

    def ask_for_session(self) -> bool:
        """Note that a session is requested; return whether one was before."""
        with self._writing():
            before = self._state("session") != _NEVER
            self._execute("UPDATE state SET session = max(session, ?)", (_ASKED_FOR,))
        return bool(before)

    def has_session(self, *, is_old: bool, was_asked_for: bool) -> None:
        """Note that there is a session, and a gap if it is not the expected one.

        Args:
            is_old: whether the broker knew it.
            was_asked_for: whether it was requested before this connection, with this spool.
        """
        with self._writing():
            if not is_old:
                self._execute("DELETE FROM newest")  # packet identifiers begin anew
                if self._state("session") == _HAD:
                    self._note_gap(NO_SESSION)
            elif not was_asked_for and self._state("session") != _HAD:
                self._note_gap(NEW_SPOOL)
            self._execute("UPDATE state SET session = ?", (_HAD,))

    def health(self) -> SpoolHealth:
        """Return what became of all messages so far."""
        with self._changed, transaction(self._connection, "DEFERRED"):
            ((waiting, received, unnumbered, repeated, dropped, count),) = self._execute(
                "SELECT waiting, received, unnumbered, repeated, dropped, gaps FROM state"
            )
            gaps = self._execute("SELECT at, reason FROM gaps ORDER BY number").fetchall()
            never_came = missing(self._execute)
            gone = self._arrivals.expired, self._arrivals.erased
        newest = tuple(Gap(at, reason) for at, reason in gaps)
        return SpoolHealth(
            waiting, received, unnumbered, repeated, dropped, count, newest, never_came, *gone
        )

    def _has(self, after: int, count: int) -> bool:
        """Return whether so many messages are there after a position."""
        nth = "SELECT 1 FROM messages WHERE position > ? ORDER BY position LIMIT 1 OFFSET ?"
        return self._execute(nth, (after, count - 1)).fetchone() is not None

    def _was_delivered(self, packet: int, digest: bytes) -> bool:
        known = "SELECT 1 FROM newest WHERE packet = ? AND digest = ?"
        return self._execute(known, (packet, digest)).fetchone() is not None

    def _tell_of_repetition(self, numbered: tuple[str, int] | None, delivery: Delivery) -> None:
        """Warn once for a source: it may be a device that has restarted its numbers."""
        if numbered is None or delivery.again or numbered[0] in self._repeating:
            return
        self._repeating.add(numbered[0])
        logger.warning(
            "number %d of %a arrived before, though the broker does not mark it as a repetition; "
            "it is not stored. Give a device that restarts its numbers a new source",
            *numbered[::-1],
        )

    def _make_room(self) -> None:
        """Make room for one message, perhaps by dropping the oldest."""
        if self._state("waiting") < self._most:
            return
        oldest = "SELECT min(position) FROM messages WHERE position > ?"
        ((position,),) = self._execute(oldest, (self.read_up_to,))
        if not self._drops or position is None:
            raise _FullError
        for table in ("messages", "arrivals"):
            self._execute(f"DELETE FROM {table} WHERE position = ?", (position,))  # noqa: S608
        self._execute("UPDATE state SET dropped = dropped + 1, waiting = waiting - 1")
        if not self._has_told:
            self._has_told = True
            logger.warning("%s is full: its oldest messages are dropped", self.path)

    def _insert(
        self,
        message: Message,
        whose: str | None,
        delivery: Delivery,
        digest: bytes,
        *,
        is_numbered: bool,
    ) -> None:
        position = self._state("received") + 1
        row = position, message.topic, message.payload
        self._execute("INSERT INTO messages VALUES (?, ?, ?)", row)
        self._arrivals.note(position, whose)
        self._execute("INSERT INTO newest VALUES (?, ?, ?)", (position, delivery.packet, digest))
        self._execute("DELETE FROM newest WHERE position <= ?", (position - WINDOW,))
        self._execute(
            "UPDATE state SET received = ?, waiting = waiting + 1, unnumbered = unnumbered + ?",
            (position, not is_numbered),
        )

    def _note_gap(self, reason: str) -> None:
        logger.warning("%s: messages may have been lost: %s", self.path, reason)
        self._execute("UPDATE state SET gaps = gaps + 1")
        self._execute("INSERT INTO gaps (at, reason) VALUES (?, ?)", (time.time(), reason))
        self._execute(
            "DELETE FROM gaps WHERE number NOT IN "
            "(SELECT number FROM gaps ORDER BY number DESC LIMIT ?)",
            (KEPT_GAPS,),
        )
