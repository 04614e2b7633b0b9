"""The laws of stores: ours obey them, and a store that does not is caught."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tidegate.client.memory_store import MemoryStore
from tidegate.client.sqlite_file import store_path
from tidegate.client.sqlite_store import SqliteStore
from tidegate.client.store import Books, Candidate, Change, Choice, Purchase, StoredSample
from tidegate.testing import STORE_LAWS, LawBrokenError, check_store

Open = Callable[[str, str, int], MemoryStore]


@contextmanager
def files(folder: Path) -> Iterator[Callable[[str, str, int], SqliteStore]]:
    """Opens durable stores, each time anew, and closes all of them in the end."""
    opened: list[SqliteStore] = []

    def open_store(run: str, client: str, capacity: int) -> SqliteStore:
        opened.append(SqliteStore(store_path(folder, run, client), run, client, capacity))
        return opened[-1]

    yield open_store
    for store in opened:
        store.close()


def in_memory(kind: type[MemoryStore]) -> Open:
    """Stores of this process, the same ones when they are asked for again."""
    kept: dict[tuple[str, str, int], MemoryStore] = {}

    def open_store(*whose: Any) -> MemoryStore:
        return kept.setdefault(whose, kind(*whose))

    return open_store


def test_ours_obey(tmp_path: Path) -> None:
    check_store(in_memory(MemoryStore))
    with files(tmp_path) as open_store:
        check_store(open_store)


class LosesTheLast(MemoryStore):
    def commit(self, change: Change) -> None:
        super().commit(replace(change, admitted=change.admitted[:-1]))


class KeepsTheRemoved(MemoryStore):
    def commit(self, change: Change) -> None:
        super().commit(replace(change, removed=()))


class TakesOldBooks(MemoryStore):
    def commit(self, change: Change) -> None:
        super().commit(replace(change, before=self.books()))


class GoesBack(MemoryStore):
    def void(self, round_number: int) -> None:
        self._books = replace(self._books, void_round=round_number)


class CountsNoUses(MemoryStore):
    def stored(self) -> list[StoredSample]:
        return [replace(one, uses=1) for one in super().stored()]


class ForgetsFailures(MemoryStore):
    def commit(self, change: Change) -> None:
        super().commit(change)
        self._failures = list(change.failed)


class HasNoId(MemoryStore):
    def books(self) -> Books:
        books = super().books()
        return replace(books, last_round=max(books.last_round, 1))


class ForgetsTheOrder(MemoryStore):
    def choose(self, choice: Choice) -> None:
        super().choose(replace(choice, chosen=sorted(choice.chosen)))


class KeepsTheDropped(MemoryStore):
    def choose(self, choice: Choice) -> None:
        super().choose(replace(choice, dropped=[]))


class TakesOldChoices(MemoryStore):
    def choose(self, choice: Choice) -> None:
        super().choose(replace(choice, before=self.books()))


class AsksForNothing(MemoryStore):
    def commit(self, change: Change) -> None:
        super().commit(replace(change, asked=change.asked[1:]))


class NeverEnds(MemoryStore):
    def commit(self, change: Change) -> None:
        super().commit(replace(change, ended=()))


class ForgetsWhoWasAsked(MemoryStore):
    def mark_asked(self, keys: Sequence[str]) -> None:
        super().mark_asked(keys[1:])


class MixesContents(MemoryStore):
    def purchased(self, key: str) -> Candidate:
        return super().purchased(self.purchases()[0].key)


class BuysFirst(MemoryStore):
    def commit(self, change: Change) -> None:
        for one in change.asked:  # before the books are compared
            self._purchases[one.key] = Purchase(one.key, change.order.price, 0, 0), one
        super().commit(change)


class KeepsAll(MemoryStore):
    def keep_at_most(self, length: int) -> None:
        super().keep_at_most(10**9)


class DropsAll(MemoryStore):
    def let_go(self) -> None:
        super().keep_at_most(1)
        while self.stored():
            super().let_go()


class CountsNoExpired(MemoryStore):
    def let_go(self) -> None:
        before = self.books().total_expired
        super().let_go()
        self._books = replace(self._books, total_expired=before)


class NamesNames(MemoryStore):
    def whose(self, subject: str) -> str:
        return subject.lower() + subject


class KnowsNobodyApart(MemoryStore):
    def whose(self, subject: str) -> str:
        return "somebody"


class ForgetsItsKey(MemoryStore):
    calls = 0

    def whose(self, subject: str) -> str:
        self.calls += 1
        return f"{self.calls}"


@pytest.mark.parametrize(
    ("open_store", "law", "found"),
    [
        (in_memory(LosesTheLast), "holds_what_was_committed", "it holds"),
        (in_memory(KeepsTheRemoved), "holds_what_was_committed", "it holds"),
        (in_memory(CountsNoUses), "holds_what_was_committed", "it holds"),
        (in_memory(ForgetsFailures), "holds_what_was_committed", "it notes the failures"),
        (in_memory(TakesOldBooks), "refuses_a_change_from_old_books", "computed from old books"),
        (in_memory(GoesBack), "a_void_round_stays_void", "after void(3) and void(1)"),
        (in_memory(HasNoId), "begins_empty", "a new store has the books"),
        (MemoryStore, "is_the_same_in_a_new_process", "opened again"),
        (in_memory(ForgetsTheOrder), "keeps_candidates_and_choices", "its candidates are"),
        (in_memory(KeepsTheDropped), "keeps_candidates_and_choices", "its candidates are"),
        (in_memory(TakesOldChoices), "refuses_a_choice_from_old_books", "made from old books"),
        (in_memory(AsksForNothing), "keeps_purchases_until_they_end", "its purchases are"),
        (in_memory(NeverEnds), "keeps_purchases_until_they_end", "its purchases are"),
        (in_memory(ForgetsWhoWasAsked), "keeps_purchases_until_they_end", "its purchases are"),
        (in_memory(MixesContents), "keeps_purchases_until_they_end", "have other contents"),
        (in_memory(BuysFirst), "refuses_purchases_from_old_books", "was refused, its purchases"),
        (in_memory(KeepsAll), "lets_go_what_is_too_old", "after let_go(), it holds"),
        (in_memory(DropsAll), "lets_go_what_is_too_old", "without a limit, it holds"),
        (in_memory(CountsNoExpired), "lets_go_what_is_too_old", "total_expired grew by 0"),
        (in_memory(NamesNames), "knows_subjects_by_a_hash", "which reveals the name"),
        (in_memory(KnowsNobodyApart), "knows_subjects_by_a_hash", "the same hash"),
        (in_memory(ForgetsItsKey), "knows_subjects_by_a_hash", "has changed"),
    ],
)
def test_a_broken_store_is_caught_by_law_and_input(open_store: Open, law: str, found: str) -> None:
    assert law in STORE_LAWS
    with pytest.raises(LawBrokenError) as broken:
        check_store(open_store)
    assert broken.value.law == law
    assert found in broken.value.found
    assert "random orders of seed 0" in str(broken.value)
