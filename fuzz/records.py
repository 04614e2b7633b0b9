"""Orders, receipts, addresses and introductions in a Flower message; reports and grants."""

from typing import Any

from flwr.app import ConfigRecord, MetricRecord, RecordDict

from fuzz.choices import Choices, text_of
from fuzz.limits import LONGEST_REASON, may_refuse
from tidegate.errors import WireError
from tidegate.flower.records import TEXT, attach, expect, find, key_of
from tidegate.server.shards import Grant, Report
from tidegate.wire import Address, Introduction, Order, Receipt, Record

ORDER = Order(run="r", round_number=3, price=2.5, retention_horizon=10, count=4)
RULE = Order(
    run="r",
    round_number=3,
    price=2.5,
    retention="oldest_first",
    count=9,
    thresholds=(8.0, 1.0, 2.0, 3.0),
)
RECEIPT = Receipt(
    run="r",
    round_number=3,
    bought=23,
    admitted=20,
    refused=1,
    spent=60.5,
    refunded=2.5,
    under_way_spent=5.0,
    holding=(4, 0, 5),
    expiring=2,
    occupancy=9,
    uses=19,
    read=25,
    health={"set_aside": 2, "waiting_since": 3},
)
ADDRESS = Address(run="r", client="site", fingerprint="ab", buffer_id="b", booked_round=2)
INTRODUCTION = Introduction(run="r", client="site", buffer_capacity=9, buffer_id="b", void_round=1)
REPORT = Report(run="r", shard="east", round_number=3, spends=5.5, shadow_price=0.25)
GRANT = Grant(run="r", shard="east", first_round=3, before=11.0, budgets=(5.5, 5.0, 5.0))
HONEST: tuple[Record, ...] = (ORDER, RULE, RECEIPT, ADDRESS, INTRODUCTION, REPORT, GRANT)
OTHER_PARTS: tuple[Any, ...] = (
    MetricRecord({TEXT: 1}),
    ConfigRecord(),
    ConfigRecord({TEXT: 1}),
    ConfigRecord({TEXT: b"{}"}),
    ConfigRecord({TEXT: ["{}"]}),
)
"""Where one of our records should be."""


def target(data: bytes) -> None:
    """Read a record: any text, an honest record with changes, or a record of another kind."""
    choices = Choices(data)
    honest, how = choices.pick(HONEST), choices.number(5)
    kind, key = type(honest), key_of(type(honest))
    content = RecordDict()
    if how == 0:
        content[key] = choices.pick(OTHER_PARTS)
    elif how in (1, 2):
        content[key] = ConfigRecord({TEXT: choices.rest().decode("utf-8", "replace")})
    else:
        content[key] = ConfigRecord({TEXT: text_of(choices.edited(dict(honest.to_record())))})
    with may_refuse(WireError, longest=LONGEST_REASON):
        found = expect(content, kind)
        again = RecordDict()
        attach(again, found)
        if find(again, kind) != found:
            raise AssertionError(f"{found} does not survive the journey")


def seeds() -> list[bytes]:
    """Every kind as it is, as text, and in place of another."""
    texts = [text_of(one.to_record()).encode() for one in HONEST]
    whole = [bytes([number, 1]) + text for number, text in enumerate(texts)]
    deep = b"[" * 2000 + b"]" * 2000
    edited = [bytes([number, 3, 1, 3, field, 0, 5]) for number in range(7) for field in range(6)]
    return [*whole, *edited, b"\0\1" + deep, b"\2\1" + b'{"a":' * 2000, b"\0\0\0", b"\1\0\2"]
