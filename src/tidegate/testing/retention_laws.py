"""The laws of a store for samples that may not be kept, and for whose they are."""

import time

from tidegate.testing.played_store import Played

ROUNDS = 4
SHORT = 1
"""Milliseconds; everything is soon older."""
PATIENCE = 2.0
"""Seconds that a store has for deleting what is older."""
SUBJECTS = ("Ada Lovelace", "patient 7", "patient 71")


def lets_go_what_is_too_old(played: Played) -> None:
    """What was held for too long is gone after ``let_go``, and counted."""
    store = played.store
    for now in range(1, ROUNDS + 1):
        played.commit(now)
    store.let_go()
    played.compare(store, "after let_go() without a limit")
    lost, before = len(played.stored), store.books().total_expired
    store.keep_at_most(SHORT)
    deadline = time.monotonic() + PATIENCE
    while store.stored() and time.monotonic() < deadline:
        store.let_go()
    for one, when in (
        (store, "after let_go()"),
        (played.reopened(), "opened again after let_go()"),
    ):
        held = one.stored(), one.samples()
        played.trial.expect(held == ([], []), f"{when}, it holds {held[0]}")
        expired = one.books().total_expired - before
        played.trial.expect(expired == lost, f"{when}, total_expired grew by {expired}, not {lost}")
    store.keep_at_most(0)
    played.stored, played.samples = [], []
    played.commit(ROUNDS + 1)
    after, wanted = store.stored(), played.stored
    played.trial.expect(after == wanted, f"after the next order it holds {after}, not {wanted}")


def knows_subjects_by_a_hash(played: Played) -> None:
    """``whose`` never gives a name away, and gives the same for it in a new process."""
    for subject in SUBJECTS:
        known, again = played.store.whose(subject), played.reopened().whose(subject)
        played.trial.expect(known == again, f"opened again, whose({subject!r}) has changed")
        named = f"whose({subject!r}) is {known!r}, which reveals the name"
        played.trial.expect(not known or subject not in known, named)
    told = [known for one in SUBJECTS if (known := played.store.whose(one))]
    found = f"it returns the same hash for several of {SUBJECTS}"
    played.trial.expect(len(set(told)) == len(told), found)
