"""Which samples train, which make room, which stay on the device, and what a site may spend."""

from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from client_parts import Opener, opener
from hypothesis import given
from hypothesis import strategies as st

from tidegate import buffer
from tidegate.client.auditing import audit_file
from tidegate.client.gate import Gate
from tidegate.client.store import Store
from tidegate.client.streams import IndexedStream
from tidegate.client.supplier import Delivered, Outcome, Refused, Request
from tidegate.errors import ConfigurationError, RunDiffersError
from tidegate.wire import NO_LIMIT, Order, Receipt

RUN = "run-1"
CAPACITY = 4
RARE = [("common", n) for n in range(3)] + [("rare", 3)] + [("common", n) for n in range(4, 40)]
"""A stream with one rare sample among the first four."""


@pytest.fixture(params=["memory", "sqlite"])
def open_store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Opener]:
    yield from opener(request.param, tmp_path, RUN, CAPACITY)


def order(number: int, count: int = 0, price: float = 2.0, **changes: Any) -> Order:
    values: dict[str, Any] = {"retention": "oldest_first", "count": count, **changes}
    return Order(run=RUN, round_number=number, price=price, **values)


class Labels:
    """Answers with the label of what it was asked for, one order later."""

    def __init__(self) -> None:
        self.asked = dict[str, Request]()

    def ask(self, requests: Sequence[Request]) -> None:
        self.asked |= {request.key: request for request in requests}

    def collect(self, keys: Sequence[str]) -> Sequence[Outcome]:
        return [Delivered(key, RARE[self.asked[key].sample][0]) for key in keys]

    def cancel(self, keys: Sequence[str]) -> Sequence[Outcome]:
        return []

    def complete(self, sample: int, answer: str) -> tuple[str, int]:
        return answer, sample


def group_of(sample: tuple[str, int]) -> str:
    return sample[0]


@given(
    st.lists(st.tuples(st.integers(1, 9), st.sampled_from(["a", "b", ""])), max_size=12),
    st.integers(0, 12),
)
def test_what_makes_room_is_chosen_sample_by_sample(
    held: list[tuple[int, str]], count: int
) -> None:
    left = list(held)
    for _ in range(min(count, len(held))):
        sizes = Counter(group for _, group in left)
        left.remove(max(left, key=lambda s: (s[0] * (sizes[s[1]] ** 2 if s[1] else 1), s[0], s[1])))
    assert Counter(held) - buffer.leaving(Counter(held), count) == Counter(left)


def test_common_groups_make_room_before_rare_ones(open_store: Opener) -> None:
    def gate() -> Gate:
        return Gate(open_store(), IndexedStream(RARE), group=group_of)

    for number in range(1, 9):
        receipt = gate().apply(order(number, CAPACITY if number == 1 else 1))
    assert list(gate().samples()) == [("rare", 3), *RARE[8:11]]
    assert receipt.holding == (1, 1, 1, 0, 0, 0, 0, 1)
    assert receipt.uses == 8 + 3 + 2 + 1


def test_a_group_may_come_with_the_label(open_store: Opener) -> None:
    labels = Labels()
    for number in range(1, 9):
        stream = IndexedStream(range(len(RARE)))
        gate = Gate(open_store(), stream, supplier=labels, group=group_of)
        gate.apply(order(number, CAPACITY if number == 1 else 1))
    assert next(iter(gate.samples())) == ("rare", 3)


def test_a_group_function_that_fails_is_named(open_store: Opener) -> None:
    gate = Gate(open_store(), IndexedStream([1, 2, 3]), group=lambda sample: sample["label"])
    with pytest.raises(ConfigurationError, match=r"group failed on 'run-1/.*TypeError"):
        gate.apply(order(1, 1))
    assert open_store().books().spent == 0


def training(path: Path, most: int, rounds: int, capacity: int = 12) -> list[Receipt]:
    """Receipts of a device that stores ``capacity`` samples and trains on ``most`` of them."""
    receipts = []
    for number in range(1, rounds + 1):
        with Store(path, RUN, "site", capacity, train_on=most) as store:
            gate = Gate(store, IndexedStream(range(1000)))
            receipts.append(gate.apply(order(number, 3)))
            assert len(gate.samples()) == receipts[-1].occupancy == min(3 * number, most)
            before = list(gate.samples())
            assert gate.apply(order(number, 3)) == receipts[-1]
            assert list(gate.samples()) == before
    return receipts


def test_the_least_used_samples_train(tmp_path: Path) -> None:
    """Counted sample by sample: never one that has been used more than one that rests."""
    uses = Counter[int]()
    for number in range(1, 30):
        with Store(tmp_path / "buffer.sqlite", RUN, "site", 12, train_on=5) as store:
            gate = Gate(store, IndexedStream(range(1000)))
            receipt = gate.apply(order(number, 3))
            trains = list(gate.samples())
            stored = range(max(3 * number - 12, 0), 3 * number)
            assert set(trains) <= set(stored)
            assert len(trains) == receipt.occupancy == min(5, len(stored))
            rests = set(stored) - set(trains)
            assert max(uses[n] for n in trains) <= min((uses[n] for n in rests), default=99)
            uses.update(trains)
            assert receipt.uses == sum(uses[n] for n in trains)
            assert sum(receipt.holding) == len(stored)
    (audit,) = audit_file(tmp_path / "buffer.sqlite")
    assert audit.is_right, audit.problems
    assert audit.sums.counts["used"] == uses.total()
    assert audit.sums.most_used == max(uses.values())


def test_an_order_that_comes_again_trains_on_the_same_samples(tmp_path: Path) -> None:
    one = training(tmp_path / "one.sqlite", 5, 12)
    other = training(tmp_path / "other.sqlite", 5, 12)
    assert [receipt.uses for receipt in one] == [receipt.uses for receipt in other]


def test_another_number_to_train_on_is_refused(tmp_path: Path) -> None:
    training(tmp_path / "buffer.sqlite", 5, 1)
    with pytest.raises(RunDiffersError, match=r"capacity 12 and train_on 5, not to .* train_on 6"):
        Store(tmp_path / "buffer.sqlite", RUN, "site", 12, train_on=6)


def test_what_was_bought_stays_on_the_device(tmp_path: Path) -> None:
    path = tmp_path / "buffer.sqlite"
    for number in range(1, 4):
        with Store(path, RUN, "site", CAPACITY) as store:
            gate = Gate(store, IndexedStream(range(100)), keep_bought=True)
            gate.apply(order(number, 3))
            assert list(gate.samples()) == list(range(100))[max(3 * number - 4, 0) : 3 * number]
            assert store.count("kept") == max(3 * number - 4, 0)
    (audit,) = audit_file(path)
    assert audit.is_right, audit.problems
    assert audit.held == {"sample": 4, "archived sample": 5}


@pytest.mark.parametrize("ahead", [0.0, 2.5])
def test_a_device_never_spends_more_than_its_own_ceiling(open_store: Opener, ahead: float) -> None:
    paid = list[float]()

    def acquire(sample: int, key: str) -> int:
        paid.append(price)
        return sample

    prices = (3.0, 0.7, 12.5, 0.1, 7.0, 1.0)
    for number, price in enumerate(prices, start=1):
        stream = IndexedStream(range(1000))
        gate = Gate(open_store(), stream, acquire, spend_at_most=6.0, spend_ahead=ahead)
        rule = (price, price)
        receipt = gate.apply(order(1000 * number, NO_LIMIT, price, thresholds=rule))
        allowed = 6.0 * (number + ahead)
        assert sum(paid) == pytest.approx(receipt.spent)
        assert receipt.spent <= allowed * (1 + 1e-9)


def test_a_server_that_orders_too_much_gets_the_ceiling(open_store: Opener) -> None:
    gate = Gate(open_store(), IndexedStream(range(1000)), spend_at_most=2.0)
    receipts = [gate.apply(order(number, 1000, price=1.0)) for number in range(1, 5)]
    assert [receipt.spent for receipt in receipts] == [2.0, 4.0, 6.0, 8.0]
    assert all(receipt.health == {"at_ceiling": 1} for receipt in receipts)
    assert not any(receipt.is_dry for receipt in receipts)


def test_what_is_paid_back_may_be_spent_again(open_store: Opener) -> None:
    class Refuses(Labels):
        def collect(self, keys: Sequence[str]) -> Sequence[Outcome]:
            return [Refused(key, refunded=True) for key in keys]

    gate = Gate(open_store(), IndexedStream(range(99)), supplier=Refuses(), spend_at_most=2.0)
    receipts = [gate.apply(order(number, 9, price=2.0)) for number in range(1, 4)]
    assert [receipt.spent for receipt in receipts] == [2.0, 4.0, 8.0]
    assert [receipt.refunded for receipt in receipts] == [0.0, 2.0, 4.0]
