"""Our records in Flower's messages: any JSON reader can read them, and nothing else is believed."""

import json

import pytest
from flwr.app import ConfigRecord, Error, Message, RecordDict
from hypothesis import given
from hypothesis import strategies as st

from tidegate.errors import WireError
from tidegate.flower.flower_internals import act_as_server
from tidegate.flower.records import TEXT, attach, find, key_of, reason_of
from tidegate.wire import LARGEST_AMOUNT, LARGEST_INTEGER, Address, Order, Record

names = st.text(min_size=1, max_size=200).filter(str.isprintable)
amounts = st.floats(0, LARGEST_AMOUNT)


def packed(record: Record) -> ConfigRecord:
    content = RecordDict()
    attach(content, record)
    found = content[key_of(type(record))]
    assert isinstance(found, ConfigRecord)
    return found


def read(text: str, kind: type[Record] = Order) -> Record | None:
    return find(RecordDict({key_of(kind): ConfigRecord({TEXT: text})}), kind)


@given(run=names, client=names, skip=st.integers(0, LARGEST_INTEGER))
def test_version_0_1_0_reads_what_is_written_now(run: str, client: str, skip: int) -> None:
    # It reads with json.loads, and knows a whole number from a float by its point.
    address = Address(run=run, client=client, skip=skip)
    told = json.loads(str(packed(address)[TEXT]))
    assert told == address.to_record()
    assert Address.from_record(told) == address


@given(price=amounts, rule=st.lists(amounts, max_size=5))
def test_a_float_stays_a_float(price: float, rule: list[float]) -> None:
    thresholds = (price, *sorted(rule))
    order = Order(
        run="r", round_number=1, price=price, retention="oldest_first", thresholds=thresholds
    )
    assert Order.from_record(json.loads(str(packed(order)[TEXT]))) == order
    assert read(json.dumps(order.to_record())) == order


def test_an_order_is_packed_once_for_all() -> None:
    order = Order(run="r", round_number=1, price=1.0, retention_horizon=3, count=2)
    same = Order(run="r", round_number=1, price=1.0, retention_horizon=3, count=2)
    assert packed(order) is packed(same)
    text = str(packed(order)[TEXT])
    assert read(text) is read(text)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('"price":2.5', '"price":2'),
        ('"price":2.5', '"price":NaN'),
        ('"price":2.5', '"price":1e400'),
        ('"price":2.5', '"price":"2.5"'),
        ('"price":2.5', '"price":true'),
        ('"price":2.5', '"price":null'),
        ('"count":4', '"count":4.0'),
        ('"count":4', '"count":true'),
        ('"count":4', '"count":9223372036854775808'),
        ('"count":4', '"count":' + "9" * 5000),
        ('"count":4', '"count":4,"surprise":1'),
        ('"run":"r"', r'"run":"\ud800"'),
        ('"run":"r"', '"run":"\ud800"'),
        ('"run":"r"', r'"run":"a\nb"'),
        ('"run":"r"', '"run":"a\nb"'),
        ('"version":1', '"version":2'),
        ('"version":1', '"version":1.0'),
        ("}", "},"),
        ("}", ""),
        ('"thresholds":[]', '"thresholds":' + "[" * 3000 + "]" * 3000),
    ],
)
def test_what_was_refused_is_refused(old: str, new: str) -> None:
    order = Order(run="r", round_number=3, price=2.5, retention_horizon=10, count=4)
    text = json.dumps(order.to_record(), separators=(",", ":"))
    assert read(text) == order
    assert text.count(old) == 1
    for _ in range(2):  # and is not remembered
        with pytest.raises(WireError) as refused:
            read(text.replace(old, new))
        assert len(str(refused.value)) < 500


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("<class 'OSError'>:<'no disk'>", "OSError: no disk"),  # as Flower's engines write it
        ("<class 'app.main.<locals>.LostError'>:<'a\nb'>", "LostError: a b"),
        ("ClientApp stopped responding.", "ClientApp stopped responding"),
        (None, "an error without a reason"),
        ("x" * 100_000, "x" * 500),
    ],
)
def test_the_reason_of_an_error_is_one_line_that_is_not_long(text: str | None, reason: str) -> None:
    act_as_server(1)
    reply = Message(Error(2, text), reply_to=Message(RecordDict(), 2, "train"))
    assert reason_of(reply) == reason
