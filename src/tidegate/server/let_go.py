"""Check what a receipt says about samples that left early: too old, or forgotten."""

from typing import Protocol

from tidegate.errors import WireError
from tidegate.server.holding import Batches
from tidegate.wire import Receipt


class LetGo(Protocol):
    """What the server knows about samples that a client let go; an account."""

    @property
    def applied(self) -> int:
        """Orders that the client has applied."""
        ...

    @property
    def total_expired(self) -> int:
        """Samples that left because they were held for too long."""
        ...

    @property
    def total_erased(self) -> int:
        """Samples that left because their subject is forgotten."""
        ...

    @property
    def passed(self) -> int:
        """Samples of the stream that were skipped."""
        ...


def gone(before: LetGo, receipt: Receipt) -> Batches:
    """Return what left since the last receipt, by the orders applied before it was admitted."""
    then = before.total_expired, before.total_erased, before.passed
    now = receipt.total_expired, receipt.total_erased, receipt.passed
    by_uses = receipt.gone_by_uses()
    told = sum(by_uses.values())
    falls = any(after < earlier for after, earlier in zip(now, then, strict=True))
    if falls or sum(now[:2]) != sum(then[:2]) + told:
        raise WireError(
            f"it reports {told} samples gone, but {now} expired, erased and skipped in all, after "
            f"{then}"
        )
    return tuple(sorted((before.applied - uses, count) for uses, count in by_uses.items()))


def without(batches: Batches, gone: Batches) -> Batches:
    """Return all but the samples that left; refuse if there were fewer."""
    left = dict(batches)
    for since, count in gone:
        if left.get(since, 0) < count:
            raise WireError(
                f"it reports {count} samples gone of those admitted after {since} orders, but it "
                f"had {left.get(since, 0)}"
            )
        left[since] -= count
    return tuple((since, count) for since, count in left.items() if count)
