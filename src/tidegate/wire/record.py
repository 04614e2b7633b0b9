"""What can cross the network: a flat mapping of plain values, checked on both sides.

Everything that arrives is checked first: an unknown version, a missing or unknown field, a value of
the wrong kind or out of range is refused with a reason.
"""

import dataclasses
import math
import reprlib
import typing
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

from tidegate.errors import WireError

WIRE_VERSION = 1
"""Raised when a record changes; other versions are refused, never guessed at."""
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
MOST_COUNTS = 1000
"""In a list of whole numbers."""
MOST_HEALTH = 50
"""Names of a client's health."""
Health = Mapping[str, float]
"""Numbers by name that are shown and never interpreted."""
Plain = str | int | float | bool | list[float] | list[int] | dict[str, float]
"""Values that a record may hold."""


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
        shape = _shape(type(self))
        for name in (*shape.amount_lists, *shape.count_lists):
            record[name] = list(vars(self)[name])
        for name in shape.healths:
            record[name] = dict(vars(self)[name])
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
        for name in (*shape.amount_lists, *shape.count_lists):
            if isinstance(values.get(name), list):
                values[name] = tuple(values[name])
        return cls(**values)


def refusal(name: str, value: object, limit: str) -> WireError:
    """Return the error for a value that is outside its limit."""
    return WireError(f"{name} must be {limit}, got {reprlib.repr(value)}")


@dataclass(frozen=True)
class _Shape:
    """The fields of a kind of record, by what they hold."""

    keys: frozenset[str]
    """Of a record with all of its fields."""
    names: tuple[tuple[str, bool], ...]
    """Of texts, and whether each may be empty."""
    whole: tuple[str, ...]
    amounts: tuple[str, ...]
    truths: tuple[str, ...]
    amount_lists: tuple[str, ...]
    count_lists: tuple[str, ...]
    healths: tuple[str, ...]


_SHAPES: dict[type, _Shape] = {}


def _shape(kind: type[Record]) -> _Shape:
    shape = _SHAPES.get(kind)
    if shape is None:
        shape = _SHAPES[kind] = _look_up(kind)
    return shape


def _look_up(kind: type[Record]) -> _Shape:
    fields, hints = dataclasses.fields(kind), typing.get_type_hints(kind)

    def holding(what: object) -> tuple["dataclasses.Field[Any]", ...]:
        return tuple(one for one in fields if hints[one.name] == what)

    return _Shape(
        keys=frozenset({"version", *(one.name for one in fields)}),
        names=tuple((one.name, one.default == "") for one in holding(str)),
        whole=tuple(one.name for one in holding(int)),
        amounts=tuple(one.name for one in holding(float)),
        truths=tuple(one.name for one in holding(bool)),
        amount_lists=tuple(one.name for one in holding(tuple[float, ...])),
        count_lists=tuple(one.name for one in holding(tuple[int, ...])),
        healths=tuple(one.name for one in holding(Health)),
    )


def _check_kinds(message: Record) -> None:  # noqa: C901 - a loop for each kind
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
    for name in shape.amount_lists:
        _check_list(name, values[name], float, MOST_AMOUNTS, LARGEST_AMOUNT)
    for name in shape.count_lists:
        _check_list(name, values[name], int, MOST_COUNTS, LARGEST_INTEGER)
    for name in shape.healths:
        _check_health(name, values[name])


def _check_list(
    name: str, values: Any, kind: type[int | float], longest: int, largest: float
) -> None:
    if type(values) is not tuple or len(values) > longest:
        raise refusal(name, values, f"a tuple of at most {longest}")
    if not values:
        return
    # Written for speed: a receipt has hundreds of ages.
    right_kind = set(map(type, values)) == {kind}
    if not right_kind or (kind is float and any(map(math.isnan, values))):
        raise refusal(name, values, f"{kind.__name__}s from 0 to {largest:g}")
    if min(values) < 0 or max(values) > largest:
        raise refusal(name, values, f"{kind.__name__}s from 0 to {largest:g}")


def _check_health(name: str, values: Any) -> None:
    if type(values) is not dict or len(values) > MOST_HEALTH:
        raise refusal(name, values, f"a dictionary of at most {MOST_HEALTH} numbers")
    for key, value in values.items():
        if type(key) is not str or not (key.isidentifier() and len(key) <= LONGEST_NAME):
            raise refusal(f"a name in {name}", key, "a Python identifier")
        if type(value) not in (int, float) or not 0 <= value <= LARGEST_AMOUNT:
            raise refusal(key, value, AMOUNT)
