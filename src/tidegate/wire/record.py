"""What can cross the network: a flat mapping of plain values, checked on both sides.

Nothing that arrives is believed before it has been checked: an unknown version, a missing or
unknown field, a value of the wrong kind or out of range is refused with a reason.
"""

import dataclasses
import reprlib
import typing
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Self, TypeVar

from tidegate.errors import WireError

WIRE_VERSION = 2
"""Raised when a field changes its meaning; other versions are refused, never guessed at. A field
that is new and may be missing (``ADDED``) does not raise it, so that saved files stay readable; a
peer that does not know the field refuses the record, and must be upgraded all the same."""
SAME_VERSION = "install the same version of tidegate on the server and on every node"

LARGEST_INTEGER = 2**63 - 1
"""What a database and a Flower record can carry."""
LARGEST_AMOUNT = 1e15
"""Of money or price: beyond it a float can no longer count cents."""
LONGEST_NAME = 200
"""Characters: a name goes into logs, file names and every message."""
NAME = f"a name of at most {LONGEST_NAME} printable characters"
WHOLE = f"a whole number from 0 to {LARGEST_INTEGER}"
AMOUNT = f"a float from 0 to {LARGEST_AMOUNT:g}"
MOST_AMOUNTS = 1001
"""In a list. Of thresholds: one for an empty slot, and a thousand ages."""
Plain = str | int | float | bool | list[float]
"""What a record may hold: values that Flower's records can carry."""

ADDED: Mapping[str, bool] = MappingProxyType({"added": True})
"""Metadata of a field that records of this wire version once did not have: it may be missing."""
MOST_AGES = 5000
"""Different ages of samples that a client tells of at once."""
AGES: Mapping[str, int] = MappingProxyType({"added": True, "most": 2 * MOST_AGES})
"""Metadata of an added list with two numbers for each age."""

Kind = TypeVar("Kind", bound="Record")


@dataclass(frozen=True, kw_only=True)
class Record:
    """What can cross the network: checked when it is made, and plain values when it travels."""

    def __post_init__(self) -> None:
        _check_kinds(self)
        self._check()

    def _check(self) -> None:
        """Limits that concern several fields."""

    def to_record(self) -> dict[str, Plain]:
        """Itself as plain values."""
        return _to_record(self)

    @classmethod
    def from_record(cls, record: Mapping[str, object]) -> Self:
        """What a record holds, or a ``WireError``."""
        return _from_record(cls, record)


def need(fulfilled: bool, name: str, value: object, limit: str) -> None:
    """Refuse a value that is not what it must be."""
    if not fulfilled:
        raise WireError(f"{name} must be {limit}, got {reprlib.repr(value)}")


def _check_kinds(message: Record) -> None:
    """Every field is of its own kind and within what the wire and a database can carry."""
    for name, kind, optional, _, most in _fields(type(message)):
        value = getattr(message, name)
        if kind is str:
            named = type(value) is str and (value != "" or optional)
            short = named and len(value) <= LONGEST_NAME and value.isprintable()
            need(short, name, value, NAME)
        elif kind is int:
            whole = type(value) is int and 0 <= value <= LARGEST_INTEGER
            need(whole, name, value, WHOLE)
        elif kind is float:
            _need_amount(name, value)
        elif kind is bool:
            need(type(value) is bool, name, value, "true or false")
        elif kind is tuple:
            listed = type(value) is tuple and len(value) <= most
            need(listed, name, value, f"a tuple of at most {most}")
            for amount in value:
                _need_amount(name, amount)


_Fields = tuple[tuple[str, object, bool, bool, int], ...]
_FIELDS: dict[type, _Fields] = {}


def _fields(kind: type[Record]) -> _Fields:
    """Of every field: name, kind, whether it may be empty or missing, and the longest list."""
    if kind not in _FIELDS:
        _FIELDS[kind] = _look_up(kind)
    return _FIELDS[kind]


def _look_up(kind: type[Record]) -> _Fields:
    return tuple(
        (
            one.name,
            typing.get_origin(one.type) or one.type,
            one.default == "",
            "added" in one.metadata,
            one.metadata.get("most", MOST_AMOUNTS),
        )
        for one in dataclasses.fields(kind)
    )


def _need_amount(name: str, value: object) -> None:
    amount = type(value) is float and 0 <= value <= LARGEST_AMOUNT
    need(amount, name, value, AMOUNT)


def _to_record(message: Record) -> dict[str, Plain]:
    record: dict[str, Plain] = {"version": WIRE_VERSION}
    for name, *_ in _fields(type(message)):
        value = getattr(message, name)
        record[name] = list(value) if isinstance(value, tuple) else value
    return record


def _from_record(kind: type[Kind], record: Mapping[str, object]) -> Kind:
    if not isinstance(record, Mapping):
        raise WireError(f"a record is a mapping, got {reprlib.repr(record)}")
    version = record.get("version")
    if type(version) is not int or version != WIRE_VERSION:
        told = f"version {reprlib.repr(version)} is not understood, only {WIRE_VERSION}"
        raise WireError(f"{told}: {SAME_VERSION}")
    names = [name for name, *_, added, _ in _fields(kind) if name in record or not added]
    wrong = record.keys() ^ {"version", *names}
    if wrong:
        told = f"{kind.__name__} has missing or unknown fields: {reprlib.repr(wrong)}"
        raise WireError(f"{told}; {SAME_VERSION}")
    values: dict[str, Any] = {name: record[name] for name in names}
    lists = {name: tuple(value) for name, value in values.items() if isinstance(value, list)}
    return kind(**{**values, **lists})
