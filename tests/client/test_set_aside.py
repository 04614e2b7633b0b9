"""A sample that cannot be used is set aside, and only that: an outage costs none."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from check_size import at_size
from client_parts import Opener, Sick, opener
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tidegate.client.buying import TRIES
from tidegate.client.gate import Gate
from tidegate.client.store import KEPT_FAILURES, FailedSample, Store
from tidegate.client.streams import FolderStream, IndexedStream
from tidegate.wire import MOST_IN_A_ROW, Order, Receipt

RUN = "run-1"
CAPACITY = 1000


def order(now: int, count: int) -> Order:
    return Order(run=RUN, round_number=now, price=2.0, retention="oldest_first", count=count)


@pytest.fixture(params=["memory", "sqlite"])
def open_store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Opener]:
    yield from opener(request.param, tmp_path, RUN, CAPACITY)


@dataclass
class Supplier:
    """Sells all but some; nothing while it is down."""

    sells_not: set[int] = field(default_factory=set)
    is_down: bool = False
    asked: list[int] = field(default_factory=list)

    def __call__(self, sample: int, key: str) -> int:
        assert key == f"{RUN}/site/{sample + 1}"
        self.asked.append(sample)
        if self.is_down or sample in self.sells_not:
            raise ConnectionError("no answer")
        return sample


def apply(
    open_store: Opener, now: int, count: int, data: Any = range(1000), acquire: Any = None
) -> Receipt:
    """An order, by a new process."""
    return Gate(open_store(), IndexedStream(data), acquire).apply(order(now, count))


def test_a_sample_that_cannot_be_read_is_set_aside_in_the_same_order(
    open_store: Opener, caplog: pytest.LogCaptureFixture
) -> None:
    receipt = apply(open_store, 1, 5, Sick(1000, {2}))
    assert (receipt.admitted, receipt.spent, receipt.is_dry) == (5, 10.0, False)
    assert receipt.health == {"set_aside": 1}
    assert list(open_store().samples()) == [0, 1, 3, 4, 5]
    assert open_store().failures() == [
        FailedSample("run-1/site/3", TRIES, "OSError: cannot read 2", set_aside=True)
    ]
    assert "'run-1/site/3' is set aside after 3 tries: 'OSError: cannot read 2'" in caplog.text
    later = Sick(1000, {2})
    assert apply(open_store, 2, 2, later).health == {"set_aside": 1}
    assert later.reads == [6, 7]


def test_a_sample_that_cannot_be_stored_is_set_aside_in_the_same_order(open_store: Opener) -> None:
    receipt = apply(open_store, 1, 3, [0, {1, 2}, 2, 3])
    assert (receipt.admitted, receipt.health) == (3, {"set_aside": 1})
    assert list(open_store().samples()) == [0, 2, 3]
    assert "a set would not come back" in open_store().failures()[0].error


def test_a_sample_that_nobody_sells_is_set_aside_after_three_orders(open_store: Opener) -> None:
    supplier = Supplier(sells_not={3})
    receipts = [apply(open_store, now, 5, acquire=supplier) for now in range(1, 5)]
    assert [one.admitted for one in receipts] == [3, 3, 8, 13]
    assert [one.is_dry for one in receipts] == [True, True, False, False]
    assert [one.health.get("set_aside", 0) for one in receipts] == [0, 0, 1, 1]
    assert receipts[-1].spent == 2.0 * 13
    assert supplier.asked.count(3) == TRIES
    assert list(open_store().samples()) == [0, 1, 2, *range(4, 14)]
    assert all(supplier.asked.count(sample) == 1 for sample in open_store().samples())


def test_the_same_order_again_counts_no_try(open_store: Opener) -> None:
    supplier = Supplier(sells_not={0})
    for _ in range(5):
        assert apply(open_store, 1, 2, acquire=supplier).admitted == 0
    assert supplier.asked == [0]
    assert open_store().failures() == [
        FailedSample("run-1/site/1", 1, "ConnectionError: no answer")
    ]


def test_an_outage_of_the_supplier_costs_no_sample(open_store: Opener) -> None:
    supplier = Supplier(is_down=True)
    for now in range(1, 31):
        receipt = apply(open_store, now, 5, acquire=supplier)
        assert (receipt.admitted, receipt.health, receipt.is_dry) == (0, {}, True)
    supplier.is_down = False
    assert apply(open_store, 31, 5, acquire=supplier).admitted == 5
    apply(open_store, 32, 50, acquire=supplier)
    assert list(open_store().samples()) == list(range(55))
    assert open_store().failures() == []


def test_a_source_that_is_gone_costs_no_sample(
    open_store: Opener, caplog: pytest.LogCaptureFixture
) -> None:
    for now in range(1, 6):
        gone = Sick(1000, set(range(1000)))
        receipt = apply(open_store, now, 5, gone)
        assert (receipt.admitted, receipt.health, receipt.is_dry) == (0, {}, True)
        assert len(gone.reads) <= TRIES * MOST_IN_A_ROW
    assert "20 samples in a row of run-1/site fail" in caplog.text
    assert apply(open_store, 6, 30).admitted == 30
    assert list(open_store().samples()) == list(range(30))
    assert open_store().failures() == []


def test_the_last_sample_waits_for_one_after_it(open_store: Opener) -> None:
    for now in range(1, 6):
        assert apply(open_store, now, 3, Sick(3, {2})).health == {}
    receipt = apply(open_store, 6, 1, Sick(4, {2}))
    assert (receipt.admitted, receipt.health) == (3, {"set_aside": 1})
    assert list(open_store().samples()) == [0, 1, 3]


def test_a_file_that_leaves_before_it_is_read_is_not_noted(
    open_store: Opener, tmp_path: Path
) -> None:
    folder = tmp_path / "files"
    folder.mkdir()
    for name in "123":
        (folder / name).write_bytes(name.encode())
    one = Gate(open_store(), FolderStream(folder))
    one.apply(order(1, 1))
    (folder / "2").unlink()
    receipt = one.apply(order(2, 1))
    assert (receipt.admitted, receipt.health) == (2, {})
    assert list(one.samples()) == [b"1", b"3"]
    assert open_store().failures() == []


def test_the_newest_errors_are_kept_and_all_are_counted(open_store: Opener) -> None:
    number = KEPT_FAILURES + 7
    data = Sick(2 * number, set(range(0, 2 * number, 2)))
    for now in (1, 2):
        receipt = apply(open_store, now, number - 500 * (2 - now), data)
    assert receipt.health == {"set_aside": number}
    failures = open_store().failures()
    assert len(failures) == KEPT_FAILURES
    assert failures[-1].key == f"run-1/site/{2 * number - 1}"


steps = st.lists(
    st.tuples(st.integers(0, 12), st.sampled_from(["up", "up", "down", "unmounted"])),
    min_size=1,
    max_size=20,
)


@settings(
    max_examples=at_size(30, 200),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(
    steps=steps,
    unreadable=st.sets(st.integers(0, 40), max_size=10),
    unsold=st.sets(st.integers(0, 40), max_size=10),
    durable=st.booleans(),
)
def test_every_sample_is_admitted_once_or_at_fault(
    steps: list[tuple[int, str]],
    unreadable: set[int],
    unsold: set[int],
    durable: bool,
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    path = tmp_path_factory.mktemp("buffer") / "buffer.sqlite"
    memory = Store(None, RUN, "site", CAPACITY)
    supplier = Supplier(sells_not=unsold)
    for now, (count, state) in enumerate(steps, start=1):
        store: Any = Store(path, RUN, "site", CAPACITY) if durable else memory
        supplier.is_down = state == "down"
        data = Sick(60, set(range(60)) if state == "unmounted" else unreadable)
        receipt = Gate(store, IndexedStream(data), supplier).apply(order(now, count))
        samples, books, failures = list(store.samples()), store.books(), store.failures()
        if durable:
            store.close()
        aside = {int(one.key.rsplit("/", 1)[1]) - 1 for one in failures if one.set_aside}
        assert len(aside) == books.set_aside == receipt.health.get("set_aside", 0)
        assert aside <= unreadable | unsold, "a sample that is not at fault was set aside"
        assert sorted({*samples, *aside}) == list(range(int(books.cursor or 0))), "one was lost"
        assert len(samples) == books.admitted == len(set(samples))
        assert receipt.spent == 2.0 * len(samples)
