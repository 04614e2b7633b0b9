"""A client's spool: messages on disk between the network and the gate, and a stream over them.

One bounded SQLite file that only its owner can read. A message is in it before it is acknowledged,
and leaves it, overwritten, when the client's books hold its sample. Received, repeated, dropped and
missing messages are counted in the same transactions.

MQTT delivers a message at least once and forgets what a broker loses. Only the sender can say which
message it is: with a number that grows by one from message to message, repetitions are always
recognised, and holes show what was lost on the way.
"""

import hashlib
import logging
import sqlite3
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, Literal

from tidegate._internal.arguments import check_function, check_whole_number
from tidegate._internal.sqlite_file import (
    FileKind,
    connect,
    empty_log,
    opening,
    prepare,
    transaction,
)
from tidegate.client.forgotten import Forgotten
from tidegate.client.limits import Clock, OwnTime, milliseconds
from tidegate.client.streams import Overflow, TakenBefore
from tidegate.client.sweeping import Swept, check_gone
from tidegate.errors import ConfigurationError, DamagedFileError, RunDiffersError

WhenFull = Literal["wait", "drop_oldest"]
Outcome = Literal["stored", "repeated", "full"]
Decode = Callable[[bytes, str], Any]
"""Given a payload and its topic, makes a sample."""

WINDOW = 100
"""Messages that a broker may have under way to a client, and so the most that can come again."""
KEPT_GAPS = 100
"""Descriptions of gaps that are kept; all are counted."""
MOST_SOURCES = 10_000
"""Sources whose numbers are followed; a stranger who makes up names must not fill the disk."""
MOST_HOLES = 1000
"""Of one source that are remembered, so that what comes late is known to be missing."""
LARGEST_NUMBER = 2**63 - 1
NO_SESSION = "the broker had no session of this client: what came meanwhile is lost"
NEW_SPOOL = "the spool is new, and the broker had a session: what an older spool held is lost"
_NEVER, _ASKED_FOR, _HAD = range(3)
"""What is known of a session with the broker."""

REMEDY = "delete it; what it holds is lost, and the next connection records a gap"
KIND = FileKind(
    "spool",
    0x71DE5900,
    1,
    (
        """CREATE TABLE state (
            only INTEGER PRIMARY KEY CHECK (only = 1), id TEXT NOT NULL, owner TEXT NOT NULL,
            session INTEGER NOT NULL, taken INTEGER NOT NULL, waiting INTEGER NOT NULL,
            received INTEGER NOT NULL, unnumbered INTEGER NOT NULL, duplicates INTEGER NOT NULL,
            dropped INTEGER NOT NULL, expired INTEGER NOT NULL, erased INTEGER NOT NULL,
            gaps INTEGER NOT NULL, keep INTEGER NOT NULL, own INTEGER NOT NULL,
            wall INTEGER NOT NULL
        )""",
        # ``subject`` is a keyed hash, empty for nobody, and nothing if nobody said whose it is.
        """CREATE TABLE messages (
            position INTEGER PRIMARY KEY, at INTEGER NOT NULL, subject TEXT,
            topic TEXT NOT NULL, payload BLOB NOT NULL
        )""",
        """CREATE TABLE deliveries (
            position INTEGER PRIMARY KEY, packet INTEGER NOT NULL, digest BLOB NOT NULL
        )""",
        "CREATE TABLE gaps (number INTEGER PRIMARY KEY, at REAL NOT NULL, reason TEXT NOT NULL)",
        """CREATE TABLE sources (
            number INTEGER PRIMARY KEY, source TEXT NOT NULL UNIQUE, newest INTEGER NOT NULL,
            missing INTEGER NOT NULL
        )""",
        "CREATE TABLE holes (source INTEGER NOT NULL, low INTEGER NOT NULL, high INTEGER NOT NULL)",
        "CREATE INDEX holes_of ON holes (source, low)",
    ),
    REMEDY,
)
NAMED = "SELECT 1 FROM messages WHERE subject != '' LIMIT 1"
"""Whether a spool holds the hash of any subject."""

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Message:
    """What arrived."""

    topic: str
    payload: bytes
    properties: Mapping[str, str] = field(default_factory=dict)
    """User properties of MQTT 5."""


@dataclass(frozen=True)
class Delivery:
    """How a broker delivered a message."""

    packet: int
    """Its packet identifier."""
    again: bool
    """Whether the broker says that it may have delivered it before."""


@dataclass(frozen=True)
class Gap:
    """Messages may have been lost, and it is unknown how many."""

    at: float
    """When it was noticed, in seconds since 1970."""
    reason: str


@dataclass(frozen=True)
class SpoolHealth:
    """What came of all messages so far, also in earlier processes."""

    waiting: int
    """Messages in the spool now."""
    received: int
    """That were stored, each once."""
    unnumbered: int
    """Of those, without a number: whether any is missing is not known."""
    duplicates: int
    """That came again, and were not stored again."""
    dropped: int
    """That were dropped unread from a full spool."""
    expired: int
    """That were deleted unread, because they were held for too long."""
    erased: int
    """That were deleted unread or refused, because their subject is forgotten."""
    gaps: int
    """How often messages may have been lost with a session or a spool."""
    newest_gaps: tuple[Gap, ...]
    """The last of them, oldest first."""
    missing: Mapping[str, int]
    """Numbers that never came, by their source."""


class _FullError(Exception):
    """There is no room, and none can be made."""


class Spool:
    """Messages in a file, in order of arrival; several threads and processes may use it.

    Args:
        path: of the file; it and its folder are created if they do not exist.
        most_messages: the most messages that it holds.
        when_full: ``"wait"`` accepts no more messages, so that the broker keeps them as far as its
            queue goes; ``"drop_oldest"`` drops the oldest unread message, and counts it.
        clock: says the time.
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
        self.path = Path(path).expanduser()
        self.read_up_to = 0
        """Messages up to this position are being read, and not dropped."""
        self._most = most_messages
        self._drops = when_full == "drop_oldest"
        self._clock = clock
        self._changed = threading.Condition()
        self._subject: Callable[[Message], str | None] | None = None
        self._warned_of: set[str] = set()
        """Sources that repeat numbers, and the file itself where it drops messages."""
        self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._forgotten = Forgotten(self.path.parent)
        self._connection = connect(self.path, any_thread=True)
        with opening(self._connection, self.path, KIND):
            wall = milliseconds(clock)
            new = "INSERT INTO state VALUES (1, ?, '', 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, ?, ?)"
            prepare(self._connection, self.path, KIND, (new, (uuid.uuid4().hex[:12], wall, wall)))
            with self._writing():
                self._tick()
            empty_log(self._connection)  # a process that died may have left deleted messages in it
            self.id = str(self._state("id"))
            """Made up with the file: positions of another one mean nothing here."""

    def close(self) -> None:
        """Close the file."""
        with self._changed:
            self._connection.close()

    def claim(self, owner: str) -> None:
        """Refuse a file that belongs to another client or topic."""
        with self._writing():
            known = str(self._state("owner"))
            if not known:
                self._execute("UPDATE state SET owner = ?", owner)
            elif known != owner:
                raise RunDiffersError(
                    f"{self.path} is the spool of {known}, not of {owner}; use a separate file "
                    "for each client id and topic",
                    name="owner",
                    saved=known,
                    given=owner,
                )

    def ask_for_session(self) -> bool:
        """Note that a session is requested; return whether one was before."""
        with self._writing():
            before = self._state("session") != _NEVER
            self._execute("UPDATE state SET session = max(session, ?)", _ASKED_FOR)
        return bool(before)

    def has_session(self, *, is_old: bool, was_asked_for: bool) -> None:
        """Note that there is a session, and a gap if it is not the expected one.

        Args:
            is_old: whether the broker knew it.
            was_asked_for: whether it was requested before this connection, with this spool.
        """
        with self._writing():
            if not is_old:
                self._execute("DELETE FROM deliveries")  # packet identifiers begin anew
                if self._state("session") == _HAD:
                    self._note_gap(NO_SESSION)
            elif not was_asked_for and self._state("session") != _HAD:
                self._note_gap(NEW_SPOOL)
            self._execute("UPDATE state SET session = ?", _HAD)

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
                if numbered is not None and not self._follows(numbered[0]):
                    numbered = None
                missed: int | None = 0
                if numbered is not None:
                    missed = self._note_number(*numbered)
                elif delivery.again and self._was_delivered(delivery.packet, digest):
                    missed = None
                if missed is None:
                    self._execute("UPDATE state SET duplicates = duplicates + 1")
                    self._warn_of_repetition(numbered, delivery)
                    return "repeated"
                whose = self._whose(message)
                if whose and whose in self._forgotten.hashes():
                    self._execute("UPDATE state SET erased = erased + 1")
                    return "stored"  # as far as the broker is concerned
                self._make_room()
                position = self._insert(message, whose, is_numbered=numbered is not None)
                delivered = position, delivery.packet, digest
                self._execute("INSERT INTO deliveries VALUES (?, ?, ?)", *delivered)
                self._execute("DELETE FROM deliveries WHERE position <= ?", position - WINDOW)
        except _FullError:  # and its number was not noted
            return "full"
        if numbered is not None and missed:
            logger.warning(
                "%d messages before number %d of %a are missing", missed, *numbered[::-1]
            )
        return "stored"

    @property
    def is_full(self) -> bool:
        """Whether there is no room for another message."""
        with self._changed:
            return not self._drops and self._state("waiting") >= self._most

    @property
    def taken(self) -> int:
        """The position up to which messages are confirmed, and gone."""
        with self._changed:
            return int(self._state("taken"))

    def after(self, position: int) -> tuple[int, int, Message] | None:
        """Return the next message after a position: its own, when it came, and itself."""
        found = "SELECT position, at, topic, payload FROM messages WHERE position > ? "
        with self._changed:
            row = self._execute(f"{found} ORDER BY position LIMIT 1", position).fetchone()
            if row is not None and row[1] <= self._last_expired():
                self.let_go()
                return self.after(position)
        if row is None:
            return None
        if tuple(map(type, row)) != (int, int, str, bytes):
            raise DamagedFileError(self.path, "is damaged (it holds no message)", REMEDY)
        return row[0], row[1], Message(*row[2:])

    def positions(self, after: int) -> list[int]:
        """Return the positions of all messages after one."""
        found = "SELECT position FROM messages WHERE position > ? ORDER BY position"
        with self._changed:
            return [int(position) for (position,) in self._execute(found, after)]

    def wait(self, after: int, count: int, seconds: float) -> bool:
        """Wait until so many messages are there after a position; return whether they are."""
        nth = "SELECT 1 FROM messages WHERE position > ? ORDER BY position LIMIT 1 OFFSET ?"
        with self._changed:
            if self._execute(nth, after, count - 1).fetchone():
                return True
            self._changed.wait(seconds)
            return self._execute(nth, after, count - 1).fetchone() is not None

    def confirm(self, position: int) -> None:
        """Overwrite and delete the messages up to a position: they are safe elsewhere."""
        with self._changed:
            if position <= self._state("taken"):
                return
            with self._writing():
                self._delete("position <= ?", position)
                self._execute("UPDATE state SET taken = max(taken, ?)", position)
            empty_log(self._connection)

    def keep_at_most(self, length: int) -> None:
        """Hold messages for no longer than so many milliseconds from now on; 0 for any time."""
        with self._changed:
            if self._state("keep") != length:
                with self._writing():
                    self._execute("UPDATE state SET keep = ?", length)

    def name_subjects(self, subject: Callable[[Message], str | None] | None) -> None:
        """Note whom or what messages are about: those that are there, and those that come.

        Args:
            subject: of a message; empty for nobody, none if it cannot be said. None for an app
                that names no subjects.
        """
        with self._changed:
            self._subject = subject
            unnamed = "SELECT position, topic, payload FROM messages WHERE subject IS NULL"
            if subject is None or not self._execute(f"{unnamed} LIMIT 1").fetchone():
                return
            with self._writing():
                for position, topic, payload in self._execute(unnamed).fetchall():
                    whose = self._whose(Message(topic, payload))
                    named = "UPDATE messages SET subject = ? WHERE position = ?"
                    self._execute(named, whose, position)

    def let_go(self) -> tuple[int, int]:
        """Overwrite messages that were held too long, or are to be forgotten; how many of each."""
        with self._changed:
            with self._writing():
                self._tick()
                subjects = self._execute("SELECT DISTINCT subject FROM messages").fetchall()
                gone = {whose for (whose,) in subjects} & self._forgotten.hashes()
                erased = sum(self._delete("subject = ?", whose) for whose in gone)
                expired = self._delete("at <= ?", self._last_expired())
                counted = "UPDATE state SET expired = expired + ?, erased = erased + ?"
                self._execute(counted, expired, erased)
            empty_log(self._connection)
        return expired, erased

    def sweep(self) -> Swept:
        """Overwrite what may no longer be held, wait until it is gone, and say what is left."""
        expired, erased = self.let_go()
        with self._changed:
            check_gone(self.path, is_gone=empty_log(self._connection, wait=True))
            unnamed = "SELECT count(*) FROM messages WHERE subject IS NULL"
            ((count,),) = self._execute(unnamed)
            return Swept(
                path=self.path,
                kind="spool",
                deleted=expired + erased,
                erased=erased,
                held=int(self._state("waiting")),
                unnamed=int(count),
                has_limit=bool(self._state("keep")),
            )

    def health(self) -> SpoolHealth:
        """Return what became of all messages so far."""
        with self._changed, transaction(self._connection, "DEFERRED"):
            names = (one.name for one in fields(SpoolHealth) if one.type is int)
            counts = {name: int(self._state(name)) for name in names}
            gaps = self._execute("SELECT at, reason FROM gaps ORDER BY number").fetchall()
            lost = "SELECT source, missing FROM sources WHERE missing > 0 ORDER BY source"
            missing = dict(self._execute(lost).fetchall())
        newest = tuple(Gap(at, reason) for at, reason in gaps)
        return SpoolHealth(**counts, newest_gaps=newest, missing=missing)

    def _insert(self, message: Message, whose: str | None, *, is_numbered: bool) -> int:
        """Store a message; return its position."""
        position = int(self._state("received")) + 1
        row = position, self._tick(), whose, message.topic, message.payload
        self._execute("INSERT INTO messages VALUES (?, ?, ?, ?, ?)", *row)
        self._execute(
            "UPDATE state SET received = ?, waiting = waiting + 1, unnumbered = unnumbered + ?",
            *(position, not is_numbered),
        )
        return position

    def _delete(self, condition: str, value: object) -> int:
        """Delete messages; return how many."""
        statement = f"DELETE FROM messages WHERE {condition}"  # noqa: S608 - our own conditions
        count = self._execute(statement, value).rowcount
        self._execute("UPDATE state SET waiting = waiting - ?", count)
        return count

    def _make_room(self) -> None:
        """Make room for one message, perhaps by dropping the oldest."""
        if self._state("waiting") < self._most:
            return
        oldest = "SELECT min(position) FROM messages WHERE position > ?"
        ((position,),) = self._execute(oldest, self.read_up_to)
        if not self._drops or position is None:
            raise _FullError
        self._execute(
            "UPDATE state SET dropped = dropped + ?", self._delete("position = ?", position)
        )
        if str(self.path) not in self._warned_of:
            self._warned_of.add(str(self.path))
            logger.warning("%s is full: its oldest messages are dropped", self.path)

    def _was_delivered(self, packet: int, digest: bytes) -> bool:
        known = "SELECT 1 FROM deliveries WHERE packet = ? AND digest = ?"
        return self._execute(known, packet, digest).fetchone() is not None

    def _warn_of_repetition(self, numbered: tuple[str, int] | None, delivery: Delivery) -> None:
        """Warn once for a source: it may be a device that has restarted its numbers."""
        if numbered is None or delivery.again or numbered[0] in self._warned_of:
            return
        self._warned_of.add(numbered[0])
        logger.warning(
            "number %d of %a arrived before, though the broker does not mark it as a repetition; "
            "it is not stored. Give a device that restarts its numbers a new source",
            *numbered[::-1],
        )

    def _note_gap(self, reason: str) -> None:
        logger.warning("%s: messages may have been lost: %s", self.path, reason)
        self._execute("UPDATE state SET gaps = gaps + 1")
        self._execute("INSERT INTO gaps (at, reason) VALUES (?, ?)", time.time(), reason)
        last = "SELECT number FROM gaps ORDER BY number DESC LIMIT ?"
        self._execute(f"DELETE FROM gaps WHERE number NOT IN ({last})", KEPT_GAPS)  # noqa: S608

    def _follows(self, source: str) -> bool:
        """Return whether the numbers of a source are followed, or can be from now on."""
        if self._execute("SELECT 1 FROM sources WHERE source = ?", source).fetchone():
            return True
        ((count,),) = self._execute("SELECT count(*) FROM sources")
        return bool(count < MOST_SOURCES)

    def _note_number(self, source: str, number: int) -> int | None:
        """Note a number; return how many are missing before it, or None if it came before.

        Missing numbers are counted from the first number that arrived. A late number fills its
        hole. A number below all known ones, without a remembered hole, came before.
        """
        found = "SELECT number, newest FROM sources WHERE source = ?"
        known = self._execute(found, source).fetchone()
        if known is None:
            new = "INSERT INTO sources (source, newest, missing) VALUES (?, ?, 0)"
            self._execute(new, source, number)
            return 0
        of, newest = known
        if number > newest:
            missed = int(number - newest - 1)
            now = "UPDATE sources SET newest = ?, missing = missing + ? WHERE number = ?"
            self._execute(now, number, missed, of)
            self._open_hole(of, newest + 1, number - 1)
            return missed
        holes = "SELECT rowid, low, high FROM holes WHERE source = ? AND ? BETWEEN low AND high"
        hole = self._execute(holes, of, number).fetchone()
        if hole is None:
            return None
        row, low, high = hole
        self._execute("DELETE FROM holes WHERE rowid = ?", row)
        self._open_hole(of, low, number - 1)
        self._open_hole(of, number + 1, high)
        self._execute("UPDATE sources SET missing = missing - 1 WHERE number = ?", of)
        return 0

    def _open_hole(self, source: int, low: int, high: int) -> None:
        """Remember numbers that are missing, if any are; the lowest holes are forgotten."""
        if low > high:
            return
        self._execute("INSERT INTO holes VALUES (?, ?, ?)", source, low, high)
        kept = "SELECT rowid FROM holes WHERE source = ? ORDER BY low DESC LIMIT ?"
        too_many = f"DELETE FROM holes WHERE source = ? AND rowid NOT IN ({kept})"  # noqa: S608
        self._execute(too_many, source, source, MOST_HOLES)

    def _whose(self, message: Message) -> str | None:
        """Return the keyed hash of a subject; empty for nobody, None if nobody can say."""
        named = None if self._subject is None else self._subject(message)
        return self._forgotten.hash_of(named) if named else named

    def _tick(self) -> int:
        """Note the file's own time, which never goes back, and return it."""
        now = self._time()
        self._execute("UPDATE state SET own = ?, wall = ?", now.own, now.wall)
        return now.own

    def _last_expired(self) -> int:
        """Return when a message came that may just no longer be held; -1 if any may."""
        keep = self._state("keep")
        return self._time().own - int(keep) if keep else -1

    def _time(self) -> OwnTime:
        before = OwnTime(self._state("own"), self._state("wall"))
        return before.at(milliseconds(self._clock))

    def _execute(self, statement: str, *values: object) -> sqlite3.Cursor:
        return self._connection.execute(statement, values)

    @contextmanager
    def _writing(self) -> Iterator[None]:
        """One thread and one transaction at a time; who waits is woken afterwards."""
        with self._changed:
            with transaction(self._connection):
                yield
            self._changed.notify_all()

    def _state(self, name: str) -> Any:
        ((value,),) = self._execute(f"SELECT {name} FROM state")  # noqa: S608 - a column's name
        return value


class SpooledStream:
    """Messages of a spool, in order of arrival.

    They are decoded when they are taken, so that an unreadable one delays nothing: the gate sets it
    aside. ``confirm`` deletes what the books have.

    Args:
        spool: holds the messages.
        decode: makes a sample of a payload and its topic.
    """

    def __init__(self, spool: Spool, decode: Decode) -> None:
        check_function("decode", decode, ("a payload", "its topic"), "it returns a sample")
        self._spool = spool
        self._decode = decode
        self._position = spool.taken
        self.arrived_at = 0
        """When the message that was taken last came, in milliseconds since 1970."""

    @property
    def cursor(self) -> str:
        """The spool's own id, and the position of the last message taken."""
        return f"{self._spool.id}-{self._position}"

    def seek(self, cursor: str) -> None:
        """Continue after a message; with the cursor of a lost spool, from the beginning."""
        self._position = self._place(cursor)
        self._spool.read_up_to = self._position

    def skip_taken(self, taken: TakenBefore) -> None:
        """Continue after the last message taken; if this spool never had it, all are fresh."""
        places = [self._position, *self._spool.positions(self._position)]
        cursors = [f"{self._spool.id}-{place}" for place in places]
        known = next((at for at, cursor in enumerate(cursors) if taken.is_last(cursor)), None)
        if known is not None:
            self.seek(cursors[min(known + taken.after_last, len(cursors) - 1)])

    def take(self, count: int) -> list[Any]:
        """Return the next samples in the spool, up to one that cannot be decoded."""
        samples: list[Any] = []
        while len(samples) < count and (found := self._spool.after(self._position)):
            before = self._position
            self._position, self.arrived_at, message = found
            self._spool.read_up_to = self._position
            try:
                samples.append(self._decode(message.payload, message.topic))
            except Exception:
                if not samples:
                    raise
                self._position = before
                break
        return samples

    def confirm(self, cursor: str) -> None:
        """Delete the messages up to a cursor that the books hold."""
        self._spool.confirm(self._place(cursor))

    def keep_at_most(self, length: int) -> None:
        """Hold messages for at most so many milliseconds from now on; 0 for any time."""
        self._spool.keep_at_most(length)
        self._spool.let_go()

    def name_subjects(self, subject: Callable[[Any], str | None] | None) -> None:
        """Note whom or what messages are about, those that are there and those that come."""
        if subject is None:
            self._spool.name_subjects(None)
            return

        def of(message: Message) -> str | None:
            try:
                return str(subject(self._decode(message.payload, message.topic)) or "")
            except Exception:  # the gate will set it aside; until then nobody can say
                return None

        self._spool.name_subjects(of)

    def overflow(self) -> Overflow:
        """Whether the spool is full, and what it dropped."""
        return Overflow(self._spool.is_full, self._spool.health().dropped)

    def health(self) -> SpoolHealth:
        """Return what became of all messages so far, also in earlier processes."""
        return self._spool.health()

    def close(self) -> None:
        """Close the spool's file."""
        self._spool.close()

    def _place(self, cursor: str) -> int:
        spool, _, position = cursor.rpartition("-")
        return int(position) if spool == self._spool.id else self._spool.taken
