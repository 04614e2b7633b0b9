"""A gate that chooses among candidates, on both stores; SQLite is opened anew for every order."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from client_parts import Opener, Sick, contents_of, opener

from tidegate.client.buying import TRIES
from tidegate.client.gate import Gate
from tidegate.client.samples import Samples
from tidegate.client.store import BooksMovedError, Store
from tidegate.client.streams import IndexedStream
from tidegate.errors import ConfigurationError
from tidegate.selection import Selection
from tidegate.wire import Address, Order, Receipt

RUN = "run-1"
FEW = Selection(candidates=5, backlog=4, random_share=0)


@pytest.fixture(params=["memory", "sqlite"])
def open_store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Opener]:
    yield from opener(request.param, tmp_path, RUN, 10)


def order(now: int, count: int = 0) -> Order:
    return Order(run=RUN, round_number=now, price=2.0, retention_horizon=9, count=count)


def as_they_are(candidates: Sequence[Any]) -> list[float]:
    """The greatest number is worth most."""
    return [float(one) for one in candidates]


def smallest(candidates: Sequence[Any]) -> list[float]:
    return [-float(one) for one in candidates]


class Supplier:
    """Knows what it was asked for, and fails as it is told to."""

    def __init__(self) -> None:
        self.asked: list[int] = []
        self.fails_with: BaseException | None = None
        self.fails_at: Sequence[int] = ()

    def __call__(self, sample: int, _: str) -> int:
        self.asked.append(sample)
        if self.fails_with is not None:
            raise self.fails_with
        if sample in self.fails_at:
            raise LookupError(f"nobody knows {sample}")
        return sample


class Killed(BaseException):
    """The process is gone."""


def apply(
    open_store: Opener,
    one: Order,
    worth: Any = as_they_are,
    *,
    data: Any = range(1000),
    acquire: Any = None,
    selection: Selection | None = FEW,
    address: Address | None = None,
) -> Receipt:
    return Gate(open_store(), IndexedStream(data), acquire, selection).apply(one, address, worth)


def waiting(open_store: Opener) -> list[Any]:
    store = open_store()
    return contents_of(store, "candidate")


def chosen(open_store: Opener) -> list[Any]:
    store = open_store()
    return contents_of(store, "chosen")


def test_the_best_candidates_are_bought_and_the_newest_others_wait(open_store: Opener) -> None:
    receipt = apply(open_store, order(1, 2))
    assert (receipt.admitted, receipt.spent, receipt.read) == (2, 4.0, 5)
    assert list(open_store().samples()) == [4, 3]
    assert waiting(open_store) == [0, 1, 2]
    receipt = apply(open_store, order(2, 1), smallest)
    assert (receipt.read, receipt.admitted) == (10, 3)
    assert list(open_store().samples()) == [4, 3, 0]
    assert waiting(open_store) == [6, 7, 8, 9]  # 1, 2 and 5 were pushed out


def test_what_came_since_the_last_purchase_waits(open_store: Opener) -> None:
    for now in range(1, 4):
        assert apply(open_store, order(now), worth=None).admitted == 0
    assert waiting(open_store) == [11, 12, 13, 14]
    apply(open_store, order(4, 3), smallest)
    assert list(open_store().samples()) == [11, 12, 13]


def test_a_ranking_sees_all_candidates_in_one_call(open_store: Opener) -> None:
    calls: list[list[int]] = []

    def worth(candidates: Sequence[int]) -> list[float]:
        calls.append(sorted(candidates))
        return as_they_are(candidates)

    many = Selection(candidates=300, backlog=1000, random_share=0)
    for now in (1, 2, 3):
        apply(open_store, order(now, count=1 if now == 3 else 0), worth, selection=many)
    assert calls == [list(range(900))]


def test_a_ranking_may_cover_what_is_not_stored_yet(open_store: Opener) -> None:
    def uncovered(candidates: Samples) -> list[float]:
        stored = list(candidates.stored or [])
        return [min((abs(one - other) for other in stored), default=0.0) for one in candidates]

    for number in range(1, 4):
        gate = Gate(
            open_store(), IndexedStream([0, 1, 2, 50, 3, 99]), selection=Selection(6, 6, 0.0)
        )
        gate.apply(order(number, 1), worth=uncovered)
    first, *covers = gate.samples()
    assert covers == sorted({0, 99, 50} - {first}, key=lambda one: -abs(one - first))[:2]


def test_without_a_backlog_nothing_waits_and_nothing_is_read_for_nothing(
    open_store: Opener,
) -> None:
    once = Selection(candidates=5, backlog=0, random_share=0)
    assert apply(open_store, order(1), selection=once).read == 0
    assert apply(open_store, order(2, 1), selection=once).read == 5
    assert list(open_store().samples()) == [4]
    assert waiting(open_store) == []


def test_an_order_for_more_than_the_candidates_is_filled(open_store: Opener) -> None:
    receipt = apply(open_store, order(1, 8))
    assert (receipt.admitted, receipt.read, receipt.is_dry) == (8, 8, False)
    assert sorted(open_store().samples()) == list(range(8))


def test_a_dry_stream_leaves_what_waits(open_store: Opener) -> None:
    apply(open_store, order(1, 1), data=range(4))
    receipt = apply(open_store, order(2, 2), data=range(4))
    assert (receipt.admitted, receipt.is_dry) == (3, False)
    receipt = apply(open_store, order(3, 2), data=range(4))
    assert (receipt.admitted, receipt.is_dry, receipt.read) == (4, True, 4)
    assert list(open_store().samples()) == [3, 2, 1, 0]


def test_another_process_that_has_paid_meanwhile_is_noticed_before_paying_again(
    tmp_path: Path,
) -> None:
    first, second = (Store(tmp_path / "a.sqlite", RUN, "site", 10) for _ in range(2))
    supplier = Supplier()

    def interrupted(candidates: Sequence[Any]) -> list[float]:
        """While one process ranks, the other chooses, pays and commits."""
        Gate(second, IndexedStream(range(1000)), supplier, FEW).apply(order(1, 2), None, smallest)
        return as_they_are(candidates)

    slow = Gate(first, IndexedStream(range(1000)), supplier, FEW)
    with pytest.raises(BooksMovedError):
        slow.apply(order(1, 2), None, interrupted)
    assert supplier.asked == [0, 1]
    assert slow.apply(order(1, 2), None, as_they_are).admitted == 2
    assert supplier.asked == [0, 1]
    assert list(first.samples()) == [0, 1]
    first.close()
    second.close()


@pytest.mark.parametrize("again", [1, 2], ids=["the same order", "another order"])
def test_a_choice_survives_the_process_whatever_the_ranking_says_then(
    open_store: Opener, again: int
) -> None:
    supplier = Supplier()
    supplier.fails_with = Killed()
    with pytest.raises(Killed):
        apply(open_store, order(1, 3), acquire=supplier)
    assert (supplier.asked, chosen(open_store)) == ([4], [4, 3, 2])
    supplier.fails_with = None
    receipt = apply(open_store, order(again, 3), smallest, acquire=supplier)
    assert receipt.admitted == 3
    assert supplier.asked == [4, 4, 3, 2]
    assert list(open_store().samples()) == [4, 3, 2]
    assert receipt.read == 5 * again
    assert chosen(open_store) == []


def test_what_may_have_been_paid_for_comes_first_when_less_is_wanted(open_store: Opener) -> None:
    supplier = Supplier()
    supplier.fails_with = Killed()
    with pytest.raises(Killed):
        apply(open_store, order(1, 3), acquire=supplier)
    supplier.fails_with = None
    apply(open_store, order(2, 1), smallest, acquire=supplier)
    assert (list(open_store().samples()), chosen(open_store)) == ([4], [3, 2])
    apply(open_store, order(3), smallest, acquire=supplier)
    assert chosen(open_store) == [3, 2]
    apply(open_store, order(4, 3), smallest, acquire=supplier)
    assert list(open_store().samples())[:3] == [4, 3, 2]
    assert len(open_store().samples()) == 4


def test_a_candidate_that_cannot_be_had_is_set_aside_for_another(open_store: Opener) -> None:
    supplier = Supplier()
    supplier.fails_at = [4]
    for now in range(1, TRIES):
        receipt = apply(open_store, order(now, 1), acquire=supplier)
        assert (receipt.admitted, receipt.is_dry, receipt.health) == (0, True, {})
        assert chosen(open_store) == [4]
    # It has failed often enough that another is chosen beside it.
    apply(open_store, order(TRIES, 1), acquire=supplier)
    receipt = apply(open_store, order(TRIES + 1, 1), acquire=supplier)
    assert (receipt.admitted, receipt.health) == (1, {"set_aside": 1})
    assert [one.key for one in open_store().failures()] == ["run-1/site/5"]
    assert chosen(open_store) == []
    assert 4 not in open_store().samples()


def test_a_supplier_that_is_away_costs_no_candidate(open_store: Opener) -> None:
    supplier = Supplier()
    supplier.fails_with = ConnectionError("away")
    for now in range(1, 30):
        assert apply(open_store, order(now, 2), acquire=supplier).health == {}
    supplier.fails_with = None
    receipt = apply(open_store, order(30, 2), acquire=supplier)
    assert receipt.admitted == 2
    assert list(open_store().samples()) == [4, 3]


def test_what_cannot_be_read_is_set_aside_and_counted_as_seen(open_store: Opener) -> None:
    data = Sick(100, unreadable=[1, 3])
    receipt = apply(open_store, order(1, 1), data=data)
    assert (receipt.health, receipt.read) == ({"set_aside": 2}, 7)
    assert list(open_store().samples()) == [6]
    assert waiting(open_store) == [0, 2, 4, 5]


def test_numbers_that_are_none_are_worth_least(open_store: Opener) -> None:
    def diverged(candidates: Sequence[Any]) -> list[float]:
        return [1.0 if one == 2 else float("nan") for one in candidates]

    apply(open_store, order(1, 1), diverged)
    assert list(open_store().samples()) == [2]


def test_a_ranking_that_fails_changes_nothing(open_store: Opener) -> None:
    before = open_store().books()
    with pytest.raises(ConfigurationError, match="worth returned 1 numbers for 5 candidates"):
        apply(open_store, order(1, 1), lambda _: [1.0])
    with pytest.raises(ZeroDivisionError):
        apply(open_store, order(1, 1), lambda _: [1 / 0])
    assert open_store().books() == before
    assert apply(open_store, order(1, 1)).read == 5


def test_without_a_ranking_candidates_are_drawn_by_client_and_round(open_store: Opener) -> None:
    wide = Selection(candidates=50, backlog=0)
    apply(open_store, order(1, 5), worth=None, selection=wide)
    drawn = list(open_store().samples())
    assert drawn != sorted(drawn)
    assert max(drawn) > 10
    expected = wide.choose([0.0] * 50, 5, ("site", 1))
    assert drawn == expected


def test_a_gate_that_no_longer_chooses_takes_what_was_chosen_first(open_store: Opener) -> None:
    supplier = Supplier()
    supplier.fails_with = Killed()
    with pytest.raises(Killed):
        apply(open_store, order(1, 2), acquire=supplier)
    supplier.fails_with = None
    receipt = apply(open_store, order(2, 3), acquire=supplier, selection=None)
    assert (receipt.read, list(open_store().samples())) == (5, [4, 3, 0])
    receipt = apply(open_store, order(3, 3), acquire=supplier, selection=None)
    assert (receipt.read, list(open_store().samples())[3:]) == (6, [1, 2, 5])
    assert (waiting(open_store), chosen(open_store)) == ([], [])
    receipt = apply(open_store, order(4, 2), acquire=supplier, selection=None)
    assert (receipt.read, list(open_store().samples())[6:]) == (8, [6, 7])


def test_a_gate_that_begins_to_choose_goes_on_in_its_stream(open_store: Opener) -> None:
    assert apply(open_store, order(1, 3), selection=None).read == 3
    receipt = apply(open_store, order(2, 1))
    assert (receipt.read, list(open_store().samples())) == (8, [0, 1, 2, 7])


def test_the_backlog_never_exceeds_its_limit_even_when_it_shrinks(open_store: Opener) -> None:
    for now in range(1, 9):
        apply(open_store, order(now, now % 3), selection=Selection(7, 20))
        assert len(waiting(open_store)) <= 20
    apply(open_store, order(9), selection=Selection(2, 3))
    assert len(waiting(open_store)) == 3


def test_candidates_that_were_pushed_out_are_overwritten(tmp_path: Path) -> None:
    path = tmp_path / "buffer.sqlite"
    store = Store(path, RUN, "site", 10)
    gate = Gate(store, IndexedStream([f"secret-{n:03}" for n in range(99)]), selection=FEW)
    for now in range(1, 9):
        gate.apply(order(now, now % 2))
    kept = {*contents_of(store, "candidate", "chosen"), *list(store.samples())}
    store.close()
    files = b"".join(one.read_bytes() for one in tmp_path.iterdir())
    found = {f"secret-{n:03}" for n in range(99) if f"secret-{n:03}".encode() in files}
    assert found == kept
