"""A store in memory, which ends with its process."""

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from tidegate.client.codec import ArrayCodec, SampleCodec
from tidegate.client.limits import Clock, OwnTime, milliseconds
from tidegate.client.store import (
    KEPT_ANSWERS,
    Books,
    Candidate,
    Change,
    Choice,
    FailedSample,
    Origin,
    Purchase,
    StoredSample,
    checked_books,
    noted,
    with_void,
)
from tidegate.wire import Order, Receipt


class MemoryStore:
    """A store in memory, for simulation and tests."""

    def __init__(
        self,
        run: str,
        client: str,
        buffer_capacity: int,
        codec: SampleCodec | None = None,
        *,
        clock: Clock = time.time,
    ) -> None:
        self._codec = ArrayCodec() if codec is None else codec
        self._books = Books(run=run, client=client, buffer_capacity=buffer_capacity)
        self._stored: dict[int, _Kept] = {}
        self._answers: dict[int, tuple[Order, Receipt]] = {}
        self._failures: list[FailedSample] = []
        self._chosen: dict[str, Candidate] = {}
        self._waiting: dict[str, Candidate] = {}
        self._purchases: dict[str, tuple[Purchase, Candidate]] = {}
        self._clock = clock
        self._keep = 0
        self._time = OwnTime(0, 0)

    def books(self) -> Books:
        """Where the client stands."""
        return self._books

    def stored(self) -> list[StoredSample]:
        """What is in the buffer, oldest first."""
        return [
            StoredSample(
                position, one.admitted_round, self._books.orders - one.applied_before, one.bought_in
            )
            for position, one in self._stored.items()
        ]

    def samples(self) -> list[Any]:
        """The samples themselves, oldest first."""
        held = [one for one in self._stored.values() if not self._is_over(one.origin)]
        return [self._codec.decode(one.packed) for one in held]

    def answer(self, round_number: int) -> tuple[Order, Receipt] | None:
        """The order of a round and the receipt that was given for it."""
        return self._answers.get(round_number)

    def failures(self) -> list[FailedSample]:
        """Samples that failed, in the order in which they were noted."""
        return list(self._failures)

    def pack(self, sample: Any) -> bytes:
        """A sample as it will be stored."""
        return self._codec.encode(sample)

    def unpack(self, packed: bytes) -> Any:
        """The sample that was packed."""
        return self._codec.decode(packed)

    def candidates(self, *, only_chosen: bool = False) -> list[Candidate]:
        """First those that were chosen, in that order; then those that wait, oldest first."""
        return [*self._chosen.values(), *({} if only_chosen else self._waiting).values()]

    def choose(self, choice: Choice) -> None:
        """Write a choice down; what could fail is done before anything is assigned."""
        books = checked_books(choice, self._books)
        fresh = {one.key: replace(one, origin=self._since(one.origin)) for one in choice.fresh}
        waiting = {**self._waiting, **fresh}
        chosen = {key: replace(waiting.pop(key), chosen=True) for key in choice.chosen}
        for key in choice.dropped:
            del waiting[key]
        self._failures = noted(self._failures, choice.failed)
        self._chosen, self._waiting = {**self._chosen, **chosen}, waiting
        self._books = books

    def purchases(self) -> list[Purchase]:
        """What was bought and has not come yet, oldest first."""
        return [one for one, _ in self._purchases.values()]

    def purchased(self, key: str) -> Candidate:
        """The sample of a purchase that is under way and not void."""
        return self._purchases[key][1]

    def mark_asked(self, keys: Sequence[str]) -> None:
        """Note that the supplier knows of these purchases."""
        for key in keys:
            one, asked = self._purchases[key]
            self._purchases[key] = replace(one, asked=True), asked

    def commit(self, change: Change) -> None:
        """Apply a change; what could fail is done before anything is assigned."""
        books = checked_books(change, self._books)
        now = change.order.round_number
        stored = dict(self._stored)
        for position in change.removed:
            del stored[position]
        for place, packed in enumerate(change.admitted):
            origin = self._since(change.origins[place] if change.origins else Origin())
            position = change.before.total_admitted + place
            bought_in = change.bought_in[place] if change.bought_in else books.orders
            stored[position] = _Kept(now, change.before.orders, packed, origin, bought_in)
        done = set(change.done)
        chosen = {key: one for key, one in self._chosen.items() if key not in done}
        purchases = dict(self._purchases)
        for key in change.ended:
            del purchases[key]
        for one in change.asked:
            purchases[one.key] = Purchase(one.key, change.order.price, now, books.orders), one
        self._answers[now] = change.order, change.receipt
        if len(self._answers) > KEPT_ANSWERS:
            del self._answers[next(iter(self._answers))]
        self._failures = noted(self._failures, change.failed)
        self._stored, self._chosen, self._books = stored, chosen, books
        self._purchases = purchases

    def void(self, round_number: int) -> None:
        """Never apply an order of a round up to this one, from now on."""
        self._books = with_void(self._books, round_number)

    def keep_at_most(self, length: int) -> None:
        """Hold samples for no longer than so many milliseconds from now on; 0 for any time."""
        self._keep = length

    def let_go(self) -> None:
        """Delete what may no longer be held."""
        if not self._keep:
            return
        for one in [
            one for one in self.stored() if self._is_over(self._stored[one.position].origin)
        ]:
            del self._stored[one.position]
            self._books = replace(self._books, total_expired=self._books.total_expired + 1)
        for kept in (self._chosen, self._waiting):
            for key in [key for key, one in kept.items() if self._is_over(one.origin)]:
                del kept[key]
                self._books = replace(self._books, candidates=self._books.candidates - 1)
        for key, (purchase, asked) in self._purchases.items():
            if self._is_over(asked.origin):
                void = replace(purchase, is_void=True)
                self._purchases[key] = void, replace(asked, packed=b"")

    def whose(self, subject: str) -> str | None:
        """Nothing: what is gone with its process needs no names."""
        return ""

    def _now(self) -> int:
        self._time = self._time.at(milliseconds(self._clock))
        return self._time.own

    def _since(self, origin: Origin) -> Origin:
        return origin if origin.held_at else replace(origin, held_at=self._now())

    def _is_over(self, origin: Origin) -> bool:
        return self._keep > 0 and origin.held_at <= self._now() - self._keep


@dataclass(frozen=True)
class _Kept:
    """A sample in memory. Every order uses it once, so its uses need no counting."""

    admitted_round: int
    applied_before: int
    """Orders that were applied before it was admitted."""
    packed: bytes
    origin: Origin
    bought_in: int
