"""What a client's buffer holds, as batches that age with the orders which the client applies."""

from dataclasses import dataclass

from tidegate.wire import Order

Batches = tuple[tuple[int, int], ...]
"""(orders applied before, samples admitted then), oldest first."""


@dataclass(frozen=True)
class Holding:
    """What a client's buffer holds while it trains."""

    batches: Batches
    occupancy: int
    expiring: int
    prior_uses: int


def horizon_of(order: Order) -> int:
    """K, or 0 where samples do not expire."""
    return order.retention_horizon if order.retention == "k_step" else 0


def without_oldest(batches: Batches, count: int) -> Batches:
    """All but so many of the oldest samples."""
    left = []
    for since, admitted in batches:
        taken = min(count, admitted)
        count -= taken
        if taken < admitted:
            left.append((since, admitted - taken))
    return tuple(left)
