"""What a client keeps between rounds: samples, use counts, orders, the stream's cursor.

A store decides nothing. ``commit`` applies everything that one order changes, or nothing of it.
"""

import uuid
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

from tidegate.errors import WireError
from tidegate.wire import Address, Order, Receipt, cursor_digest


@dataclass(frozen=True, kw_only=True)
class Books:
    """The state of a client."""

    run: str
    client: str
    """Its registered name or public key."""
    buffer_capacity: int
    """B_m, samples."""
    buffer_id: str = field(default_factory=lambda: uuid.uuid4().hex)
    """Created with the buffer: a client that has lost one comes back with another."""
    last_round: int = 0
    """The newest round whose order was applied."""
    orders: int = 0
    """Orders that were applied."""
    void_round: int = 0
    """Orders up to this round that were not applied never will be."""
    cursor: str | None = None
    """How far the stream has been read; None before the first sample."""
    is_dry: bool = False
    """Whether the last order that needed a sample was short because the stream had no more."""
    total_admitted: int = 0
    """Also the position of the next sample: positions count from 0 and are never used twice."""
    total_spent: float = 0.0
    total_set_aside: int = 0
    """Samples that were skipped because they could not be read, acquired or stored."""
    total_seen: int = 0
    """Samples of the stream that were read, from the first choice among candidates on; 0 for a
    client that never chose."""
    candidates: int = 0
    """That are kept: they wait, or are chosen and not yet admitted."""
    chosen_round: int = 0
    """The newest round whose choice was written down."""
    under_way: int = 0
    """Samples that were bought and have not arrived yet."""
    under_way_spent: float = 0.0
    """Committed for them; part of ``total_spent``."""
    total_refused: int = 0
    """Samples that were bought and will never arrive."""
    total_refunded: float = 0.0
    """Refunded part of ``total_spent``."""
    total_expired: int = 0
    """Samples that left the buffer because they had been held for too long."""
    total_erased: int = 0
    """Samples that left it because their subject is forgotten."""
    total_passed: int = 0
    """Samples of the stream that were skipped because their subject is forgotten."""
    record_number: int = 0
    """Of the newest entry of the record; 0 where none is kept."""
    record_digest: str = ""
    """Of that entry, and so of all before it."""

    @property
    def total_bought(self) -> int:
        """Samples that were bought, whatever became of them."""
        return self.total_admitted + self.total_refused + self.under_way

    @property
    def read(self) -> int:
        """Samples of the stream that were read, whatever became of them."""
        seen = self.total_seen or self.total_admitted + self.total_set_aside
        return seen + self.total_passed

    def __post_init__(self) -> None:
        if not (self.run and self.client and self.buffer_id and self.buffer_capacity >= 1):
            raise ValueError(f"books need a run, a client, an id and capacity for a sample: {self}")
        admissions = self.total_admitted, self.total_set_aside, self.total_spent
        choices = self.total_seen, self.candidates, self.chosen_round
        purchases = self.under_way, self.under_way_spent, self.total_refused, self.total_refunded
        gone = self.total_expired, self.total_erased, self.total_passed, self.record_number
        if (
            min(
                self.last_round,
                self.void_round,
                self.orders,
                *admissions,
                *choices,
                *purchases,
                *gone,
            )
            < 0
        ):
            raise ValueError(f"these books are not possible: {self}")


@dataclass(frozen=True)
class Origin:
    """Since when a device holds a sample, and whose it is."""

    held_at: int = 0
    """By the store's own time, in milliseconds since 1970; 0 for now."""
    subject: str = ""
    """Keyed hash of the person or thing that the sample is about; empty if nobody said."""
    secret: bytes = b""
    """Key of the sample's mark in the record; made up where it is empty."""


@dataclass(frozen=True)
class StoredSample:
    """One sample in the buffer, without its content."""

    position: int
    admitted_round: int
    uses: int
    """Rounds in which it was trained on."""
    bought_in: int
    """Number of the order that bought it."""


@dataclass(frozen=True)
class FailedSample:
    """A sample that could not be read, acquired or stored."""

    key: str
    """As ``acquire`` gets it: run, client and the stream's cursor after the sample."""
    tries: int
    error: str
    """Of the last try."""
    set_aside: bool = False
    """Whether it was skipped for good; otherwise it is tried again."""


@dataclass(frozen=True)
class Candidate:
    """A sample that was read from the stream and not paid for yet."""

    key: str
    """As ``acquire`` gets it: run, client and the stream's cursor after the sample."""
    packed: bytes
    chosen: bool = False
    """Whether it is to be paid for; else it waits."""
    origin: Origin = Origin()
    bought_in: int = 0
    """Number of the order that bought it, if it was under way."""


@dataclass(frozen=True)
class Purchase:
    """A sample that was bought and has not arrived yet, without its content."""

    key: str
    price: float
    round_number: int
    """Of the order that bought it."""
    bought_in: int
    """Number of that order among those that the client applied."""
    asked: bool = False
    """Whether the supplier is known to have been asked."""
    is_void: bool = False
    """Whether its sample may no longer be kept and is gone: the purchase is to be cancelled."""


@dataclass(frozen=True)
class Choice:
    """What one order reads and chooses; it is recorded before the first payment."""

    round_number: int
    before: Books
    """As they were when the choice was made; it is refused if they have moved since."""
    books: Books
    """As they are afterwards."""
    fresh: Sequence[Candidate]
    """In the order of the stream, after all that were kept before."""
    chosen: Sequence[str]
    """Keys of candidates to be paid for, in this order and after those that were chosen before."""
    dropped: Sequence[str]
    """Keys of candidates that wait no longer."""
    failed: Sequence[FailedSample] = ()
    """As in a ``Change``."""


@dataclass(frozen=True)
class Change:
    """Everything that one order changes."""

    order: Order
    receipt: Receipt
    before: Books
    """As they were when the change was worked out; it is refused if they have moved since."""
    books: Books
    """As they are afterwards."""
    removed: Sequence[int]
    """Positions of samples that expired or made room."""
    admitted: Sequence[bytes]
    """Fresh samples, packed, at the positions from the old ``total_admitted`` on."""
    failed: Sequence[FailedSample] = ()
    """Samples that are set aside now, and all that will be tried again, which take the place of
    those that were noted before."""
    done: Sequence[str] = ()
    """Keys of chosen candidates that were bought or set aside."""
    asked: Sequence[Candidate] = ()
    """Samples that were bought, at the order's price, and will come later."""
    ended: Sequence[str] = ()
    """Keys of purchases that have arrived, or never will."""
    origins: Sequence[Origin] = ()
    """Of the samples that are admitted, in their order; now and nobody where it is empty."""
    bought_in: Sequence[int] = ()
    """Numbers of the orders that bought them; the present one where it is empty."""

    @property
    def round_number(self) -> int:
        """Of the order."""
        return self.order.round_number


class Store(Protocol):
    """Where a client's buffer lives."""

    def books(self) -> Books:
        """Return the state of the client."""
        ...

    def stored(self) -> list[StoredSample]:
        """Return what is in the buffer, oldest first."""
        ...

    def samples(self) -> list[Any]:
        """Return the samples, oldest first."""
        ...

    def answer(self, round_number: int) -> tuple[Order, Receipt] | None:
        """Return the order of a round and its receipt."""
        ...

    def failures(self) -> list[FailedSample]:
        """Return samples that failed, in the order in which they were noted.

        All that will be tried again, and at least the newest that were set aside.
        """
        ...

    def pack(self, sample: Any) -> bytes:
        """Return a sample as it will be stored; raise if it cannot be stored."""
        ...

    def unpack(self, packed: bytes) -> Any:
        """Return the sample that was packed."""
        ...

    def candidates(self, *, only_chosen: bool = False) -> list[Candidate]:
        """Return candidates: the chosen ones, in that order; then others, oldest first."""
        ...

    def choose(self, choice: Choice) -> None:
        """Record a choice, entirely or not at all."""
        ...

    def purchases(self) -> list[Purchase]:
        """Return what was bought and has not arrived yet, oldest first."""
        ...

    def purchased(self, key: str) -> Candidate:
        """Return the sample of a purchase that is under way and not void."""
        ...

    def mark_asked(self, keys: Sequence[str]) -> None:
        """Note that the supplier knows of these purchases."""
        ...

    def commit(self, change: Change) -> None:
        """Apply a change entirely, or not at all; every sample then stored was used once more."""
        ...

    def void(self, round_number: int) -> None:
        """Never apply an order of a round up to this one from now on."""
        ...

    def keep_at_most(self, length: int) -> None:
        """Hold samples for at most so many milliseconds from now on; 0 for any time."""
        ...

    def let_go(self) -> None:
        """Delete what may no longer be held: samples, candidates, and content of purchases."""
        ...

    def whose(self, subject: str) -> str | None:
        """Return the keyed hash of a subject; None for a forgotten one."""
        ...


def with_void(books: Books, round_number: int) -> Books:
    """Return books in which no order up to a round can be applied any more."""
    return replace(books, void_round=max(books.void_round, round_number))


def last_taken(books: Books) -> str:
    """Return how far the stream was read, for the server; empty before the first sample."""
    return "" if books.cursor is None else cursor_digest(books.run, books.client, books.cursor)


def check_meant_for(books: Books, address: Address) -> None:
    """Refuse an order for a lost buffer, or for a newer copy of this one."""
    if address.buffer_id != books.buffer_id:
        raise WireError(
            f"{books.client} has lost its buffer: the order is for {address.buffer_id!r}, but it "
            f"now has {books.buffer_id!r}"
        )
    if books.last_round < address.booked_round:
        raise WireError(
            f"the buffer of {books.client} is an old copy: the server has its receipt of round "
            f"{address.booked_round}, but this file ends at {books.last_round}; delete it there, "
            "and the client begins again with an empty buffer"
        )


class BooksMovedError(RuntimeError):
    """Another process wrote in between; applying the order again returns its receipt."""


def checked_books(change: Change | Choice, now: Books) -> Books:
    """Return the books after a change, unless it was made from books that have changed since.

    An introduction in between, which voids other rounds, is no reason to acquire again.
    """
    round_number, before = change.round_number, change.before
    if round_number <= now.void_round or replace(now, void_round=before.void_round) != before:
        raise BooksMovedError(
            f"round {round_number} was computed at round {before.last_round}, but the books are at "
            f"{now.last_round}, and rounds up to {now.void_round} are void; apply it again"
        )
    return replace(change.books, void_round=now.void_round)


def noted(before: Sequence[FailedSample], now: Sequence[FailedSample]) -> list[FailedSample]:
    """Return the failures that a store keeps after a change."""
    set_aside = [*(one for one in before if one.set_aside), *(one for one in now if one.set_aside)]
    return [*set_aside[-KEPT_FAILURES:], *(one for one in now if not one.set_aside)]


KEPT_ANSWERS = 1000
"""Rounds whose order and receipt are kept, so that money can be traced and storage is bounded."""
KEPT_FAILURES = 1000
"""Samples set aside whose key and error are kept; the books count them all."""
