"""Check what a receipt says about purchases under way: how many are left, and refunds."""

from typing import Protocol

from tidegate.errors import WireError
from tidegate.wire import Receipt

ROUNDING = 1e-9
"""Of sums of money: for each unit of them."""


class Purchases(Protocol):
    """What the server knows about a client's purchases; an account."""

    @property
    def under_way(self) -> int:
        """Samples that were bought and have not arrived yet."""
        ...

    @property
    def under_way_spent(self) -> float:
        """Committed for them."""
        ...

    @property
    def total_refused(self) -> int:
        """Samples that were bought and will never arrive."""
        ...

    @property
    def total_spent(self) -> float:
        """Committed in all."""
        ...

    @property
    def own_refunded(self) -> float:
        """Refunds to the present buffer."""
        ...


def still_under_way(before: Purchases, receipt: Receipt) -> int:
    """Return how many of the earlier purchases a receipt says are still under way."""
    refused = receipt.total_refused - before.total_refused
    left = receipt.under_way - receipt.asked
    if refused < 0 or left + receipt.arrived + refused != before.under_way:
        raise WireError(
            f"of {before.under_way} samples under way, it reports {receipt.arrived} arrived, "
            f"{refused} refused and {left} still under way"
        )
    return left


def refunded(before: Purchases, receipt: Receipt) -> float:
    """Return the refunds of a receipt; at most what was committed for purchases that have ended."""
    new = receipt.total_refunded - before.own_refunded
    committed = before.under_way_spent + receipt.spent * bool(receipt.asked)
    ended = committed - receipt.under_way_spent
    forgiven = ROUNDING * (1 + before.total_spent + receipt.total_spent)
    most = ended if receipt.total_refused > before.total_refused else 0.0
    if not (-forgiven <= new <= most + forgiven and ended >= -forgiven):
        raise WireError(
            f"it reports {new:.6g} refunded and {receipt.under_way_spent:.6g} committed for "
            f"purchases under way, after {committed:.6g}; at most {most:.6g} can have been "
            "refunded"
        )
    return max(new, 0.0)
