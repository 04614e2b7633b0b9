"""Everything of ours that crosses the network: orders, receipts, and who is speaking to whom.

Each is a flat mapping of plain values. Everything that arrives is checked first: an unknown
version, a missing or unknown field, a value of the wrong kind or out of range is refused with a
reason.
"""

import dataclasses
import hashlib
import itertools
import json
import math
import reprlib
import typing
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Self

from tidegate.errors import WireError

__all__ = [
    "HEALTH",
    "LARGEST_AMOUNT",
    "LARGEST_CAPACITY",
    "LARGEST_INTEGER",
    "LONGEST_NAME",
    "MOST_AGES",
    "MOST_AMOUNTS",
    "MOST_CANDIDATES",
    "MOST_IN_A_ROW",
    "MOST_PASSED",
    "NO_LIMIT",
    "WIRE_VERSION",
    "Address",
    "Health",
    "Introduction",
    "Order",
    "Plain",
    "Receipt",
    "Record",
    "Retention",
    "cursor_digest",
]

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
LARGEST_CAPACITY = 100_000_000
"""Samples of one client: counts of its admissions are kept in 4 bytes, far from their end."""
NO_LIMIT = 2**31 - 1
"""A count that nothing exceeds: what 4 bytes hold."""
MOST_IN_A_ROW = 20
"""Samples, one after another, that a client sets aside. A longer row of failures is a fault of the
source (a share that is not mounted, a codec that fits nothing), and costs no sample."""
MOST_CANDIDATES = 100_000
"""That a client reads for an order: what it reads and sets aside is believed in proportion."""
MOST_AGES = 800
"""Ages that a receipt tells apart: as many as a rule has thresholds for stored samples."""
MOST_PASSED = 1000
"""Samples of forgotten subjects that a client skips for an order."""
HEALTH = {
    "set_aside": "samples that could not be used",
    "expired": "samples held for too long",
    "erased": "samples of forgotten subjects",
    "at_ceiling": "1 if its own ceiling cut an order",
    "waiting_since": "round of the oldest purchase",
    "failing_suppliers": "1 if the supplier did not reply",
    "full_spools": "1 if the stream has no room",
    "spool_dropped": "messages dropped unread",
}
"""What the gate reports of itself, and what it means."""
DIGEST_LENGTH = 16
"""Hexadecimal digits: enough to tell the cursors of one stream apart."""

Retention = Literal["k_step", "frozen", "oldest_first"]
RETENTIONS: tuple[Retention, ...] = ("k_step", "frozen", "oldest_first")


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
        shape = _shape_of(type(self))
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
            reason = f"wire version {reprlib.repr(version)} is not supported, only {WIRE_VERSION}"
            raise WireError(f"{reason}: {SAME_VERSION}")
        shape = _shape_of(cls)
        wrong = record.keys() ^ shape.keys
        if wrong:
            reason = f"{cls.__name__} has missing or unknown fields: {reprlib.repr(wrong)}"
            raise WireError(f"{reason}; {SAME_VERSION}")
        values: dict[str, Any] = dict(record)
        del values["version"]
        for name in (*shape.amount_lists, *shape.count_lists):
            if isinstance(values.get(name), list):
                values[name] = tuple(values[name])
        return cls(**values)


def _refusal(name: str, value: object, limit: str) -> WireError:
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


def _shape_of(kind: type[Record]) -> _Shape:
    shape = _SHAPES.get(kind)
    if shape is None:
        shape = _SHAPES[kind] = _look_up(kind)
    return shape


def _look_up(record: type[Record]) -> _Shape:
    fields, hints = dataclasses.fields(record), typing.get_type_hints(record)

    def holding(kind: object) -> tuple["dataclasses.Field[Any]", ...]:
        return tuple(item for item in fields if hints[item.name] == kind)

    return _Shape(
        keys=frozenset({"version", *(item.name for item in fields)}),
        names=tuple((item.name, item.default == "") for item in holding(str)),
        whole=tuple(item.name for item in holding(int)),
        amounts=tuple(item.name for item in holding(float)),
        truths=tuple(item.name for item in holding(bool)),
        amount_lists=tuple(item.name for item in holding(tuple[float, ...])),
        count_lists=tuple(item.name for item in holding(tuple[int, ...])),
        healths=tuple(item.name for item in holding(Health)),
    )


def _check_kinds(message: Record) -> None:  # noqa: C901 - a loop for each kind
    """Check that every field has its kind and fits the wire and a database.

    Written out kind by kind: this runs for every message, and a call for every field would cost
    more than everything else that is done with it.
    """
    values, shape = vars(message), _shape_of(type(message))
    for name, may_be_empty in shape.names:
        value = values[name]
        named = type(value) is str and (value != "" or may_be_empty)
        if not (named and len(value) <= LONGEST_NAME and value.isprintable()):
            raise _refusal(name, value, NAME)
    for name in shape.whole:
        value = values[name]
        if type(value) is not int or not 0 <= value <= LARGEST_INTEGER:
            raise _refusal(name, value, WHOLE)
    for name in shape.amounts:
        value = values[name]
        if type(value) is not float or not 0 <= value <= LARGEST_AMOUNT:
            raise _refusal(name, value, AMOUNT)
    for name in shape.truths:
        if type(values[name]) is not bool:
            raise _refusal(name, values[name], "true or false")
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
        raise _refusal(name, values, f"a tuple of at most {longest}")
    if not values:
        return
    # Written for speed: a receipt has hundreds of ages.
    right_kind = set(map(type, values)) == {kind}
    if not right_kind or (kind is float and any(map(math.isnan, values))):
        raise _refusal(name, values, f"{kind.__name__}s from 0 to {largest:g}")
    if min(values) < 0 or max(values) > largest:
        raise _refusal(name, values, f"{kind.__name__}s from 0 to {largest:g}")


def _check_health(name: str, values: Any) -> None:
    if type(values) is not dict or len(values) > MOST_HEALTH:
        raise _refusal(name, values, f"a dictionary of at most {MOST_HEALTH} numbers")
    for key, value in values.items():
        if type(key) is not str or not (key.isidentifier() and len(key) <= LONGEST_NAME):
            raise _refusal(f"a name in {name}", key, "a Python identifier")
        if type(value) not in (int, float) or not 0 <= value <= LARGEST_AMOUNT:
            raise _refusal(key, value, AMOUNT)


@dataclass(frozen=True, kw_only=True)
class Order(Record):
    """What the server asks of one client in one round: admit a count, or apply a rule.

    >>> order = Order(run="r1", round_number=3, price=2.5, retention_horizon=10, count=4)
    >>> Order.from_record(order.to_record()) == order
    True
    """

    run: str
    round_number: int
    """t, from 1."""
    price: float
    """Of one sample, for this client."""
    retention: Retention = "k_step"
    retention_horizon: int = 0
    """Rounds of training after which a sample leaves: K, or under ``oldest_first`` a cap on uses; 0
    for none."""
    count: int = 0
    """Samples to admit; beside thresholds the most that they may lead to, ``NO_LIMIT`` for any."""
    thresholds: tuple[float, ...] = ()
    """A rule in place of a count: the price up to which a slot takes a fresh sample. The first is
    for an empty slot; number u is for a slot whose sample was trained on in u rounds, the last one
    also for all that were used more often. From the second on they do not fall. What is taken in
    fills empty slots first; then the oldest samples make room."""

    @property
    def evicts(self) -> bool:
        """Whether fresh samples take the place of stored ones."""
        return self.retention == "oldest_first"

    @property
    def horizon(self) -> float:
        """Rounds of training after which a sample leaves; infinity where none does."""
        return (self.retention != "frozen" and self.retention_horizon) or math.inf

    def _check(self) -> None:
        if self.round_number < 1:
            raise _refusal("round_number", self.round_number, "at least 1")
        if self.retention not in RETENTIONS:
            raise _refusal("retention", self.retention, "a known rule")
        least = 1 if self.retention == "k_step" else 0
        if self.retention_horizon < least:
            raise _refusal("retention_horizon", self.retention_horizon, f"at least {least}")
        rule = self.thresholds
        if rule and self.retention != "oldest_first":
            raise _refusal("retention", self.retention, "oldest_first where thresholds are given")
        if not all(first <= second for first, second in itertools.pairwise(rule[1:])):
            raise _refusal("thresholds", rule, "not falling from the second on")


@dataclass(frozen=True, kw_only=True)
class Receipt(Record):
    """What a client has bought, paid and holds after an order.

    *Money* and *holding* are checked against the order and the receipt before it. *Health* is kept,
    summed and shown, and nothing is decided by it. Money is counted from the beginning of the
    buffer, so that the newest receipt says all.
    """

    run: str
    round_number: int
    """Of the order that it answers; 0 before the first."""
    bought: int = 0
    """Samples bought in all."""
    admitted: int = 0
    """Those of them that have arrived, and trained."""
    refused: int = 0
    """Those of them that will never arrive."""
    spent: float = 0.0
    """Committed in all, before refunds."""
    refunded: float = 0.0
    """The part of it that was paid back."""
    under_way_spent: float = 0.0
    """Committed for the samples under way: bought, and neither admitted nor refused."""
    holding: tuple[int, ...] = ()
    """The planned buffer (``tidegate.buffer``): samples by age, from age 1 on. The last of
    ``MOST_AGES`` counts all that are as old or older."""
    expiring: int = 0
    """The oldest of them, which leave the plan before the next order."""
    occupancy: int = 0
    """n_m(t), samples stored and trained on in this round."""
    uses: int = 0
    """Sum, over the stored samples, of the rounds that each has trained in, with this one."""
    read: int = 0
    """Samples of the stream that this buffer has read in all, whatever became of them."""
    is_dry: bool = False
    """The stream, or the supplier, delivered fewer samples than were asked for."""
    last_taken: str = ""
    """``cursor_digest`` of how far the stream was read; empty if unknown."""
    record: str = ""
    """Digest of the client's record up to this order; empty if it keeps none."""
    health: Health = field(default_factory=dict)
    """How the client is, by name: ``HEALTH`` says what Tidegate's own gate reports."""

    @classmethod
    def begun(cls, run: str, holding: Sequence[int]) -> Self:
        """Return what stands in place of a receipt before the first order.

        Args:
            run: of the client.
            holding: samples of earlier runs that the buffer began with, by the rounds that each has
                trained in.
        """
        uses = sum(age * count for age, count in enumerate(holding, start=1))
        return cls(
            run=run,
            round_number=0,
            holding=tuple(holding),
            occupancy=sum(holding),
            uses=uses,
        )

    @property
    def under_way(self) -> int:
        """Samples that were bought and have not ended."""
        return self.bought - self.admitted - self.refused

    @property
    def paid(self) -> float:
        """What was committed, less refunds."""
        return self.spent - self.refunded

    def _check(self) -> None:
        if len(self.holding) > MOST_AGES:
            raise _refusal("holding", len(self.holding), f"of at most {MOST_AGES} ages")


@dataclass(frozen=True, kw_only=True)
class Address(Record):
    """The client that a message is for; sent with every order, and alone to unknown clients."""

    run: str
    client: str = ""
    """The name that the server has for the client; empty if it leaves that to the client."""
    fingerprint: str = ""
    """Of the node's public key, if it has one: a name for a client that has no other."""
    buffer_id: str = ""
    """The buffer that an order is for, as the client introduced it. A client with another one has
    lost this one, and must not buy anything before the server knows."""
    booked_round: int = 0
    """The newest round whose receipt the server has; a buffer that is behind it is an old copy."""
    void_round: int = 0
    """To a client it does not know: apply no order up to this round any more."""
    skip: int = 0
    """Samples at the beginning of the stream that lost buffers took or set aside: a new one must
    not take them again."""
    last_taken: str = ""
    """Of the newest receipt of a lost buffer: how far that had read the stream."""
    skip_after: int = 0
    """The part of ``skip`` that may have been taken after ``last_taken``, by an order that was
    never answered."""


@dataclass(frozen=True, kw_only=True)
class Introduction(Record):
    """What a client says of itself when it joins; its newest receipt, if any, goes beside it."""

    run: str
    client: str
    buffer_capacity: int
    """B_m, samples that it will never exceed."""
    buffer_id: str
    """Of the buffer that it has now."""
    train_on: int = 0
    """The most samples that train in a round, the least used ones; 0 for all."""
    void_round: int = 0
    """It will apply no order up to this round that it has not applied before."""
    candidates: int = 0
    """That it reads from its stream for an order, if it chooses among them."""
    read: int = 0
    """As in a receipt; an order that was never answered may have read some more."""
    last_taken: str = ""
    """As in a receipt."""
    holding: tuple[int, ...] = ()
    """As in a receipt: what the buffer began with, from an earlier run."""

    def _check(self) -> None:
        if len(self.holding) > MOST_AGES or sum(self.holding) > self.buffer_capacity:
            limit = f"of at most {MOST_AGES} ages, and within the capacity"
            raise _refusal("holding", self.holding, limit)
        if self.candidates > MOST_CANDIDATES:
            raise _refusal("candidates", self.candidates, f"at most {MOST_CANDIDATES}")
        if self.buffer_capacity < 1:
            raise _refusal("buffer_capacity", self.buffer_capacity, "at least 1")
        if self.train_on >= self.buffer_capacity:
            raise _refusal("train_on", self.train_on, "less than the capacity, or 0 for all")
        if self.buffer_capacity > LARGEST_CAPACITY:
            most = f"at most {LARGEST_CAPACITY}; count larger units (batches) in place of samples"
            raise _refusal("buffer_capacity", self.buffer_capacity, most)


def cursor_digest(run: str, client: str, cursor: str) -> str:
    """Return how far a stream was read without revealing it: a cursor may be a file name.

    >>> cursor_digest("run-1", "site-0", "patient-17.dcm")
    '215478a70fbccbe5'
    """
    text = json.dumps([run, client, cursor])
    return hashlib.sha256(text.encode()).hexdigest()[:DIGEST_LENGTH]
