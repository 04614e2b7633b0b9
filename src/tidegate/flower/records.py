"""Orders, receipts and introductions as Flower records, beside whatever else a message carries."""

from collections.abc import Mapping
from typing import TypeVar

from flwr.app import ConfigRecord, RecordDict

from tidegate.wire import Address, Introduction, Order, Receipt, Record, WireError

KEYS: Mapping[type[Record], str] = {
    Address: "tidegate-address",
    Introduction: "tidegate-introduction",
    Order: "tidegate-order",
    Receipt: "tidegate-receipt",
}

QUERY = "query.tidegate"
"""The message type by which the server asks who a node is."""

Kind = TypeVar("Kind", bound=Record)


def attached(content: RecordDict, *records: Record) -> RecordDict:
    """The same content with these records; arrays are shared, never copied."""
    shared = RecordDict(dict(content.items()))
    for record in records:
        shared[KEYS[type(record)]] = ConfigRecord({**record.to_record()})
    return shared


def find(content: RecordDict, kind: type[Kind]) -> Kind | None:
    """The record of a kind, if there is one; one that cannot be believed is a ``WireError``."""
    record = content.get(KEYS[kind])
    if record is None:
        return None
    if not isinstance(record, ConfigRecord):
        raise WireError(f"{KEYS[kind]} is a {type(record).__name__}, not a ConfigRecord")
    return kind.from_record(dict(record.items()))


def expect(content: RecordDict, kind: type[Kind]) -> Kind:
    """The record of a kind, or a ``WireError``."""
    record = find(content, kind)
    if record is None:
        raise WireError(f"the message carries no {kind.__name__.lower()} ({KEYS[kind]})")
    return record
