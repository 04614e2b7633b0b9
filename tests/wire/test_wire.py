import json
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.errors import WireError
from tidegate.wire import MOST_AGES, Address, Introduction, Order, Receipt

ORDER: dict[str, Any] = {
    "run": "r1",
    "round_number": 3,
    "price": 2.5,
    "retention_horizon": 10,
    "count": 4,
}
RECEIPT: dict[str, Any] = {
    "run": "r1",
    "round_number": 3,
    "bought": 23,
    "admitted": 20,
    "refused": 1,
    "spent": 55.5,
    "refunded": 2.5,
    "under_way_spent": 5.0,
    "holding": (4, 0, 7),
    "expiring": 2,
    "occupancy": 9,
    "uses": 19,
    "read": 30,
}

amounts = st.floats(0, 1e12)
counts = st.integers(0, 2**40)
names = st.text(min_size=1, max_size=200).filter(str.isprintable)


@given(run=names, now=st.integers(1, 2**40), price=amounts, count=counts)
def test_an_order_survives_the_journey(run: str, now: int, price: float, count: int) -> None:
    order = Order(run=run, round_number=now, price=price, retention_horizon=3, count=count)
    assert Order.from_record(order.to_record()) == order


@given(thresholds=st.lists(amounts, min_size=1, max_size=20))
def test_a_rule_survives_the_journey(thresholds: list[float]) -> None:
    order = Order(
        run="r",
        round_number=1,
        price=1.0,
        retention="oldest_first",
        thresholds=(thresholds[0], *sorted(thresholds[1:])),
    )
    assert Order.from_record(order.to_record()) == order


HEALTH_NAMES = st.text("abc_", min_size=1, max_size=9)


@given(
    whole=st.tuples(*[counts] * 6),
    money=st.tuples(*[amounts] * 3),
    holding=st.lists(counts, max_size=MOST_AGES).map(tuple),
    is_dry=st.booleans(),
    health=st.dictionaries(HEALTH_NAMES, amounts | counts.map(lambda count: count % 10**15)),
)
def test_a_receipt_survives_the_journey(
    whole: tuple[int, ...],
    money: tuple[float, ...],
    holding: tuple[int, ...],
    is_dry: bool,
    health: dict[str, float],
) -> None:
    receipt = Receipt(
        run="r",
        round_number=2,
        bought=whole[0],
        admitted=whole[1],
        refused=whole[2],
        occupancy=whole[3],
        uses=whole[4],
        read=whole[5],
        spent=money[0],
        refunded=money[1],
        under_way_spent=money[2],
        holding=holding,
        is_dry=is_dry,
        health=health,
    )
    assert Receipt.from_record(receipt.to_record()) == receipt
    assert Receipt.from_record(json.loads(json.dumps(receipt.to_record()))) == receipt


def test_what_a_receipt_says_of_purchases_follows_from_its_counts() -> None:
    receipt = Receipt(**RECEIPT)
    assert (receipt.under_way, receipt.paid) == (2, 53.0)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"run": ""}, "run must be a name"),
        ({"round_number": 0}, "round_number must be at least 1, got 0"),
        ({"price": math.nan}, "price must be a float from 0 to 1e.15, got nan"),
        ({"price": -1.0}, "got -1.0"),
        ({"price": math.inf}, "got inf"),
        ({"retention": "never"}, "retention must be a known rule, got 'never'"),
        ({"retention_horizon": 0}, "retention_horizon must be at least 1, got 0"),
        ({"count": -1}, "count must be a whole number from 0 to"),
        ({"count": 2.5}, "count must be a whole number"),
        ({"count": True}, "count must be a whole number"),
        ({"count": 2**63}, "count must be a whole number"),
        ({"price": 1e16}, "price must be a float from 0 to"),
        ({"price": 10**400}, "price must be a float"),
        ({"round_number": True}, "round_number must be a whole number"),
        ({"thresholds": [1.0], "count": 0}, "thresholds must be a tuple"),
        (
            {"thresholds": (1.0,) * 1002, "retention": "oldest_first"},
            "thresholds must be a tuple of at most 1001",
        ),
        (
            {"thresholds": (9.0, 3.0, 2.0), "count": 0, "retention": "oldest_first"},
            "thresholds must be not falling from the second on",
        ),
        ({"thresholds": (1.0,), "count": 0}, "must be oldest_first where thresholds"),
        (
            {"thresholds": (1.0, math.nan), "count": 0, "retention": "oldest_first"},
            r"thresholds must be floats from 0 to .*, got \(1.0, nan\)",
        ),
    ],
)
def test_an_impossible_order_is_refused(change: dict[str, Any], reason: str) -> None:
    with pytest.raises(WireError, match=reason):
        Order(**{**ORDER, **change})


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"run": ""}, "run must be a name"),
        ({"round_number": -1}, "round_number must be a whole number from 0"),
        ({"bought": -1}, "bought must be a whole number from 0"),
        ({"admitted": True}, "admitted must be a whole number from 0"),
        ({"refused": 2**63}, "refused must be a whole number from 0"),
        ({"uses": 1.0}, "uses must be a whole number from 0"),
        ({"read": 2**63}, "read must be a whole number from 0"),
        ({"is_dry": 1}, "is_dry must be true or false, got 1"),
        ({"spent": math.nan}, "spent must be a float from 0 to .*, got nan"),
        ({"spent": 55}, "spent must be a float from 0 to .*, got 55"),
        ({"refunded": -0.5}, "refunded must be a float from 0 to .*, got -0.5"),
        ({"under_way_spent": math.inf}, "under_way_spent must be"),
        ({"holding": [4]}, "holding must be a tuple of at most"),
        ({"holding": (4, -1)}, "holding must be ints from 0"),
        ({"holding": (4, 2.0)}, "holding must be ints from 0"),
        ({"holding": (4, True)}, "holding must be ints from 0"),
        ({"holding": (0,) * 801}, "holding must be of at most 800 ages, got 801"),
        ({"holding": (0,) * 1001}, "holding must be a tuple of at most 1000"),
        ({"last_taken": "a\nb"}, "last_taken must be a name"),
        ({"health": None}, "health must be a dictionary of at most 50 numbers"),
        ({"health": dict.fromkeys((f"n{n}" for n in range(51)), 1)}, "of at most 50 numbers"),
        ({"health": {"two words": 1}}, "a name in health must be a Python identifier, got 'two w"),
        ({"health": {"line\nbreak": 1}}, "a name in health must be a Python identifier"),
        ({"health": {"a" * 201: 1}}, "a name in health must be a Python identifier"),
        ({"health": {7: 1}}, "a name in health must be a Python identifier, got 7"),
        ({"health": {"battery": "full"}}, "battery must be a float from 0 to .*, got 'full'"),
        ({"health": {"battery": True}}, "battery must be a float from 0 to"),
        ({"health": {"battery": math.nan}}, "battery must be a float from 0 to .*, got nan"),
        ({"health": {"battery": -1}}, "battery must be a float from 0 to .*, got -1"),
        ({"health": {"battery": 10**400}}, "battery must be a float from 0 to"),
    ],
)
def test_an_impossible_receipt_is_refused(change: dict[str, Any], reason: str) -> None:
    with pytest.raises(WireError, match=reason) as refused:
        Receipt(**{**RECEIPT, **change})
    assert len(str(refused.value)) < 500  # whatever was sent


@pytest.mark.parametrize("kind", [Order, Receipt])
@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"version": 0}, "version 0 is not supported, only 1: install the same version"),
        ({"version": 2}, "version 2 is not supported, only 1: install the same version"),
        ({"version": None}, "version None is not supported"),
        ({"version": True}, "version True is not supported"),
        ({"version": 1.0}, "version 1.0 is not supported"),
        ({"surprise": 1}, r"missing or unknown fields: \{'surprise'\}; install the same version"),
        ({7: 1}, r"missing or unknown fields: \{7\}"),
        ({"round_number": "3"}, "round_number must be a whole number from 0 to .*, got '3'"),
        ({"round_number": 3.0}, "round_number must be a whole number"),
        ({"round_number": [0] * 10**6}, "round_number must be a whole number"),
        ({"run": 7}, "run must be a name of at most 200 .*, got 7"),
    ],
)
def test_a_record_is_checked_before_it_is_believed(
    kind: type[Order | Receipt], change: dict[str, Any], reason: str
) -> None:
    given_values = ORDER if kind is Order else RECEIPT
    record: dict[str, Any] = {**kind(**given_values).to_record(), **change}
    with pytest.raises(WireError, match=reason) as refused:
        kind.from_record(record)
    assert len(str(refused.value)) < 500  # whatever was sent


@pytest.mark.parametrize("thresholds", ["", "x", None, 3, [1.0, "x"], [[1.0]], [True]])
def test_thresholds_of_another_kind_are_refused(thresholds: object) -> None:
    values = {**ORDER, "count": 0, "retention": "oldest_first"}
    record: dict[str, Any] = {**Order(**values).to_record(), "thresholds": thresholds}
    with pytest.raises(WireError, match="thresholds must be"):
        Order.from_record(record)


def test_what_is_no_record_is_refused() -> None:
    with pytest.raises(WireError, match="a record is a mapping, got None"):
        Order.from_record(None)  # type: ignore[arg-type]


def test_addresses_and_introductions_survive_the_journey() -> None:
    for record in (
        Address(run="r"),
        Address(run="r", client="site-0", fingerprint="ab"),
        Address(run="r", client="site-0", skip=9, last_taken="0123abcd", skip_after=2),
        Introduction(run="r", client="site-0", buffer_capacity=7, buffer_id="b", void_round=3),
    ):
        assert type(record).from_record(record.to_record()) == record


@pytest.mark.parametrize(
    ("kind", "changes", "reason"),
    [
        (Address, {"run": ""}, "run must be a name"),
        (
            Address,
            {"client": 3},
            "client must be a name of at most 200 .*, got 3",
        ),
        (
            Introduction,
            {"client": ""},
            "client must be a name of at most 200 .*, got ''",
        ),
        (
            Introduction,
            {"buffer_id": ""},
            "buffer_id must be a name of at most 200 .*, got ''",
        ),
        (Address, {"client": "a" * 201}, "client must be a name of at most 200 printable"),
        (Address, {"fingerprint": "\ud800"}, "fingerprint must be a name of at most 200 .*, got"),
        (Introduction, {"buffer_id": "a\nb"}, "buffer_id must be a name of at most 200 .*, got"),
        (Introduction, {"buffer_capacity": 10**8 + 1}, "must be at most 100000000; count larger"),
        (Introduction, {"void_round": -1}, "void_round must be a whole number"),
        (Introduction, {"buffer_capacity": 0}, "buffer_capacity must be at least 1, got 0"),
        (Introduction, {"buffer_capacity": -1}, "buffer_capacity must be a whole number"),
        (Introduction, {"extra": 1}, "missing or unknown fields: {'extra'}"),
    ],
)
def test_who_speaks_is_checked_too(
    kind: type[Address] | type[Introduction], changes: dict[str, Any], reason: str
) -> None:
    own: dict[str, Any] = {} if kind is Address else {"buffer_capacity": 5, "buffer_id": "b"}
    honest = kind(run="r", client="c", **own).to_record()
    with pytest.raises(WireError, match=reason):
        kind.from_record({**honest, **changes})
