"""The laws of a store: what an order changes happens entirely or not at all, and stays."""

from collections.abc import Callable, Mapping
from dataclasses import replace

from tidegate.client.store import BooksMovedError, Candidate, Choice
from tidegate.testing.law import Trial
from tidegate.testing.played_store import CAPACITY, RUN, OpenStore, Played
from tidegate.testing.purchase_laws import (
    keeps_purchases_until_they_end,
    refuses_purchases_from_old_books,
)
from tidegate.testing.retention_laws import knows_subjects_by_a_hash, lets_go_what_is_too_old

ROUNDS = 25
SEEDS = 4

Law = Callable[[Played], None]


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
        played.trial.expect(False, "it accepted a change that was computed from old books")


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
        played.trial.expect(False, "it accepted an order of round 2 after void(3)")


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
        played.trial.expect(False, "it accepted a choice that was made from old books")


def _compare_candidates(played: Played, chosen: list[str], waiting: list[str], when: str) -> None:
    found = played.store.candidates()
    expected = [*((key, True) for key in chosen), *((key, False) for key in waiting)]
    played.trial.expect(
        [(one.key, one.chosen) for one in found] == expected,
        f"{when}, its candidates are {found}, not {expected}",
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
        keeps_purchases_until_they_end,
        refuses_purchases_from_old_books,
        lets_go_what_is_too_old,
        knows_subjects_by_a_hash,
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
