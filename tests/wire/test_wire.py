import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.errors import WireError
from tidegate.wire import Address, Introduction, Order, Receipt

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
    "admitted": 4,
    "spent": 10.0,
    "occupancy": 9,
    "expiring": 2,
    "prior_uses": 10,
    "total_admitted": 20,
    "total_spent": 55.5,
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


@given(admitted=counts, more=counts, uses=counts, spent=amounts, exhausted=st.booleans())
def test_a_receipt_survives_the_journey(
    admitted: int, more: int, uses: int, spent: float, exhausted: bool
) -> None:
    receipt = Receipt(
        run="r",
        round_number=2,
        admitted=admitted,
        spent=spent,
        occupancy=admitted + more,
        expiring=more,
        prior_uses=min(uses, more),
        total_admitted=admitted,
        total_spent=spent,
        exhausted=exhausted,
    )
    assert Receipt.from_record(receipt.to_record()) == receipt


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
            "thresholds must be a float from 0 to .*, got nan",
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
        ({"round_number": 0}, "round_number must be at least 1"),
        ({"admitted": -1}, "admitted must be a whole number from 0"),
        ({"prior_uses": -1}, "prior_uses must be a whole number from 0"),
        ({"prior_uses": 11}, "prior_uses must be at most 10, got 11"),
        ({"exhausted": 1}, "exhausted must be true or false, got 1"),
        ({"spent": math.nan}, "spent must be a float from 0 to .*, got nan"),
        ({"total_spent": math.inf}, "total_spent must be"),
        ({"admitted": 10}, "admitted must be at most the occupancy 9, got 10"),
        ({"expiring": 10}, "expiring must be at most the occupancy 9, got 10"),
        ({"total_admitted": 3}, "total_admitted must be at least this round's 4, got 3"),
        ({"total_spent": 9.0}, "total_spent must be at least this round's 10.0, got 9.0"),
    ],
)
def test_an_impossible_receipt_is_refused(change: dict[str, Any], reason: str) -> None:
    with pytest.raises(WireError, match=reason):
        Receipt(**{**RECEIPT, **change})


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


def test_a_missing_field_is_named() -> None:
    record = Order(**ORDER).to_record()
    del record["price"]
    with pytest.raises(WireError, match=r"missing or unknown fields: \{'price'\}"):
        Order.from_record(record)
    told = Receipt(**RECEIPT).to_record()
    del told["set_aside"]  # has a default in Python, and none on the wire
    with pytest.raises(WireError, match=r"missing or unknown fields: \{'set_aside'\}"):
        Receipt.from_record(told)


@pytest.mark.parametrize(
    ("change", "capacity", "reason"),
    [
        ({"run": "r2"}, None, "run must be the order's 'r1', got 'r2'"),
        ({"round_number": 4}, None, "round_number must be at most 3, got 4"),
        ({"admitted": 5, "prior_uses": 0}, None, "samples bought must be <= 4, got 5"),
        ({"spent": 0.0}, None, "spent must be the price, 10.0, got 0.0"),
        ({}, 8, "occupancy must be at most the capacity 8, got 9"),
    ],
)
def test_a_receipt_must_answer_the_order(
    change: dict[str, Any], capacity: int | None, reason: str
) -> None:
    with pytest.raises(WireError, match=reason):
        Receipt(**{**RECEIPT, **change}).check_answers(Order(**ORDER), buffer_capacity=capacity)


def test_a_fitting_or_late_receipt_is_believed() -> None:
    Receipt(**RECEIPT).check_answers(Order(**ORDER), buffer_capacity=9)
    late = {**RECEIPT, "round_number": 2, "admitted": 9, "prior_uses": 0}
    Receipt(**late).check_answers(Order(**ORDER), buffer_capacity=9)


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
