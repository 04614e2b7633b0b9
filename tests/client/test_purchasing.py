"""Samples that come later: the plan, money, deliveries, refusals, and a supplier that fails."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from check_size import at_size
from client_parts import uses_of
from hypothesis import given, settings
from hypothesis import strategies as st
from late_supplier import LateSupplier

from tidegate.buffer import without_oldest
from tidegate.client.gate import Gate
from tidegate.client.store import Store
from tidegate.client.streams import IndexedStream
from tidegate.client.supplier import Delivered, Outcome, Refused
from tidegate.errors import ConfigurationError
from tidegate.server.ledger import Ledger
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
        return Store(None, "run", "a", 4)
    return Store(tmp_path / "a.sqlite", "run", "a", 4)


def test_what_is_asked_comes_later_and_counts_from_there(store: Store) -> None:
    supplier = ByHand()
    gate = Gate(store, IndexedStream("abcdefgh"), supplier=supplier)
    first = gate.apply(order(1, 3))
    assert (first.admitted, first.bought, first.spent, first.under_way) == (0, 3, 6.0, 3)
    assert (first.holding, first.occupancy, first.uses) == ((3,), 0, 0)
    assert supplier.asked == ["run/a/1", "run/a/2", "run/a/3"]
    supplier.answers = [Delivered("run/a/2", "yes"), Refused("run/a/3", refunded=True)]
    second = gate.apply(order(2, 0))
    assert (second.admitted, second.occupancy, second.holding) == (1, 1, (0, 2))
    assert (second.under_way, second.under_way_spent) == (1, 2.0)
    assert (second.refused, second.refunded, second.paid) == (1, 2.0, 4.0)
    assert list(gate.samples()) == ["b=yes"]
    assert uses_of(store) == [1]
    third = gate.apply(order(3, 0))  # the supplier says the same again
    assert (third.admitted, third.refunded, third.occupancy) == (1, 2.0, 1)
    assert (third.uses, third.holding) == (2, (0, 0, 2))


def test_a_purchase_counts_from_its_order_and_the_old_sample_trains_until_it_comes(
    store: Store,
) -> None:
    supplier = ByHand()
    gate = Gate(store, IndexedStream("abcdefghijkl"), supplier=supplier)
    gate.apply(order(1))
    supplier.answers = [Delivered(key, "1") for key in supplier.asked]
    assert gate.apply(order(2, 0)).occupancy == 4
    supplier.answers = []
    third = gate.apply(order(3, 3))
    assert (third.bought, third.under_way, third.holding) == (7, 3, (3, 0, 1))
    assert gate.apply(order(4, 1)).holding == (1, 3)  # the plan has let go all that is stored
    assert list(gate.samples()) == ["a=1", "b=1", "c=1", "d=1"]
    supplier.answers = [Delivered(supplier.asked[-1], "2")]  # the newest, before the others
    receipt = gate.apply(order(5, 0))
    assert (receipt.occupancy, receipt.holding, receipt.under_way) == (4, (0, 1, 3), 3)
    assert list(gate.samples()) == ["b=1", "c=1", "d=1", "h=2"]


def test_what_is_under_way_holds_no_slot(store: Store) -> None:
    """A buffer of four slots has as many purchases under way as were ordered."""
    supplier = ByHand()
    gate = Gate(store, IndexedStream(range(100)), supplier=supplier)
    receipts = [gate.apply(order(now)) for now in range(1, 6)]
    assert [one.under_way for one in receipts] == [4, 8, 12, 16, 20]
    assert {one.holding for one in receipts} == {(4,)}  # replaced in the plan, and still to come
    supplier.answers = [Delivered(key, "1") for key in supplier.asked]
    arrivals = [gate.apply(order(now, 0)) for now in range(6, 12)]
    assert [one.admitted for one in arrivals] == [
        4,
        8,
        12,
        16,
        20,
        20,
    ]  # as many as there are slots
    assert [one.occupancy for one in arrivals] == [4] * 6
    assert list(gate.samples()) == [f"{number}=1" for number in range(16, 20)]


def test_no_more_than_a_limit_is_under_way(store: Store) -> None:
    supplier = ByHand()
    gate = Gate(store, IndexedStream(range(100)), supplier=supplier, most_under_way=6)
    receipts = [gate.apply(order(now)) for now in range(1, 4)]
    assert [one.under_way for one in receipts] == [4, 6, 6]
    assert [one.is_dry for one in receipts] == [False] * 3  # nobody lacked a sample
    supplier.answers = [Delivered(supplier.asked[0], "1")]
    assert gate.apply(order(4)).under_way == 6


def test_a_refusal_brings_back_what_the_purchase_had_replaced_in_the_plan(store: Store) -> None:
    supplier = ByHand()
    gate = Gate(store, IndexedStream("abcdefghij"), supplier=supplier)
    gate.apply(order(1))
    supplier.answers = [Delivered(key, "1") for key in supplier.asked]
    gate.apply(order(2, 0))
    assert gate.apply(order(3, 3)).holding == (3, 0, 1)
    supplier.answers = [Refused(key, refunded=True) for key in supplier.asked[4:6]]
    receipt = gate.apply(order(4, 0))
    assert (receipt.holding, receipt.refused, receipt.refunded) == ((0, 1, 0, 3), 2, 4.0)
    assert list(gate.samples()) == ["a=1", "b=1", "c=1", "d=1"]


def test_the_supplier_is_asked_again_until_it_has_heard(store: Store) -> None:
    supplier = LateSupplier(1, longest_delay=0, fails_after=1)
    gate = Gate(store, IndexedStream("abcdefgh"), supplier=supplier)
    receipt = gate.apply(order(1, 3))
    assert (receipt.bought, receipt.spent) == (3, 6.0)
    assert [one.is_asked for one in store.held("under way")] == [False] * 3
    assert list(supplier.bill) == ["run/a/1"]
    assert gate.apply(order(1, 3)) == receipt  # the same order again
    assert [one.is_asked for one in store.held("under way")] == [True] * 3
    assert supplier.bill == {"run/a/1": 2.0, "run/a/2": 2.0, "run/a/3": 2.0}


def test_a_receipt_tells_of_a_supplier_that_fails_and_of_the_oldest_purchase(store: Store) -> None:
    supplier = LateSupplier(1, longest_delay=0, fails_after=1)
    gate = Gate(store, IndexedStream("abcdefgh"), supplier=supplier)
    first = gate.apply(order(1, 2))  # it is asked after the receipt is written
    assert first.health == {"waiting_since": 1}
    supplier.now = -1
    second = gate.apply(order(2, 1))  # it has not heard of two purchases
    assert second.health == {"waiting_since": 1, "failing_suppliers": 1}
    assert gate.apply(order(3, 0)).health == {"waiting_since": 1}
    supplier.fails_after = 0  # it does not answer
    assert gate.apply(order(4, 0)).health == {"waiting_since": 1, "failing_suppliers": 1}
    supplier.now = 9
    last = gate.apply(order(5, 0))
    assert (last.under_way, last.health) == (0, {})
    assert Receipt.from_record(second.to_record()) == second


def test_what_takes_too_long_is_cancelled(store: Store) -> None:
    supplier = ByHand()
    gate = Gate(store, IndexedStream("abcdefgh"), supplier=supplier, give_up_after=2)
    gate.apply(order(1, 2))
    assert gate.apply(order(2, 0)).under_way == 2
    receipt = gate.apply(order(3, 1))
    assert supplier.cancelled == ["run/a/1", "run/a/2"]
    assert (receipt.refused, receipt.refunded, receipt.under_way) == (2, 4.0, 1)


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
    assert (receipts[-1].health, receipts[-1].refused) == ({"set_aside": 1}, 1)
    (failure,) = store.failures()
    assert failure.set_aside
    assert failure.error == "ValueError: no such label"


def test_purchases_survive_in_a_file(tmp_path: Path) -> None:
    supplier = ByHand()
    first = Store(tmp_path / "a.sqlite", "run", "a", 4)
    Gate(first, IndexedStream("abcdefgh"), supplier=supplier).apply(order(1, 2))
    first.close()
    second = Store(tmp_path / "a.sqlite", "run", "a", 4)
    assert [
        (one.key, one.price, one.bought_round, one.is_asked) for one in second.held("under way")
    ] == [
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
            Store(None, "run", "a", 4), IndexedStream("abcd"), lambda one, key: one, None, ByHand()
        )


class AfterOrders(ByHand):
    """Delivers every sample the same number of orders after it was asked for."""

    def __init__(self, delay: int) -> None:
        super().__init__()
        self.delay, self.now = delay, 0
        self.due: dict[str, int] = {}

    def ask(self, requests: Any) -> None:
        for request in requests:
            self.due.setdefault(request.key, self.now + self.delay)

    def collect(self, keys: Any) -> list[Outcome]:
        return [Delivered(key, "1") for key in keys if self.due[key] <= self.now]

    def complete(self, sample: Any, answer: Any) -> Any:
        return sample


@dataclass
class Planned:
    """The planned buffer by hand: numbers of samples, each with the order that bought it."""

    capacity: int
    samples: list[tuple[int, int]] = field(default_factory=list)
    bought: int = 0

    def apply(self, now: int, order_now: Order) -> None:
        """Let go what is old enough, buy what is wanted, and then let the oldest make room."""
        kept = [(number, at) for number, at in self.samples if now - at < order_now.horizon]
        empty = self.capacity - len(kept)
        wanted = self.capacity if order_now.evicts else empty
        if order_now.thresholds:
            takes = [order_now.price <= threshold for threshold in order_now.thresholds]
            ages = [min(now - at, len(takes) - 1) for _, at in kept]
            wanted = empty * takes[0] + sum(takes[age] for age in ages)
        count = min(order_now.count, wanted)
        bought = [(self.bought + place, now) for place in range(count)]
        self.samples = [*kept, *bought][-self.capacity :]
        self.bought += count

    def holding(self, now: int) -> tuple[int, ...]:
        """By age, from age 1 on; an order makes what it buys one order old."""
        ages = [now - at + 1 for _, at in self.samples]
        return tuple(ages.count(age) for age in range(1, max(ages, default=0) + 1))


prices = st.sampled_from([0.5, 1.0, 2.0, 3.0, 5.0])
thresholds = st.tuples(prices, st.lists(prices, max_size=5).map(sorted)).map(
    lambda rule: (rule[0], *rule[1])
)
counts = st.integers(0, 8)
rules = st.one_of(
    st.fixed_dictionaries({"retention": st.just("k_step"), "retention_horizon": st.integers(1, 6)}),
    st.fixed_dictionaries(
        {"retention": st.just("oldest_first"), "retention_horizon": st.sampled_from([0, 0, 2, 5])}
    ),
    st.fixed_dictionaries(
        {
            "retention": st.just("oldest_first"),
            "retention_horizon": st.sampled_from([0, 0, 2, 5]),
            "thresholds": thresholds,
        }
    ),
)


@settings(max_examples=at_size(100, 3000), deadline=None)
@given(
    rule=rules,
    steps=st.lists(st.tuples(counts, prices), min_size=1, max_size=30),
    capacity=st.integers(1, 6),
    delay=st.integers(0, 7),
)
def test_with_a_constant_delay_the_buffer_holds_what_the_plan_held_before(
    rule: dict[str, Any], steps: list[tuple[int, float]], capacity: int, delay: int
) -> None:
    """And the server believes all of it: a delay costs the first rounds, and nothing else."""
    supplier = AfterOrders(delay)
    buffer = Store(None, "run", "a", capacity)
    gate = Gate(buffer, IndexedStream(range(1000)), supplier=supplier if delay else None)
    ledger, planned = Ledger("run"), Planned(capacity)
    ledger.open("a", capacity, buffer.books().buffer_id)
    plans = [list[int]()] * delay  # of the rounds before the first one
    for now, (count, price) in enumerate(steps, start=1):
        supplier.now = now
        sent = order(now, NO_LIMIT if "thresholds" in rule else count, price, **rule)
        ledger.send("a", sent)
        receipt = gate.apply(sent)
        ledger.book("a", receipt)
        planned.apply(now, sent)
        plans.append([number for number, _ in planned.samples])
        assert list(gate.samples()) == plans[now - 1], "what the plan held so many rounds before"
        assert receipt.bought == planned.bought
        # Beyond the horizon it counts what has left the plan, and still trains or will come.
        in_time = tuple(receipt.holding[: int(min(sent.horizon, len(receipt.holding)))])
        assert without_oldest(in_time, 0) == planned.holding(now)
    assert ledger.account("a").missing == ()
