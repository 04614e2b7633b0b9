"""A store that random orders are committed to, beside what it should hold."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from tidegate._internal.randomness import generator
from tidegate.client.store import Change, FailedSample, Store, StoredSample
from tidegate.testing.law import Trial
from tidegate.wire import Order, Receipt

RUN, CLIENT, CAPACITY = "checked", "client-0", 7

OpenStore = Callable[[str, str, int], Store]
"""Given a run, a client and a capacity, opens its store: a new one, or the one that is there."""


@dataclass
class Played:
    """A store, and what it should hold after random orders that were committed to it."""

    open_store: OpenStore
    seed: int
    trial: Trial
    stored: list[StoredSample] = field(default_factory=list)
    samples: list[Any] = field(default_factory=list)
    answers: dict[int, tuple[Order, Receipt]] = field(default_factory=dict)
    failures: list[FailedSample] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.draw = generator(self.seed)
        self.store = self.open_store(RUN, f"{CLIENT}-{self.trial.law}-{self.seed}", CAPACITY)

    def change(self, round_number: int) -> tuple[Change, list[Any]]:
        """A random order of a round, all that it changes, and its fresh samples."""
        before = self.store.books()
        admitted = int(self.draw.integers(0, CAPACITY))
        fresh = [
            (self.draw.normal(size=3), int(before.total_admitted + number))
            for number in range(admitted)
        ]
        kept = max(len(self.stored) - int(self.draw.integers(0, 4)), 0)
        kept = min(kept, CAPACITY - admitted)
        removed = [one.position for one in self.stored[: len(self.stored) - kept]]
        total = before.total_admitted + admitted
        after = replace(
            before,
            last_round=round_number,
            orders=before.orders + 1,
            cursor=str(total),
            total_admitted=total,
            total_spent=before.total_spent + 2.0 * admitted,
        )
        failed = [
            FailedSample(f"{RUN}/{round_number}/{place}", place, "OSError: gone", bool(set_aside))
            for place, set_aside in enumerate(self.draw.integers(0, 2, size=admitted), start=1)
        ]
        order = Order(
            run=RUN,
            round_number=round_number,
            price=2.0,
            retention="oldest_first",
            count=admitted,
        )
        receipt = Receipt(
            run=RUN,
            round_number=round_number,
            bought=after.total_bought,
            admitted=total,
            spent=after.total_spent,
            occupancy=kept + admitted,
        )
        packed = [self.store.pack(sample) for sample in fresh]
        return Change(order, receipt, before, after, removed, packed, failed), fresh

    def commit(self, round_number: int) -> None:
        """Commit a random order, and note what the store should hold then."""
        change, fresh = self.change(round_number)
        self.store.commit(change)
        gone = len(change.removed)
        start = change.before.total_admitted
        self.stored = [
            *(replace(one, uses=one.uses + 1) for one in self.stored[gone:]),
            *(
                StoredSample(start + place, round_number, 1, change.books.orders)
                for place in range(len(fresh))
            ),
        ]
        self.samples = [*self.samples[gone:], *fresh]
        self.answers[round_number] = change.order, change.receipt
        self.failures = [*(one for one in self.failures if one.set_aside), *change.failed]

    def compare(self, store: Store, when: str) -> None:
        """Everything that the store says, against what it should."""
        expect = self.trial.expect
        last = max(self.answers, default=0)
        books = store.books()
        found = f"{when}, its books end at round {books.last_round}, not {last}"
        expect(books.last_round == last, found)
        expect(
            store.stored() == self.stored,
            f"{when}, it holds {store.stored()}, not {self.stored}",
        )
        held = store.samples()
        same = len(held) == len(self.samples) and all(
            np.array_equal(mine[0], other[0]) and mine[1] == other[1]
            for mine, other in zip(held, self.samples, strict=True)
        )
        expect(same, f"{when}, its samples are not those that were committed, oldest first")
        noted = sorted(store.failures(), key=lambda one: one.key)
        expect(
            noted == sorted(self.failures, key=lambda one: one.key),
            f"{when}, it notes the failures {noted}, not {self.failures}",
        )
        for round_number, answer in self.answers.items():
            expect(
                store.answer(round_number) == answer,
                f"{when}, it returns another answer for round {round_number}",
            )

    def reopened(self) -> Store:
        """The store as a new process opens it."""
        return self.open_store(RUN, f"{CLIENT}-{self.trial.law}-{self.seed}", CAPACITY)
