"""A run that begins with what an earlier run of the same client paid for."""

import sqlite3
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from tidegate.client.auditing import audit_file
from tidegate.client.beginning import earlier_samples
from tidegate.client.gate import Gate
from tidegate.client.store import Earlier, Store
from tidegate.client.streams import IndexedStream
from tidegate.errors import ConfigurationError, DamagedFileError
from tidegate.wire import Order

CAPACITY = 5
DATA = range(60)


class Run:
    """One client in one run, in a folder; each order is applied by a new process."""

    def __init__(self, folder: Path, name: str, *, keeps: bool = True, begin: str | Path | None):
        self.folder, self.name, self.keeps, self.begin = folder, name, keeps, begin
        self.paid = list[int]()
        self.uses = Counter[int]()
        folder.mkdir(exist_ok=True)

    def store(self, capacity: int = CAPACITY) -> Store:
        def earlier() -> Iterator[Earlier]:
            return earlier_samples(self.begin, self.folder, self.name, "site")

        whose = self.folder / f"{self.name}.sqlite", self.name, "site", capacity
        return Store(*whose, begin_with=earlier, keeps_bought=self.keeps)

    def acquire(self, sample: int, _: str) -> int:
        self.paid.append(sample)
        return sample

    def play(self, number: int, count: int) -> None:
        with self.store() as store:
            gate = Gate(
                *(store, IndexedStream(DATA), self.acquire),
                keep_bought=self.keeps,
                subject=lambda sample: f"person {sample % 3}",
            )
            order = Order(
                run=self.name, round_number=number, price=1.0, retention="oldest_first", count=count
            )
            receipt = gate.apply(order)
            self.uses.update(gate.samples())
            assert receipt.uses == sum(self.uses[sample] for sample in gate.samples())


def test_a_run_begins_with_what_was_paid_for_and_never_pays_for_it_again(tmp_path: Path) -> None:
    first = Run(tmp_path, "first", begin=None)
    for number in range(1, 5):
        first.play(number, 3)
    second = Run(tmp_path, "second", begin="newest")
    second.uses.update(first.uses)
    with second.store() as store:
        assert sorted(store.samples()) == first.paid[-CAPACITY:]
        assert store.count("kept") == len(first.paid) - CAPACITY
        assert (store.books().spent, store.books().begun) == (0.0, "[3, 2]")
    for number in range(1, 8):
        second.play(number, 2)
    assert not set(first.paid) & set(second.paid)
    assert len(second.paid) == 14
    (audit,) = audit_file(tmp_path / "second.sqlite")
    assert audit.is_right, audit.problems
    assert audit.sums.counts["begun"] == CAPACITY


def test_what_does_not_fit_stays_behind_unless_it_is_kept(tmp_path: Path) -> None:
    first = Run(tmp_path, "first", begin=None)
    for number in range(1, 5):
        first.play(number, 3)
    with Run(tmp_path, "second", begin="first", keeps=False).store(3) as store:
        assert sorted(store.samples()) == first.paid[-3:]
        assert store.count("kept") == 0


def test_forgotten_people_do_not_come_along(tmp_path: Path) -> None:
    first = Run(tmp_path / "first", "first", begin=None)
    first.play(1, 5)
    with first.store() as store:
        assert store.file.forgotten is not None
        store.file.forgotten.add("person 1")
    second = Run(tmp_path / "second", "second", begin=tmp_path / "first")
    with second.store() as store:
        assert sorted(store.samples()) == [0, 2, 3]
        assert store.file.forgotten is not None
        store.file.forgotten.add("person 2")  # of whom the first run knows
        store.let_go()
        assert sorted(store.samples()) == [0, 3]
    second.play(1, 5)
    assert all(sample % 3 == 0 for sample in second.paid)


def test_a_run_that_nobody_knows_is_named_and_the_first_begins_empty(tmp_path: Path) -> None:
    Run(tmp_path, "first", begin=None).play(1, 1)
    with pytest.raises(ConfigurationError, match=r"no buffer of 'site' .* there are: 'first'"):
        Run(tmp_path, "second", begin="zero").store()
    empty = Run(tmp_path / "empty", "second", begin="newest")
    with empty.store() as store:
        assert store.books().begun == "[]"


def test_folders_with_keys_of_their_own_do_not_mix(tmp_path: Path) -> None:
    Run(tmp_path / "first", "first", begin=None).play(1, 2)
    Run(tmp_path / "other", "other", begin=None).play(1, 2)
    with pytest.raises(ConfigurationError, match="has another key"):
        Run(tmp_path / "other", "second", begin=tmp_path / "first").store()


def test_whoever_the_new_folder_has_forgotten_does_not_come_along(tmp_path: Path) -> None:
    first = Run(tmp_path / "old", "first", begin=None)
    first.play(1, 5)
    new = Run(tmp_path / "new", "second", begin=tmp_path / "old")
    with new.store() as store:
        assert store.file.forgotten is not None
        store.file.forgotten.add("person 1")
    third = Run(tmp_path / "new", "third", begin=tmp_path / "old")
    with third.store() as store:
        assert sorted(store.samples()) == [0, 2, 3]
    third.uses.update(first.uses)
    third.play(1, 1)
    (audit,) = audit_file(tmp_path / "new" / "third.sqlite")
    assert audit.is_right, audit.problems


def test_a_folder_that_has_lost_its_key_is_refused(tmp_path: Path) -> None:
    Run(tmp_path / "old", "first", begin=None).play(1, 5)
    (tmp_path / "old" / "forgotten.json").unlink()
    with pytest.raises(DamagedFileError, match=r"forgotten\.json is missing"):
        Run(tmp_path / "new", "second", begin=tmp_path / "old").store()


def test_a_damaged_or_unreadable_earlier_buffer_is_named(tmp_path: Path) -> None:
    Run(tmp_path, "first", begin=None).play(1, 5)
    with pytest.raises(ConfigurationError, match="which its codec does not read"):
        Store(
            *(tmp_path / "second.sqlite", "second", "site", CAPACITY, Numbers()),
            begin_with=lambda: earlier_samples("newest", tmp_path, "second", "site"),
        )
    (tmp_path / "first.sqlite").write_bytes(b"damaged")
    with pytest.raises(DamagedFileError, match=r"first\.sqlite"):
        Run(tmp_path, "third", begin="newest").store()


class Numbers:
    """A codec of digits."""

    def encode(self, sample: int) -> bytes:
        return str(sample).encode()

    def decode(self, data: bytes) -> int:
        return int(data)


def test_what_an_earlier_limit_has_ended_does_not_train_again(tmp_path: Path) -> None:
    first = Run(tmp_path, "first", begin=None)
    first.play(1, 5)
    with Store(tmp_path / "first.sqlite", "first", "site", CAPACITY, clock=lambda: 0.0) as store:
        store.keep_at_most(1)
    with sqlite3.connect(tmp_path / "first.sqlite") as file:
        file.execute("UPDATE samples SET held_at = 1")
    file.close()
    with Run(tmp_path, "second", begin="first").store() as store:
        assert list(store.samples()) == []


def test_a_large_beginning_is_passed_over_and_no_dry_stream(tmp_path: Path) -> None:
    path, many = tmp_path / "first.sqlite", 1500
    with Store(path, "first", "site", many) as store:
        Gate(store, IndexedStream(range(2000))).apply(
            Order(run="first", round_number=1, price=1.0, retention="oldest_first", count=many)
        )
    with Store(
        *(tmp_path / "second.sqlite", "second", "site", many),
        begin_with=lambda: earlier_samples("first", tmp_path, "second", "site"),
    ) as store:
        gate = Gate(store, IndexedStream(range(2000)))
        receipts = [
            gate.apply(
                Order(run="second", round_number=n, price=1.0, retention="oldest_first", count=7)
            )
            for n in (1, 2)
        ]
    assert [receipt.bought for receipt in receipts] == [0, 7]
    assert not any(receipt.is_dry for receipt in receipts)
