"""Order and receipt: all of ours that crosses the network.

Both turn into a flat mapping of plain values and back. Nothing that arrives is believed before it
has been checked: an unknown version, a missing or unknown field, a value of the wrong kind or out
of range is refused with a reason.
"""

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeVar

WIRE_VERSION = 1
"""Raised when a field changes its meaning; other versions are refused, never guessed at."""

Plain = str | int | float | bool | list[float]
"""What a record may hold: values that Flower's records can carry."""

Retention = Literal["k_step", "frozen", "oldest_first"]
RETENTIONS: tuple[Retention, ...] = ("k_step", "frozen", "oldest_first")


Message = TypeVar("Message", bound="Order | Receipt")


class WireError(ValueError):
    """A record that is not believed, and why."""


@dataclass(frozen=True, kw_only=True)
class Order:
    """What one client is asked to do in one round: admit a count, or apply a rule.

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
    """K; 0 where the retention rule has none."""
    count: int = 0
    """Samples to admit, if no thresholds are given."""
    thresholds: tuple[float, ...] = ()
    """A rule in place of a count: the price up to which a slot takes a fresh sample, for an empty
    slot first, then by the age of the sample that would make room; the last one for all older."""

    def __post_init__(self) -> None:
        _need(bool(self.run), "run", self.run, "a name")
        _need(self.round_number >= 1, "round_number", self.round_number, "at least 1")
        _need(_is_amount(self.price), "price", self.price, "0 or more and finite")
        _need(self.retention in RETENTIONS, "retention", self.retention, "a known rule")
        least = 1 if self.retention == "k_step" else 0
        horizon = self.retention_horizon
        _need(horizon >= least, "retention_horizon", horizon, f"at least {least}")
        _need(self.count >= 0, "count", self.count, "0 or more")
        for threshold in self.thresholds:
            _need(_is_amount(threshold), "thresholds", threshold, "0 or more and finite")
        if self.thresholds:
            _need(not self.count, "count", self.count, "0 beside a rule: one or the other")
            evicts = self.retention == "oldest_first"
            _need(evicts, "retention", self.retention, "oldest_first where thresholds are given")

    def to_record(self) -> dict[str, Plain]:
        """The order as plain values."""
        return _to_record(self)

    @classmethod
    def from_record(cls, record: Mapping[str, object]) -> "Order":
        """The order that a record holds, or a ``WireError``."""
        return _from_record(cls, record)


@dataclass(frozen=True, kw_only=True)
class Receipt:
    """What an order led to, and what the client has admitted and paid in all.

    The totals are cumulative, so a receipt that was lost is made good by the next one.
    """

    run: str
    round_number: int
    """Of the order that it answers."""
    admitted: int
    """Fresh samples of this round."""
    spent: float
    """Paid for them."""
    occupancy: int
    """n_m(t), samples trained on in this round."""
    expiring: int
    """Those of them that are gone before the next round."""
    prior_uses: int
    """Sum, over the stored samples, of the earlier rounds each was trained on."""
    total_admitted: int
    total_spent: float
    exhausted: bool = False
    """The stream, or the acquisition, gave fewer samples than were asked for."""

    def __post_init__(self) -> None:
        _need(bool(self.run), "run", self.run, "a name")
        _need(self.round_number >= 1, "round_number", self.round_number, "at least 1")
        for name in ("admitted", "occupancy", "expiring", "prior_uses", "total_admitted"):
            value = getattr(self, name)
            _need(value >= 0, name, value, "0 or more")
        for name in ("spent", "total_spent"):
            value = getattr(self, name)
            _need(_is_amount(value), name, value, "0 or more and finite")
        stored = f"at most the occupancy {self.occupancy}"
        _need(self.admitted <= self.occupancy, "admitted", self.admitted, stored)
        _need(self.expiring <= self.occupancy, "expiring", self.expiring, stored)
        in_all = f"at least this round's {self.admitted}"
        _need(self.total_admitted >= self.admitted, "total_admitted", self.total_admitted, in_all)
        paid = f"at least this round's {self.spent}"
        rounding = 1e-9 * (1 + self.spent)
        _need(self.total_spent >= self.spent - rounding, "total_spent", self.total_spent, paid)

    def to_record(self) -> dict[str, Plain]:
        """The receipt as plain values."""
        return _to_record(self)

    @classmethod
    def from_record(cls, record: Mapping[str, object]) -> "Receipt":
        """The receipt that a record holds, or a ``WireError``."""
        return _from_record(cls, record)

    def check_answers(self, order: Order, *, buffer_capacity: int | None = None) -> None:
        """Refuse a receipt that cannot be the answer to this order.

        Args:
            order: the newest order that the client was sent.
            buffer_capacity: B_m where it is a hard limit.
        """
        _need(self.run == order.run, "run", self.run, f"the order's {order.run!r}")
        now = order.round_number
        _need(self.round_number <= now, "round_number", self.round_number, f"at most {now}")
        if self.round_number == now and not order.thresholds:
            _need(self.admitted <= order.count, "admitted", self.admitted, f"<= {order.count}")
        if buffer_capacity is not None:
            limit = f"at most the capacity {buffer_capacity}"
            _need(self.occupancy <= buffer_capacity, "occupancy", self.occupancy, limit)


def _is_amount(value: float) -> bool:
    return math.isfinite(value) and value >= 0


def _need(fulfilled: bool, name: str, value: object, limit: str) -> None:
    if not fulfilled:
        raise WireError(f"{name} must be {limit}, got {value!r}")


def _to_record(message: Order | Receipt) -> dict[str, Plain]:
    record: dict[str, Plain] = {"version": WIRE_VERSION}
    for entry in dataclasses.fields(message):
        value = getattr(message, entry.name)
        record[entry.name] = list(value) if isinstance(value, tuple) else value
    return record


def _from_record(kind: type[Message], record: Mapping[str, object]) -> Message:
    version = record.get("version")
    if version != WIRE_VERSION:
        raise WireError(f"version {version!r} is not understood, only {WIRE_VERSION}")
    entries = {entry.name: entry for entry in dataclasses.fields(kind)}
    wrong = set(record) ^ {"version", *entries}
    if wrong:
        raise WireError(f"{kind.__name__} has missing or unknown fields: {sorted(wrong)}")
    return kind(**{name: _value(name, entry.type, record[name]) for name, entry in entries.items()})


def _value(name: str, kind: object, value: object) -> Any:
    """The value, if it is of the kind that the field is declared with."""
    if kind is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if kind == tuple[float, ...] and isinstance(value, list):
        return tuple(_value(name, float, item) for item in value)
    wanted = kind if isinstance(kind, type) else str
    if type(value) is not wanted:
        raise WireError(f"{name} must be of kind {wanted.__name__}, got {value!r}")
    return value
