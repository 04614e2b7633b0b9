"""What can cross the network: a flat mapping of plain values, checked on both sides.

Everything that arrives is checked first: an unknown version, a missing or unknown field, a value of
the wrong kind or out of range is refused with a reason.
"""

import dataclasses
import reprlib
import typing
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Self

from tidegate.errors import WireError

WIRE_VERSION = 1
"""Raised when a record gains or loses a field, or a field changes its meaning; other versions are
refused, never guessed at."""
SAME_VERSION = "install the same version of tidegate on the server and on every node"

LARGEST_INTEGER = 2**63 - 1
"""What a database and a Flower record can hold."""
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
"""Values that a record may hold: those that Flower's records can carry."""

MOST_AGES = 5000
"""The most different ages of samples that a client reports at once."""
AGES: Mapping[str, int] = MappingProxyType({"most": 2 * MOST_AGES})
"""Metadata of a list with two numbers for each age."""


@dataclass(frozen=True, kw_only=True)
class Record:
    """A record that can cross the network: checked when it is created, plain values in transit."""

    def __post_init__(self) -> None:
        _check_kinds(self)
        self._check()

    def _check(self) -> None:
        """Check limits that concern several fields."""

    def to_record(self) -> dict[str, Plain]:
        """Return the record as plain values."""
        record: dict[str, Plain] = {"version": WIRE_VERSION, **vars(self)}
        for name, _ in _shape(type(self)).lists:
            record[name] = list(vars(self)[name])
        return record

    @classmethod
    def from_record(cls, record: Mapping[str, object]) -> Self:
        """Build a record from plain values, or raise ``WireError``."""
        if not isinstance(record, Mapping):
            raise WireError(f"a record is a mapping, got {reprlib.repr(record)}")
        version = record.get("version")
        if type(version) is not int or version != WIRE_VERSION:
            told = f"wire version {reprlib.repr(version)} is not supported, only {WIRE_VERSION}"
            raise WireError(f"{told}: {SAME_VERSION}")
        shape = _shape(cls)
        wrong = record.keys() ^ shape.keys
        if wrong:
            told = f"{cls.__name__} has missing or unknown fields: {reprlib.repr(wrong)}"
            raise WireError(f"{told}; {SAME_VERSION}")
        values: dict[str, Any] = dict(record)
        del values["version"]
        for name, _ in shape.lists:
            if isinstance(values[name], list):
                values[name] = tuple(values[name])
        return cls(**values)


def refusal(name: str, value: object, limit: str) -> WireError:
    """Return the error for a value that is outside its limit."""
    return WireError(f"{name} must be {limit}, got {reprlib.repr(value)}")


@dataclass(frozen=True)
class _Shape:
    """The fields of a kind of record, by what they hold."""

    keys: frozenset[str]
    """Of a record; all are required."""
    names: tuple[tuple[str, bool], ...]
    """Of texts, and whether each may be empty."""
    whole: tuple[str, ...]
    amounts: tuple[str, ...]
    truths: tuple[str, ...]
    lists: tuple[tuple[str, int], ...]
    """Of lists of amounts, and how long each may be."""


_SHAPES: dict[type, _Shape] = {}


def _shape(kind: type[Record]) -> _Shape:
    shape = _SHAPES.get(kind)
    if shape is None:
        shape = _SHAPES[kind] = _look_up(kind)
    return shape


def _look_up(kind: type[Record]) -> _Shape:
    fields = dataclasses.fields(kind)

    def holding(what: type) -> list["dataclasses.Field[Any]"]:
        return [one for one in fields if (typing.get_origin(one.type) or one.type) is what]

    return _Shape(
        keys=frozenset({"version", *(one.name for one in fields)}),
        names=tuple((one.name, one.default == "") for one in holding(str)),
        whole=tuple(one.name for one in holding(int)),
        amounts=tuple(one.name for one in holding(float)),
        truths=tuple(one.name for one in holding(bool)),
        lists=tuple((one.name, one.metadata.get("most", MOST_AMOUNTS)) for one in holding(tuple)),
    )


def _check_kinds(message: Record) -> None:
    """Check that every field has its kind and fits the wire and a database.

    Written out kind by kind: this runs for every message, and a call for every field would cost
    more than everything else that is done with it.
    """
    values, shape = vars(message), _shape(type(message))
    for name, may_be_empty in shape.names:
        value = values[name]
        named = type(value) is str and (value != "" or may_be_empty)
        if not (named and len(value) <= LONGEST_NAME and value.isprintable()):
            raise refusal(name, value, NAME)
    for name in shape.whole:
        value = values[name]
        if type(value) is not int or not 0 <= value <= LARGEST_INTEGER:
            raise refusal(name, value, WHOLE)
    for name in shape.amounts:
        value = values[name]
        if type(value) is not float or not 0 <= value <= LARGEST_AMOUNT:
            raise refusal(name, value, AMOUNT)
    for name in shape.truths:
        if type(values[name]) is not bool:
            raise refusal(name, values[name], "true or false")
    for name, most in shape.lists:
        _check_list(name, values[name], most)


def _check_list(name: str, value: object, most: int) -> None:
    if type(value) is not tuple or len(value) > most:
        raise refusal(name, value, f"a tuple of at most {most}")
    for amount in value:
        if type(amount) is not float or not 0 <= amount <= LARGEST_AMOUNT:
            raise refusal(name, amount, AMOUNT)
