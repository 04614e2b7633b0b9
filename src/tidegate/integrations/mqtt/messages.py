"""What a spool holds and reports: messages, deliveries, gaps and counts; and its tables."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from tidegate._internal.sqlite_file import FileKind
from tidegate.integrations.mqtt.arrivals import TABLES as ARRIVALS
from tidegate.integrations.mqtt.numbering import TABLES

REMEDY = "delete it; what it holds is lost, and the next connection records a gap"
KIND = FileKind(
    "spool",
    0x71DE5900,
    1,
    (
        """CREATE TABLE state (
                only INTEGER PRIMARY KEY CHECK (only = 1), id TEXT NOT NULL, owner TEXT NOT NULL,
                session INTEGER NOT NULL, taken INTEGER NOT NULL, waiting INTEGER NOT NULL,
                received INTEGER NOT NULL, unnumbered INTEGER NOT NULL,
                repeated INTEGER NOT NULL, dropped INTEGER NOT NULL, gaps INTEGER NOT NULL
            )""",
        """CREATE TABLE messages (
                position INTEGER PRIMARY KEY, topic TEXT NOT NULL, payload BLOB NOT NULL
            )""",
        """CREATE TABLE newest (
                position INTEGER PRIMARY KEY, packet INTEGER NOT NULL, digest BLOB NOT NULL
            )""",
        """CREATE TABLE gaps (
                number INTEGER PRIMARY KEY, at REAL NOT NULL, reason TEXT NOT NULL
            )""",
        *TABLES,
        *ARRIVALS,
    ),
    REMEDY,
)


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
    gaps: int
    """How often messages may have been lost with a session or a spool."""
    newest_gaps: tuple[Gap, ...]
    """The last of them, oldest first."""
    missing: Mapping[str, int]
    """Numbers that never came, by their source."""
    expired: int = 0
    """Messages that were deleted unread, because they were held for too long."""
    erased: int = 0
    """Messages that were deleted unread or refused, because their subject is forgotten."""
