"""What a client keeps between rounds: samples, use counts, orders answered, the stream's cursor.

A store holds; it decides nothing. Everything that one order changes is handed to ``commit`` in one
piece and happens entirely or not at all.
"""

import uuid
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

from tidegate.client.codec import ArrayCodec, SampleCodec
from tidegate.errors import WireError
from tidegate.wire import Address, Order, Receipt


@dataclass(frozen=True, kw_only=True)
class Books:
    """Where a client stands."""

    run: str
    client: str
    """Its registered name or public key."""
    buffer_capacity: int
    """B_m, samples."""
    buffer_id: str = field(default_factory=lambda: uuid.uuid4().hex)
    """Made up with the buffer: a client that has lost one comes back with another."""
    last_round: int = 0
    """The newest round whose order was applied."""
    void_round: int = 0
    """Orders up to this round that were not applied never will be."""
    cursor: str | None = None
    """How far the stream has been read; none before the first sample."""
    total_admitted: int = 0
    """Also the position of the next sample: positions count from 0 and are never used twice."""
    total_spent: float = 0.0
    total_set_aside: int = 0
    """Samples that were passed over, because they could not be read, acquired or stored."""

    def __post_init__(self) -> None:
        if not (self.run and self.client and self.buffer_id and self.buffer_capacity >= 1):
            raise ValueError(f"books need a run, a client, an id and capacity for a sample: {self}")
        counts = self.last_round, self.void_round, self.total_admitted, self.total_set_aside
        if min(*counts, self.total_spent) < 0:
            raise ValueError(f"these books cannot be right: {self}")


@dataclass(frozen=True)
class StoredSample:
    """One sample in the buffer, without its content."""

    position: int
    admitted_round: int
    uses: int
    """Rounds in which it was trained on."""


@dataclass(frozen=True)
class FailedSample:
    """A sample that could not be read, acquired or stored."""

    key: str
    """As ``acquire`` gets it: run, client and the stream's cursor after the sample."""
    tries: int
    error: str
    """Of the last try."""
    set_aside: bool = False
    """Whether it was passed over for good; else it is tried again."""


@dataclass(frozen=True)
class Change:
    """All that one order changes."""

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


class Store(Protocol):
    """Where a client's buffer lives."""

    def books(self) -> Books:
        """Where the client stands."""
        ...

    def stored(self) -> list[StoredSample]:
        """What is in the buffer, oldest first."""
        ...

    def samples(self) -> list[Any]:
        """The samples themselves, oldest first."""
        ...

    def answer(self, round_number: int) -> tuple[Order, Receipt] | None:
        """The order of a round and the receipt that was given for it."""
        ...

    def failures(self) -> list[FailedSample]:
        """Samples that failed, in the order in which they were noted.

        All that will be tried again, and at least the newest that were set aside.
        """
        ...

    def pack(self, sample: Any) -> bytes:
        """A sample as it will be stored; fails where it cannot be."""
        ...

    def commit(self, change: Change) -> None:
        """Apply a change entirely, or not at all; every sample then stored was used once more."""
        ...

    def void(self, round_number: int) -> None:
        """Never apply an order of a round up to this one, from now on."""
        ...


def with_void(books: Books, round_number: int) -> Books:
    """Books in which no order up to a round can be applied any more."""
    return replace(books, void_round=max(books.void_round, round_number))


def check_meant_for(books: Books, address: Address) -> None:
    """Refuse orders that were meant for a buffer which is lost, or for a newer copy of this one."""
    if address.buffer_id != books.buffer_id:
        raise WireError(
            f"{books.client} has lost its buffer: the order is for {address.buffer_id!r}, "
            f"and it has {books.buffer_id!r} now"
        )
    if books.last_round < address.booked_round:
        raise WireError(
            f"the buffer of {books.client} is an old copy: the server has its receipt of round "
            f"{address.booked_round}, its own books end at {books.last_round}"
        )


class BooksMovedError(RuntimeError):
    """Another process wrote in between; asking again gives its receipt."""


def checked_books(change: Change, now: Books) -> Books:
    """The books after a change, unless it was worked out from books that are no longer the newest.

    An introduction in between, which calls other rounds void, is no reason to acquire again.
    """
    round_number = change.order.round_number
    if replace(now, void_round=change.before.void_round) != change.before or (
        round_number <= now.void_round
    ):
        raise BooksMovedError(
            f"round {round_number} was worked out at round {change.before.last_round}, the books "
            f"are at {now.last_round}, and rounds up to {now.void_round} are void; apply it again"
        )
    return replace(change.books, void_round=now.void_round)


def noted(before: Sequence[FailedSample], now: Sequence[FailedSample]) -> list[FailedSample]:
    """The failures that a store keeps after a change."""
    set_aside = [*(one for one in before if one.set_aside), *(one for one in now if one.set_aside)]
    return [*set_aside[-KEPT_FAILURES:], *(one for one in now if not one.set_aside)]


KEPT_ANSWERS = 1000
"""Rounds whose order and receipt are kept, so that money can be traced, and storage is bounded."""


KEPT_FAILURES = 1000
"""Samples set aside whose key and error are kept; the books count them all."""


class MemoryStore:
    """A store that is gone with its process; for simulation and tests."""

    def __init__(
        self, run: str, client: str, buffer_capacity: int, codec: SampleCodec | None = None
    ) -> None:
        self._codec = ArrayCodec() if codec is None else codec
        self._books = Books(run=run, client=client, buffer_capacity=buffer_capacity)
        self._stored: dict[int, _Kept] = {}
        self._answers: dict[int, tuple[Order, Receipt]] = {}
        self._failures: list[FailedSample] = []
        self._applied = 0

    def books(self) -> Books:
        """Where the client stands."""
        return self._books

    def stored(self) -> list[StoredSample]:
        """What is in the buffer, oldest first."""
        return [
            StoredSample(position, one.admitted_round, self._applied - one.applied_before)
            for position, one in self._stored.items()
        ]

    def samples(self) -> list[Any]:
        """The samples themselves, oldest first."""
        return [self._codec.decode(one.packed) for one in self._stored.values()]

    def answer(self, round_number: int) -> tuple[Order, Receipt] | None:
        """The order of a round and the receipt that was given for it."""
        return self._answers.get(round_number)

    def failures(self) -> list[FailedSample]:
        """Samples that failed, in the order in which they were noted."""
        return list(self._failures)

    def pack(self, sample: Any) -> bytes:
        """A sample as it will be stored."""
        return self._codec.encode(sample)

    def commit(self, change: Change) -> None:
        """Apply a change; what could fail is done before anything is assigned."""
        books = checked_books(change, self._books)
        now = change.order.round_number
        stored = dict(self._stored)
        for position in change.removed:
            del stored[position]
        for position, packed in enumerate(change.admitted, start=change.before.total_admitted):
            stored[position] = _Kept(now, self._applied, packed)
        self._answers[now] = change.order, change.receipt
        if len(self._answers) > KEPT_ANSWERS:
            del self._answers[next(iter(self._answers))]
        self._failures = noted(self._failures, change.failed)
        self._applied += 1
        self._stored, self._books = stored, books

    def void(self, round_number: int) -> None:
        """Never apply an order of a round up to this one, from now on."""
        self._books = with_void(self._books, round_number)


@dataclass(frozen=True)
class _Kept:
    """A sample in memory. Every order uses it once, so its uses need no counting."""

    admitted_round: int
    applied_before: int
    """Orders that were applied before it was admitted."""
    packed: bytes
