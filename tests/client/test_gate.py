"""One suite for both stores; the durable one is also closed and opened between rounds."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from check_size import at_size
from client_parts import Opener, opener, uses_of
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tidegate.client import buying
from tidegate.client.gate import Gate
from tidegate.client.store import BooksMovedError, Change, Store
from tidegate.client.streams import IndexedStream
from tidegate.client.sweeping import sweep
from tidegate.errors import WireError
from tidegate.selection import Selection
from tidegate.wire import NO_LIMIT, Order, Receipt

RUN = "run-1"


def order(now: int, count: int = 0, **changes: Any) -> Order:
    values: dict[str, Any] = {
        "run": RUN,
        "round_number": now,
        "price": 2.0,
        "retention_horizon": 3,
        "count": count,
    }
    return Order(**{**values, **changes})


@pytest.fixture(params=["memory", "sqlite"])
def open_store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Opener]:
    yield from opener(request.param, tmp_path, RUN, 10)


def gate(open_store: Opener, size: int = 1000, acquire: Any = None) -> Gate:
    return Gate(open_store(), IndexedStream(list(range(size))), acquire)


def test_samples_stay_k_rounds_and_their_uses_are_counted(open_store: Opener) -> None:
    orders = [order(now, count) for now, count in enumerate([2, 1, 3, 0], start=1)]
    receipts = [gate(open_store).apply(one) for one in orders]
    assert [one.occupancy for one in receipts] == [2, 3, 6, 4]
    assert [one.uses for one in receipts] == [2, 5, 11, 9]
    assert [one.holding for one in receipts] == [(2,), (1, 2), (3, 1, 2), (0, 3, 1)]
    assert [one.expiring for one in receipts] == [0, 0, 2, 1]
    assert [(one.bought, one.admitted) for one in receipts] == [(2, 2), (3, 3), (6, 6), (6, 6)]
    assert [one.spent for one in receipts] == [4.0, 6.0, 12.0, 12.0]
    assert list(gate(open_store).samples()) == [2, 3, 4, 5]


def test_the_same_order_again_changes_nothing(open_store: Opener) -> None:
    first = gate(open_store).apply(order(1, 4))
    before = open_store().books(), open_store().held("stored")
    assert gate(open_store).apply(order(1, 4)) == first
    assert (open_store().books(), open_store().held("stored")) == before


def test_another_order_for_an_applied_round_is_refused(open_store: Opener) -> None:
    gate(open_store).apply(order(2, 4))
    with pytest.raises(WireError, match="round 2 was applied with another order"):
        gate(open_store).apply(order(2, 5))
    with pytest.raises(WireError, match="round 1 is too late: round 2 has been applied"):
        gate(open_store).apply(order(1, 4))
    with pytest.raises(WireError, match="serves run 'run-1', not 'run-2'"):
        gate(open_store).apply(order(3, 4, run="run-2"))
    assert open_store().books().admitted == 4


def test_a_dry_stream_is_told_once_until_it_has_samples_again(
    open_store: Opener, caplog: pytest.LogCaptureFixture
) -> None:
    def told(size: int, number: int, count: int) -> int:
        caplog.clear()
        gate(open_store, size=size).apply(order(number, count))
        return caplog.text.count("has run dry")

    counts = [told(3, number, count) for number, count in enumerate((4, 0, 1, 0, 1), start=1)]
    assert counts == [1, 0, 0, 0, 0]
    assert [told(4, 6, 1), told(4, 7, 1)] == [0, 1]


def test_a_stream_that_runs_dry_after_a_failure_is_told(
    open_store: Opener, caplog: pytest.LogCaptureFixture
) -> None:
    def fails(sample: Any, key: str) -> Any:
        raise OSError("supplier away")

    stream = IndexedStream(list(range(1)))
    assert Gate(open_store(), stream, fails).apply(order(1, 1)).is_dry
    assert "has run dry" not in caplog.text
    gate(open_store, size=1).apply(order(2, 2))
    assert "has run dry" in caplog.text


def test_thresholds_replace_what_is_old_enough_for_the_price(open_store: Opener) -> None:
    rule: dict[str, Any] = {
        "retention": "oldest_first",
        "retention_horizon": 0,
        "thresholds": (5.0, 1.0, 3.0),
        "count": NO_LIMIT,
    }
    first = gate(open_store).apply(order(1, price=4.0, **rule))
    assert first.admitted == 10  # empty slots take up to 5
    assert gate(open_store).apply(order(2, price=2.0, **rule)).admitted == 10  # used once: up to 1
    assert gate(open_store).apply(order(3, price=2.0, **rule)).admitted == 20  # twice: up to 3
    assert gate(open_store).apply(order(4, price=9.0, **rule)).admitted == 20


def test_acquisition_is_called_once_for_each_sample_with_its_own_key(open_store: Opener) -> None:
    asked: list[tuple[int, str]] = []

    def acquire(sample: int, key: str) -> str:
        asked.append((sample, key))
        return f"label {sample}"

    gate(open_store, acquire=acquire).apply(order(1, 2))
    gate(open_store, acquire=acquire).apply(order(1, 2))
    gate(open_store, acquire=acquire).apply(order(2, 1))
    assert asked == [(0, "run-1/site/1"), (1, "run-1/site/2"), (2, "run-1/site/3")]
    assert list(gate(open_store).samples()) == ["label 0", "label 1", "label 2"]


def away() -> Any:
    raise ConnectionError("the supplier is away")


@pytest.mark.parametrize("failing", [away, lambda: {1, 2}], ids=["raises", "cannot be stored"])
def test_a_failed_acquisition_leaves_the_books_right(
    open_store: Opener, failing: Callable[[], Any]
) -> None:
    def unreliable(sample: int, key: str) -> Any:
        if sample == 3:
            return failing()
        return sample

    receipt = gate(open_store, acquire=unreliable).apply(order(1, 6))
    assert (receipt.admitted, receipt.spent, receipt.is_dry) == (3, 6.0, True)
    receipt = gate(open_store).apply(order(2, 2))  # works again: nothing was skipped or lost
    assert list(gate(open_store).samples()) == [0, 1, 2, 3, 4]
    assert receipt.spent == 10.0


def test_a_failed_commit_leaves_everything_as_it_was(
    open_store: Opener, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate(open_store).apply(order(1, 2))
    store, stream = open_store(), IndexedStream(list(range(100)))
    one = Gate(store, stream)
    with monkeypatch.context() as patch:
        patch.setattr(Change, "answer", lambda *_: (_ for _ in ()).throw(OSError("disk full")))
        with pytest.raises(OSError, match="disk full"):
            one.apply(order(2, 2))
    assert one.apply(order(2, 2)).admitted == 4
    assert list(one.samples()) == [0, 1, 2, 3]


def test_an_interrupt_in_the_first_round_loses_nothing(open_store: Opener) -> None:
    def interrupted(sample: int, key: str) -> int:
        if sample == 2 and interrupt:
            raise KeyboardInterrupt
        return sample

    interrupt = True
    one = gate(open_store, acquire=interrupted)
    with pytest.raises(KeyboardInterrupt):
        one.apply(order(1, 4))
    interrupt = False
    assert one.apply(order(1, 4)).admitted == 4
    assert list(one.samples()) == [0, 1, 2, 3]


def test_a_stream_that_fails_without_moving_is_like_one_that_is_dry(open_store: Opener) -> None:
    class Broken(IndexedStream):
        def take(self, count: int) -> list[Any]:
            if self.cursor == "2":
                raise OSError("the disk of the data set is gone")
            return super().take(count)

    for now in range(1, 6):
        receipt = Gate(open_store(), Broken(range(9))).apply(order(now, 5))
        assert (receipt.admitted, receipt.is_dry) == (2, True)
        assert "set_aside" not in receipt.health
    assert gate(open_store).apply(order(6, 1)).admitted == 3
    assert list(gate(open_store).samples()) == [2]


def test_books_that_moved_are_not_overwritten(open_store: Opener) -> None:
    """Another process applies round 1 while this one is busy with round 2."""
    store = open_store()
    other = Gate(store, IndexedStream(range(100)))

    def slow(sample: int, key: str) -> int:
        if store.books().last_round == 0:
            other.apply(order(1, 2))
        return sample

    late = Gate(store, IndexedStream(range(100)), slow)
    with pytest.raises(BooksMovedError, match="computed at round 0, but the books are at 1"):
        late.apply(order(2, 2))
    assert late.apply(order(2, 2)).admitted == 4
    assert list(late.samples()) == [0, 1, 2, 3]


def test_what_a_trainer_does_to_a_sample_stays_its_own(open_store: Opener) -> None:
    one = Gate(open_store(), IndexedStream([np.ones(2)]))
    one.apply(order(1, 1))
    one.samples()[0][:] = 7
    assert one.samples()[0].tolist() == [1, 1]


def test_a_rule_leads_to_no_more_than_the_count_beside_it(open_store: Opener) -> None:
    rule: dict[str, Any] = {"retention": "oldest_first", "retention_horizon": 0}
    receipt = gate(open_store).apply(order(1, 6, thresholds=(5.0,), **rule))
    assert (receipt.admitted, receipt.is_dry) == (6, False)
    assert gate(open_store).apply(order(2, 0, thresholds=(5.0,), **rule)).admitted == 6


def test_a_price_at_the_threshold_is_cheap_enough(open_store: Opener) -> None:
    rule: dict[str, Any] = {"retention": "oldest_first", "retention_horizon": 0}
    receipt = gate(open_store).apply(order(1, 10, price=3.0, thresholds=(3.0, 0.0), **rule))
    assert receipt.admitted == 10


@dataclass
class Model:
    """The same by hand: samples in a list, books in numbers."""

    stored: list[list[int]] = field(default_factory=list)  # [content, uses]
    taken: int = 0
    spent: float = 0.0

    def apply(self, one: Order, size: int) -> None:
        self.stored = [sample for sample in self.stored if sample[1] < one.retention_horizon]
        count = min(one.count, 10 - len(self.stored), size - self.taken)
        self.stored += [[self.taken + n, 0] for n in range(count)]
        self.taken += count
        self.spent += count * one.price
        for sample in self.stored:
            sample[1] += 1

    def receipt(self, one: Order) -> Receipt:
        """What it says after an order, as far as a stream and a buffer without faults go."""
        uses = [sample[1] for sample in self.stored]
        return Receipt(
            run=RUN,
            round_number=one.round_number,
            bought=self.taken,
            admitted=self.taken,
            spent=self.spent,
            holding=tuple(uses.count(age) for age in range(1, max(uses, default=0) + 1)),
            expiring=sum(age >= one.retention_horizon for age in uses),
            occupancy=len(uses),
            uses=sum(uses),
            read=self.taken,
        )


steps = st.lists(
    st.tuples(
        st.integers(1, 4),  # rounds since the last order
        st.integers(0, 12),  # count
        st.integers(1, 6),  # K, which may change between orders
        st.sampled_from([0.0, 1.0, 2.5]),  # price
        st.booleans(),  # delivered twice
    ),
    max_size=25,
)


@settings(
    max_examples=at_size(12, 60),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(steps=steps, size=st.integers(0, 80), durable=st.booleans())
def test_any_sequence_of_orders_equals_the_model(
    steps: list[Any], size: int, durable: bool, tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.mktemp("buffer") / "buffer.sqlite"
    store: Store = Store(path, RUN, "site", 10) if durable else Store(None, RUN, "site", 10)
    model, now = Model(), 0
    for ahead, count, horizon, price, twice in steps:
        now += ahead
        sent = order(now, count, retention_horizon=horizon, price=price)
        model.apply(sent, size)
        if durable:
            store.close()
            store = Store(path, RUN, "site", 10)
        one = Gate(store, IndexedStream(list(range(size))))
        receipts: list[Receipt] = [one.apply(sent) for _ in range(1 + twice)]
        assert receipts[0] == receipts[-1]
        known = replace(receipts[0], is_dry=False, last_taken="", record="")
        assert known == model.receipt(sent)
        assert list(one.samples()) == [sample[0] for sample in model.stored]
        assert uses_of(store) == [sample[1] for sample in model.stored]
    if durable:
        store.close()


class Killed(BaseException):
    """The process is gone."""


@pytest.mark.parametrize("choice", [None, Selection(candidates=10, backlog=0)])
def test_a_slow_order_goes_on_where_it_was_killed(
    open_store: Opener, monkeypatch: pytest.MonkeyPatch, choice: Selection | None
) -> None:
    """A kill repeats no call but the one that it interrupted."""
    monkeypatch.setattr(buying, "BATCH_SECONDS", 0.0)
    asked: list[str] = []
    kills = 0

    def slow(sample: int, key: str) -> int:
        asked.append(key)
        if len(asked) % 4 == 0:
            raise Killed
        return sample

    while True:
        one = Gate(open_store(), IndexedStream(range(100)), slow, choice)
        try:
            receipt = one.apply(order(1, 10))
            break
        except Killed:
            kills += 1
    assert (receipt.bought, receipt.occupancy, receipt.spent) == (10, 10, 20.0)
    assert sorted(one.samples()) == list(range(10))
    assert len(set(asked)) == 10
    assert len(asked) == 10 + kills
    assert kills == 3


def test_a_sweep_while_an_order_is_applied_has_nothing_acquired_again(tmp_path: Path) -> None:
    asked: list[str] = []

    def acquire(sample: int, key: str) -> int:
        asked.append(key)
        sweep(tmp_path)
        return sample

    with Store(tmp_path / "a.sqlite", RUN, "site", 10) as store:
        gate = Gate(store, IndexedStream(range(100)), acquire, keep_at_most="30d")
        assert gate.apply(order(1, 5)).admitted == 5
    assert len(asked) == 5
