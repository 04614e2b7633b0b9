"""What a client's buffer holds, in batches that age with each order that the client applies."""

from dataclasses import dataclass

from tidegate.errors import WireError
from tidegate.wire import Receipt

Batches = tuple[tuple[int, int], ...]
"""(orders applied before, samples admitted then), oldest first."""


@dataclass(frozen=True)
class Holding:
    """What a client's buffer holds while it trains."""

    batches: Batches
    occupancy: int
    expiring: int
    prior_uses: int

    def check(self, receipt: Receipt) -> None:
        """Refuse a receipt that contradicts this."""
        if (receipt.occupancy, receipt.expiring) != (self.occupancy, self.expiring):
            raise WireError(
                f"it must store {self.occupancy} samples, of which {self.expiring} expire; it "
                f"reports {receipt.occupancy} and {receipt.expiring}"
            )
        if receipt.prior_uses != self.prior_uses:
            raise WireError(
                f"its samples were used {self.prior_uses} times before; it reports "
                f"{receipt.prior_uses}"
            )


def without_oldest(batches: Batches, count: int) -> Batches:
    """Return all but so many of the oldest samples."""
    left = []
    for since, admitted in batches:
        taken = min(count, admitted)
        count -= taken
        if taken < admitted:
            left.append((since, admitted - taken))
    return tuple(left)


def together(some: Batches, others: Batches) -> Batches:
    """Merge the batches of both, oldest first.

    >>> together(((0, 2), (3, 1)), ((0, 1), (1, 5)))
    ((0, 3), (1, 5), (3, 1))
    """
    sums = dict(some)
    for since, count in others:
        sums[since] = sums.get(since, 0) + count
    return tuple(sorted(sums.items()))
