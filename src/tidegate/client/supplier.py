"""Suppliers whose samples arrive later: people who label, laboratories, other departments.

A supplier is asked for samples by their keys and answers in its own time. A purchase is booked
before the supplier is asked, so the books are never behind the bill. It ends in one of two ways:
the supplier delivers, and the sample joins the buffer with the client's next order; or it refuses,
and what the sample was to replace stays.
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
    """The purchase has arrived."""

    key: str
    answer: Any
    """What ``complete`` turns into a sample, such as a label."""


@dataclass(frozen=True)
class Refused:
    """The purchase will never arrive."""

    key: str
    refunded: bool = False
    """Whether the money is refunded."""
    reason: str = ""


Outcome = Delivered | Refused


class Supplier(Protocol):
    """Sells samples that arrive later. Any call may fail, and is then repeated."""

    def ask(self, requests: Sequence[Request]) -> None:
        """Buy these samples. Asking again for a key is the same purchase, and costs nothing."""
        ...

    def collect(self, keys: Sequence[str]) -> Iterable[Outcome]:
        """Return what became of these purchases; nothing for those still under way.

        A client asks until it has stored the answer, perhaps several times.
        """
        ...

    def cancel(self, keys: Sequence[str]) -> Iterable[Outcome]:
        """Cancel these purchases, and return what became of each; some may have arrived after all.

        Those left out are still under way, and are cancelled again with the next order.
        """
        ...

    def complete(self, sample: Any, answer: Any) -> Any:
        """Return the sample to train on, made from the request and the answer."""
        ...
