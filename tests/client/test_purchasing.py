"""Samples that come later: slots, money, deliveries, refusals, and a supplier that fails."""

from pathlib import Path
from typing import Any

import pytest
from late_supplier import LateSupplier

from tidegate.client.gate import Gate
from tidegate.client.memory_store import MemoryStore
from tidegate.client.sqlite_store import SqliteStore
from tidegate.client.store import Store
from tidegate.client.streams import IndexedStream
from tidegate.client.supplier import Delivered, Outcome, Refused, Request
from tidegate.errors import ConfigurationError, WireError
from tidegate.wire import NO_LIMIT, Order, Receipt


class ByHand:
    """A supplier whose answers a test gives."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.answers: list[Outcome] = []
        self.cancelled: list[str] = []

    def ask(self, requests: Any) -> None:
        self.asked += [one.key for one in requests]

    def collect(self, keys: Any) -> list[Outcome]:
        return list(self.answers)

    def cancel(self, keys: Any) -> list[Outcome]:
        self.cancelled += keys
        return [Refused(key, refunded=True) for key in keys]

    def complete(self, sample: str, answer: str) -> str:
        return f"{sample}={answer}"


def order(now: int, count: int = NO_LIMIT, price: float = 2.0, **rest: Any) -> Order:
    values: dict[str, Any] = {"retention": "oldest_first", "count": count, **rest}
    return Order(run="run", round_number=now, price=price, **values)


@pytest.fixture(params=["memory", "file"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    if request.param == "memory":
        return MemoryStore("run", "a", 4)
    return SqliteStore(tmp_path / "a.sqlite", "run", "a", 4)


def test_what_is_asked_comes_later_and_counts_from_there(store: Store) -> None:
    supplier = ByHand()
    gate = Gate(store, IndexedStream("abcdefgh"), supplier=supplier)
    first = gate.apply(order(1, 3))
    assert (first.admitted, first.asked, first.spent, first.under_way) == (0, 3, 6.0, 3)
    assert supplier.asked == ["run/a/1", "run/a/2", "run/a/3"]
    supplier.answers = [Delivered("run/a/2", "yes"), Refused("run/a/3", refunded=True)]
    second = gate.apply(order(2, 0))
    assert (second.admitted, second.arrived, second.occupancy) == (1, 1, 1)
    assert (second.under_way, second.under_way_spent) == (1, 2.0)
    assert (second.total_refused, second.total_refunded) == (1, 2.0)
    assert gate.samples() == ["b=yes"]
    assert [one.uses for one in store.stored()] == [1]
    third = gate.apply(order(3, 0))  # the supplier says the same again
    assert (third.admitted, third.total_refunded, third.occupancy) == (0, 2.0, 1)
    assert third.prior_uses == 1


def test_a_purchase_has_its_slot_and_the_old_sample_trains_until_it_comes(store: Store) -> None:
    supplier = ByHand()
    gate = Gate(store, IndexedStream("abcdefgh"), supplier=supplier)
    gate.apply(order(1))
    supplier.answers = [Delivered(key, "1") for key in supplier.asked]
    assert gate.apply(order(2, 0)).occupancy == 4
    supplier.answers = []
    assert gate.apply(order(3, 3)).asked == 3
    assert gate.apply(order(4)).asked == 1  # the fourth slot; three are spoken for
    assert gate.apply(order(5)).asked == 0
    assert gate.samples() == ["a=1", "b=1", "c=1", "d=1"]
    supplier.answers = [Delivered(supplier.asked[-1], "2")]
    assert gate.apply(order(6, 0)).occupancy == 4
    assert gate.samples() == ["b=1", "c=1", "d=1", "h=2"]


def test_a_rule_by_age_replaces_only_what_nothing_is_under_way_for() -> None:
    store, supplier = MemoryStore("run", "a", 4), ByHand()
    gate = Gate(store, IndexedStream("abcdefghij"), supplier=supplier)
    rule = (5.0, 0.0, 1.0, 5.0)
    assert gate.apply(order(1, thresholds=rule)).asked == 4
    supplier.answers = [Delivered(key, "1") for key in supplier.asked]
    assert gate.apply(order(2, thresholds=rule)).asked == 0  # they have just come
    assert gate.apply(order(3, thresholds=rule)).asked == 0
    assert gate.apply(order(4, thresholds=rule)).asked == 0
    assert gate.apply(order(5, thresholds=rule, count=2)).asked == 2  # used three times by now
    assert gate.apply(order(6, thresholds=rule)).asked == 2
    assert gate.apply(order(7, thresholds=rule)).asked == 0


def test_the_supplier_is_asked_again_until_it_has_heard(store: Store) -> None:
    supplier = LateSupplier(1, longest_delay=0, fails_after=1)
    gate = Gate(store, IndexedStream("abcdefgh"), supplier=supplier)
    receipt = gate.apply(order(1, 3))
    assert (receipt.asked, receipt.spent) == (3, 6.0)
    assert [one.asked for one in store.purchases()] == [False] * 3
    assert list(supplier.bill) == ["run/a/1"]
    assert gate.apply(order(1, 3)) == receipt  # the same order again
    assert [one.asked for one in store.purchases()] == [True] * 3
    assert supplier.bill == {"run/a/1": 2.0, "run/a/2": 2.0, "run/a/3": 2.0}


def test_a_receipt_tells_of_a_supplier_that_fails_and_of_the_oldest_purchase(store: Store) -> None:
    supplier = LateSupplier(1, longest_delay=0, fails_after=1)
    gate = Gate(store, IndexedStream("abcdefgh"), supplier=supplier)
    first = gate.apply(order(1, 2))  # it is asked after the receipt is written
    assert (first.oldest_under_way, first.supplier_fails) == (1, False)
    supplier.now = -1
    second = gate.apply(order(2, 1))  # it has not heard of two purchases
    assert (second.oldest_under_way, second.supplier_fails) == (1, True)
    third = gate.apply(order(3, 0))
    assert (third.oldest_under_way, third.supplier_fails) == (1, False)
    supplier.fails_after = 0
    assert gate.apply(order(4, 0)).supplier_fails  # it does not answer
    supplier.now = 9
    last = gate.apply(order(5, 0))
    assert (last.under_way, last.oldest_under_way, last.supplier_fails) == (0, 0, False)
    told = last.to_record()
    with pytest.raises(WireError, match="oldest_under_way must be <= 0, got 3"):
        Receipt.from_record(told | {"oldest_under_way": 3})
    assert Receipt.from_record(told) == last


def test_what_takes_too_long_is_cancelled(store: Store) -> None:
    supplier = ByHand()
    gate = Gate(store, IndexedStream("abcdefgh"), supplier=supplier, give_up_after=2)
    gate.apply(order(1, 2))
    assert gate.apply(order(2, 0)).under_way == 2
    receipt = gate.apply(order(3, 1))
    assert supplier.cancelled == ["run/a/1", "run/a/2"]
    assert (receipt.total_refused, receipt.total_refunded, receipt.under_way) == (2, 4.0, 1)


def test_an_answer_that_cannot_be_used_is_set_aside_after_three_tries(store: Store) -> None:
    class Broken(ByHand):
        def complete(self, sample: str, answer: str) -> str:
            raise ValueError("no such label")

    supplier = Broken()
    gate = Gate(store, IndexedStream("abcdefgh"), supplier=supplier)
    gate.apply(order(1, 1))
    supplier.answers = [Delivered("run/a/1", "?")]
    receipts = [gate.apply(order(now, 0)) for now in (2, 3, 4)]
    assert [one.under_way for one in receipts] == [1, 1, 0]
    assert (receipts[-1].set_aside, receipts[-1].total_refused) == (1, 1)
    (failure,) = store.failures()
    assert failure.set_aside
    assert failure.error == "ValueError: no such label"


def test_purchases_survive_in_a_file(tmp_path: Path) -> None:
    supplier = ByHand()
    first = SqliteStore(tmp_path / "a.sqlite", "run", "a", 4)
    Gate(first, IndexedStream("abcdefgh"), supplier=supplier).apply(order(1, 2))
    first.close()
    second = SqliteStore(tmp_path / "a.sqlite", "run", "a", 4)
    assert [(one.key, one.price, one.round_number, one.asked) for one in second.purchases()] == [
        ("run/a/1", 2.0, 1, True),
        ("run/a/2", 2.0, 1, True),
    ]
    with pytest.raises(ConfigurationError, match="a has 2 samples under way"):
        Gate(second, IndexedStream("abcdefgh")).apply(order(2, 0))
    supplier.answers = [Delivered("run/a/1", "1")]
    gate = Gate(second, IndexedStream("abcdefgh"), supplier=supplier)
    assert gate.apply(order(2, 0)).admitted == 1
    assert b"b" in (tmp_path / "a.sqlite").read_bytes()


def test_what_is_not_an_outcome_is_refused(store: Store) -> None:
    class Wrong(ByHand):
        def collect(self, keys: Any) -> list[Any]:
            return ["run/a/1"]

    gate = Gate(store, IndexedStream("abcd"), supplier=Wrong())
    gate.apply(order(1, 1))
    with pytest.raises(ConfigurationError, match="must return Delivered or Refused"):
        gate.apply(order(2, 0))


def test_a_gate_has_a_hook_or_a_supplier() -> None:
    with pytest.raises(ConfigurationError, match="not both"):
        Gate(
            MemoryStore("run", "a", 4), IndexedStream("abcd"), lambda one, key: one, None, ByHand()
        )


def test_receipts_of_samples_that_come_at_once_say_nothing_of_it() -> None:
    receipt = Gate(MemoryStore("run", "a", 4), IndexedStream("abcd")).apply(order(1, 2))
    assert (receipt.admitted, receipt.bought, receipt.under_way) == (2, 2, 0)
    assert Receipt.from_record(receipt.to_record()) == receipt
    assert Request("k", "a", 1.0).price == 1.0
