"""Orders, receipts and introductions in a Flower message, beside what else it carries.

Each of ours is a ``ConfigRecord`` with one JSON text: Flower checks every field, and a dozen of
them for each client would cost more than everything else that we do. An order that many clients get
is packed once and shared, like the model's arrays; clients in one process read it once.
"""

import functools
import re
from collections.abc import Mapping
from typing import TypeVar, cast

from flwr.app import ConfigRecord, Message, MetricRecord, RecordDict
from pydantic_core import from_json, to_json

from tidegate._internal.words import on_a_line
from tidegate.errors import WireError
from tidegate.wire import Address, Introduction, Order, Receipt, Record

TEXT = "json"
"""The one field of our records."""

NUM_EXAMPLES = "num-examples"
"""Flower's name for the weight of a reply."""

LONGEST_TEXT = 100_000
"""Characters; an order with the most thresholds has a quarter of that."""

GATE_REFUSES, GATE_FAILS = 39_001, 39_002
"""Error codes with which a gate replies to the question who it is: for a reason that stays, such as
a setting or a version, or for one that may pass, such as data that are not mounted yet."""

RAISED = re.compile(r"<class '[^']*?(\w+)'>:<'(.*)'>", re.DOTALL)
"""How Flower's engines write an exception of a client."""

NOT_IN_MODS = "put the gate into ClientApp(mods=[gate])"
"""The error for a training function that asks for samples without a gate in front of it."""

REMEDIES: Mapping[type[Record], str] = {
    Address: "wrap the server's strategy in AdmissionControl",
    Order: "wrap the server's strategy in AdmissionControl",
    Introduction: "put a ClientGate first into the ClientApp's mods",
    Receipt: "put a ClientGate first into the ClientApp's mods",
}
"""What to do if a record of this kind is missing."""

Kind = TypeVar("Kind", bound=Record)


_KEYS: dict[type[Record], str] = {}


def key_of(kind: type[Record]) -> str:
    """Return the key of a record in a message: ``tidegate-order`` and so on."""
    if kind not in _KEYS:
        _KEYS[kind] = f"tidegate-{kind.__name__.lower()}"
    return _KEYS[kind]


def asks_who(content: RecordDict) -> bool:
    """Return whether a message asks a node who it is, without an order."""
    return key_of(Address) in content and key_of(Order) not in content


def attach(content: RecordDict, *records: Record) -> None:
    """Put records into a message."""
    for record in records:
        packed = _packed_order(record) if isinstance(record, Order) else _packed(record)
        content[key_of(type(record))] = packed


def find(content: RecordDict, kind: type[Kind]) -> Kind | None:
    """Return the record of a kind, if there is one; raise ``WireError`` if it is invalid."""
    key = key_of(kind)
    packed = content.get(key)
    if packed is None:
        return None
    text = packed.get(TEXT) if isinstance(packed, ConfigRecord) else None
    if not isinstance(text, str):
        raise WireError(f"{key} is not a ConfigRecord with a text named {TEXT!r}")
    if len(text) > LONGEST_TEXT:
        raise WireError(f"{key} must be at most {LONGEST_TEXT} characters, got {len(text)}")
    return cast("Kind", _read_order(text)) if kind is Order else _read(kind, text)


def expect(content: RecordDict, kind: type[Kind]) -> Kind:
    """Return the record of a kind, or raise ``WireError``."""
    record = find(content, kind)
    if record is None:
        raise WireError(f"the message has no {key_of(kind)}; {REMEDIES[kind]}")
    return record


def reason_of(reply: Message) -> str:
    """Return why a reply is an error, on one line, the class of an exception by its name."""
    text = reply.error.reason or "an error without a reason"
    raised = RAISED.fullmatch(text)
    return on_a_line(": ".join(raised.groups()) if raised else text).removesuffix(".")


def has_model(content: RecordDict) -> bool:
    """Return whether a reply carries arrays."""
    return bool(content.array_records)


def weigh(content: RecordDict, key: str, weight: float) -> None:
    """Give a reply the form that the wrapped strategy expects: no receipt, this weight."""
    del content[key_of(Receipt)]
    measured = content.metric_records.items()
    name, metrics = next(iter(measured), ("metrics", MetricRecord()))
    if metrics.get(key) != weight:
        metrics = metrics.copy()
        metrics[key] = weight
        content[name] = metrics


def _packed(record: Record) -> ConfigRecord:
    return ConfigRecord({TEXT: to_json(record.to_record()).decode()})


@functools.lru_cache(maxsize=100)
def _packed_order(order: Order) -> ConfigRecord:
    return _packed(order)


def _read(kind: type[Kind], text: str) -> Kind:
    try:
        record = from_json(text)
    except (ValueError, TypeError):  # the latter for a text with characters that no text can have
        raise WireError(f"{key_of(kind)} is not JSON") from None
    return kind.from_record(record)


@functools.lru_cache(maxsize=100)
def _read_order(text: str) -> Order:
    return _read(Order, text)
