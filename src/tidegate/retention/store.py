"""What a client keeps between rounds: samples, use counts, orders answered, the stream's cursor.

A store holds; it decides nothing. Everything that one order changes is handed to ``commit`` in one
piece and happens entirely or not at all.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

from tidegate.wire import Order, Receipt


@dataclass(frozen=True, kw_only=True)
class Books:
    """Where a client stands."""

    run: str
    buffer_capacity: int
    """B_m, samples."""
    last_round: int = 0
    """The newest round whose order was applied."""
    cursor: str | None = None
    """How far the stream has been read; none before the first sample."""
    total_admitted: int = 0
    """Also the position of the next sample: positions count from 0 and are never used twice."""
    total_spent: float = 0.0


@dataclass(frozen=True)
class StoredSample:
    """One sample in the buffer, without its content."""

    position: int
    admitted_round: int
    uses: int
    """Rounds in which it was trained on."""


@dataclass(frozen=True)
class Change:
    """All that one order changes."""

    order: Order
    receipt: Receipt
    books: Books
    """As they are afterwards."""
    removed: Sequence[int]
    """Positions of samples that expired or made room."""
    admitted: Sequence[Any]
    """Fresh samples, at the positions from the old ``total_admitted`` on."""


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

    def commit(self, change: Change) -> None:
        """Apply a change entirely, or not at all; every sample then stored was used once more."""
        ...


class MemoryStore:
    """A store that is gone with its process; for simulation and tests."""

    def __init__(self, run: str, buffer_capacity: int) -> None:
        self._books = Books(run=run, buffer_capacity=buffer_capacity)
        self._stored: dict[int, tuple[StoredSample, Any]] = {}
        self._answers: dict[int, tuple[Order, Receipt]] = {}

    def books(self) -> Books:
        """Where the client stands."""
        return self._books

    def stored(self) -> list[StoredSample]:
        """What is in the buffer, oldest first."""
        return [entry for entry, _ in self._stored.values()]

    def samples(self) -> list[Any]:
        """The samples themselves, oldest first."""
        return [sample for _, sample in self._stored.values()]

    def answer(self, round_number: int) -> tuple[Order, Receipt] | None:
        """The order of a round and the receipt that was given for it."""
        return self._answers.get(round_number)

    def commit(self, change: Change) -> None:
        """Apply a change; nothing in between can fail."""
        now = change.order.round_number
        kept = {
            position: (replace(entry, uses=entry.uses + 1), sample)
            for position, (entry, sample) in self._stored.items()
            if position not in set(change.removed)
        }
        for position, sample in enumerate(change.admitted, start=self._books.total_admitted):
            kept[position] = StoredSample(position, now, 1), sample
        self._stored = kept
        self._books = change.books
        self._answers[now] = change.order, change.receipt
