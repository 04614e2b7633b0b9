"""Suppliers whose samples come later: people who give labels, laboratories, other departments.

A supplier is asked for samples by their keys and answers in its own time. A purchase is booked
before the supplier is asked, so the books are never behind the bill. It ends in one of two ways:
the supplier delivers, and the sample joins the buffer with the client's next order, or refuses, and
the slot is free again.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol


@dataclass(frozen=True)
class Request:
    """A sample that a supplier is asked for."""

    key: str
    """Names the purchase: run, client and the stream's cursor after the sample."""
    sample: Any
    """As the stream gave it, and the codec stored it."""
    price: float
    """Of the order that bought it."""


@dataclass(frozen=True)
class Delivered:
    """What was bought has come."""

    key: str
    answer: Any
    """What ``complete`` makes a sample of: a label, for instance."""


@dataclass(frozen=True)
class Refused:
    """What was bought will never come."""

    key: str
    refunded: bool = False
    """Whether the money comes back."""
    reason: str = ""


Outcome = Delivered | Refused


class Supplier(Protocol):
    """Where samples are bought that come later. Any call may fail, and is then repeated."""

    def ask(self, requests: Sequence[Request]) -> None:
        """Buy these samples. Asking again for a key is the same purchase, and costs nothing."""
        ...

    def collect(self, keys: Sequence[str]) -> Iterable[Outcome]:
        """What became of these purchases; nothing of those that are still under way.

        A client asks until it has stored the answer, perhaps several times.
        """
        ...

    def cancel(self, keys: Sequence[str]) -> Iterable[Outcome]:
        """Give these purchases up, and say what became of each; some may have come after all.

        What is left out is still under way, and is cancelled again with the next order.
        """
        ...

    def complete(self, sample: Any, answer: Any) -> Any:
        """The sample to train on, made of what was asked and what was answered."""
        ...
