"""The laws of a store: what an order changes happens entirely or not at all, and stays."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from tidegate._internal.randomness import generator
from tidegate.client.store import (
    BooksMovedError,
    Candidate,
    Change,
    Choice,
    FailedSample,
    Store,
    StoredSample,
)
from tidegate.testing.law import Trial
from tidegate.wire import Order, Receipt

RUN, CLIENT, CAPACITY = "checked", "client-0", 7
ROUNDS = 25
SEEDS = 4

OpenStore = Callable[[str, str, int], Store]
"""Given a run, a client and a capacity, opens its store: a new one, or the one that is there."""
Law = Callable[["Played"], None]


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
            admitted=admitted,
            spent=2.0 * admitted,
            occupancy=kept + admitted,
            expiring=0,
            prior_uses=sum(one.uses for one in self.stored[len(removed) :]),
            total_admitted=total,
            total_spent=after.total_spent,
            exhausted=False,
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
            *(StoredSample(start + place, round_number, 1) for place in range(len(fresh))),
        ]
        self.samples = [*self.samples[gone:], *fresh]
        self.answers[round_number] = change.order, change.receipt
        self.failures = [*(one for one in self.failures if one.set_aside), *change.failed]

    def compare(self, store: Store, when: str) -> None:
        """Everything that the store says, against what it should."""
        expect = self.trial.expect
        last = max(self.answers, default=0)
        books = store.books()
        found = f"{when}, its books end at round {books.last_round} in place of {last}"
        expect(books.last_round == last, found)
        expect(
            store.stored() == self.stored,
            f"{when}, it holds {store.stored()} in place of {self.stored}",
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
            f"{when}, it notes the failures {noted} in place of {self.failures}",
        )
        for round_number, answer in self.answers.items():
            expect(
                store.answer(round_number) == answer,
                f"{when}, it gives another answer for round {round_number}",
            )

    def reopened(self) -> Store:
        """The store as a new process opens it."""
        return self.open_store(RUN, f"{CLIENT}-{self.trial.law}-{self.seed}", CAPACITY)


def begins_empty(played: Played) -> None:
    """A new store holds nothing, and knows whose it is."""
    books = played.store.books()
    whose = books.run, books.buffer_capacity, books.last_round, books.total_admitted
    played.trial.expect(whose == (RUN, CAPACITY, 0, 0), f"a new store has the books {books}")
    played.trial.expect(bool(books.buffer_id), "a new store has no id")
    played.compare(played.store, "before the first order")


def holds_what_was_committed(played: Played) -> None:
    """Samples, ages, uses, answers and failures are those of the orders, after each of them."""
    for now in range(1, ROUNDS + 1):
        played.commit(now)
        played.compare(played.store, f"after round {now}")


def refuses_a_change_from_old_books(played: Played) -> None:
    """What was worked out before another commit raises ``BooksMovedError`` and changes nothing."""
    played.commit(1)
    stale, _ = played.change(2)
    played.commit(2)
    try:
        played.store.commit(replace(stale, removed=()))
    except BooksMovedError:
        played.compare(played.store, "after a change from old books was refused")
    else:
        played.trial.expect(False, "it took a change that was worked out from old books")


def a_void_round_stays_void(played: Played) -> None:
    """``void`` never goes back, and no order up to it is taken."""
    store = played.store
    store.void(3)
    before = store.books()
    store.void(1)
    found = f"after void(3) and void(1) its books are {store.books()}"
    played.trial.expect(store.books() == before and before.void_round, found)
    change, _ = played.change(2)
    try:
        store.commit(change)
    except BooksMovedError:
        played.compare(store, "after an order of a void round was refused")
    else:
        played.trial.expect(False, "it took an order of round 2 after void(3)")


def is_the_same_in_a_new_process(played: Played) -> None:
    """What was committed is there when the store is opened again, and goes on."""
    played.store.void(1)
    for now in range(2, 8):
        played.commit(now)
        again = played.reopened()
        played.compare(again, f"opened again after round {now}")
        played.trial.expect(
            again.books() == played.store.books(), "opened again, it has other books"
        )
        played.store = again


def keeps_candidates_and_choices(played: Played) -> None:
    """Candidates wait, are chosen, dropped and done with, each when it should be."""
    chosen: list[str] = []
    waiting: list[str] = []
    for now in range(1, 10):
        before = played.store.books()
        fresh = [f"{RUN}/{now}/{place}" for place in range(int(played.draw.integers(0, 6)))]
        pool = [*waiting, *fresh]
        picked = [str(key) for key in played.draw.permutation(pool)[: len(pool) // 2]]
        left = [key for key in pool if key not in picked]
        dropped = left[: len(left) // 3]
        chosen, waiting = [*chosen, *picked], [key for key in left if key not in dropped]
        candidates = len(chosen) + len(waiting)
        after = replace(before, candidates=candidates, chosen_round=now, total_seen=now)
        packed = [Candidate(key, played.store.pack(key)) for key in fresh]
        played.store.choose(Choice(now, before, after, packed, picked, dropped))
        _compare_candidates(played, chosen, waiting, f"after the choice of round {now}")
        change, _ = played.change(now)
        done, chosen = chosen[: now % 3], chosen[now % 3 :]
        books = replace(change.books, candidates=candidates - len(done))
        played.store.commit(replace(change, books=books, done=done, removed=(), admitted=()))
        played.store = played.reopened()
        _compare_candidates(played, chosen, waiting, f"opened again after round {now}")


def refuses_a_choice_from_old_books(played: Played) -> None:
    """What was chosen before another commit raises ``BooksMovedError`` and changes nothing."""
    before = played.store.books()
    after = replace(before, candidates=1, chosen_round=1)
    stale = Choice(1, before, after, [Candidate("k", played.store.pack("k"))], ["k"], [])
    played.commit(1)
    try:
        played.store.choose(stale)
    except BooksMovedError:
        _compare_candidates(played, [], [], "after a choice from old books was refused")
    else:
        played.trial.expect(False, "it took a choice that was made from old books")


def _compare_candidates(played: Played, chosen: list[str], waiting: list[str], when: str) -> None:
    found = played.store.candidates()
    expected = [*((key, True) for key in chosen), *((key, False) for key in waiting)]
    played.trial.expect(
        [(one.key, one.chosen) for one in found] == expected,
        f"{when}, its candidates are {found} in place of {expected}",
    )
    contents = [played.store.unpack(one.packed) for one in found]
    played.trial.expect(
        contents == [key for key, _ in expected], f"{when}, candidates have other contents"
    )


STORE_LAWS: Mapping[str, Law] = {
    law.__name__: law
    for law in (
        begins_empty,
        holds_what_was_committed,
        refuses_a_change_from_old_books,
        a_void_round_stays_void,
        is_the_same_in_a_new_process,
        keeps_candidates_and_choices,
        refuses_a_choice_from_old_books,
    )
}


def check_store(open_store: OpenStore) -> None:
    """Try every law of stores; the first that is broken is a ``LawBrokenError``.

    Args:
        open_store: opens the store of a run, a client and a capacity; asked for the same ones
            again, it gives the same store, as a new process would find it.

    >>> from tidegate.client.memory_store import MemoryStore
    >>> kept = {}
    >>> check_store(lambda *whose: kept.setdefault(whose, MemoryStore(*whose)))
    """
    for name, law in STORE_LAWS.items():
        for seed in range(SEEDS):
            trial = Trial(name, f"random orders of seed {seed}, capacity {CAPACITY}")
            with trial.raises_nothing():
                law(Played(open_store, seed, trial))
