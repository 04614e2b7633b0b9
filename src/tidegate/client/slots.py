"""What an order leads to at a client, given its buffer and its purchases under way."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tidegate.client.store import Books, StoredSample, last_taken
from tidegate.client.streams.stream import NO_OVERFLOW, Overflow
from tidegate.wire import Order, Receipt


def is_over(uses: int, order: Order) -> bool:
    """Return whether a sample that trained so often has expired.

    Only rounds in which its client took part count: under K-step retention, a client uses what it
    has paid for K times, however long it was away in between, and under a cap of U never more than
    U times, however long it was held.
    """
    return uses >= order.horizon


def most_uses(order: Order) -> int:
    """Return the rounds in which an order lets a sample train; 0 for any number."""
    return 0 if order.retention == "frozen" else order.retention_horizon


def with_unheard(
    kept: Sequence[StoredSample], unheard: Mapping[int, int], order: Order
) -> list[StoredSample]:
    """Return what the server assumes is kept, including samples let go since the last receipt.

    It expects no more purchases than these leave room for, so their slots are filled only after the
    next receipt has reported them.
    """
    gone = [
        StoredSample(-1, 0, uses)
        for uses, count in unheard.items()
        if not is_over(uses, order)
        for _ in range(count)
    ]
    return sorted([*kept, *gone], key=lambda one: -one.uses)


@dataclass(frozen=True)
class Slots:
    """The slots of a buffer when an order comes."""

    capacity: int
    kept: Sequence[StoredSample]
    """What has not expired, oldest first."""
    arrived: int = 0
    """Samples that were bought earlier and join the buffer now."""
    under_way: int = 0
    """Samples that were bought and have not come yet. Each has a slot: an empty one first, then
    that of the oldest sample, which trains until then."""

    def wanted(self, order: Order) -> int:
        """Return how many samples an order asks for."""
        empty, kept = self.capacity - len(self.kept), list(self.kept)
        for taken in (self.arrived, self.under_way):  # empty slots first, then the oldest
            kept = kept[max(taken - empty, 0) :]
            empty = max(empty - taken, 0)
        if order.thresholds:
            cheap = [order.price <= threshold for threshold in order.thresholds]
            old = sum(cheap[min(one.uses, len(cheap) - 1)] for one in kept)
            return min(empty * cheap[0] + old, order.count)
        most = empty + len(kept) if order.retention == "oldest_first" else empty
        return min(order.count, most)

    def left_beside(self, admitted: int) -> list[StoredSample]:
        """Return what stays: fresh samples fill empty slots, then replace the oldest."""
        empty = self.capacity - len(self.kept)
        return list(self.kept[max(admitted - empty, 0) :])


@dataclass(frozen=True)
class Admission:
    """What an order brought in."""

    admitted: int
    """Fresh samples, those that arrived included."""
    arrived: int = 0
    asked: int = 0
    """Bought, and under way from now on."""
    exhausted: bool = False
    """Whether less was bought than the order asked for."""
    oldest_under_way: int = 0
    """The round that bought the oldest sample under way."""
    supplier_fails: bool = False
    overflow: Overflow = NO_OVERFLOW

    @property
    def bought(self) -> int:
        """Samples that the order pays for."""
        return self.admitted - self.arrived + self.asked

    def receipt(
        self,
        order: Order,
        books: Books,
        kept: Sequence[StoredSample],
        unheard: Mapping[int, int],
    ) -> Receipt:
        """Return the receipt for the order.

        Args:
            order: the order.
            books: the books afterwards.
            kept: what stays beside the fresh samples.
            unheard: what was let go since the last receipt, by uses.
        """
        horizon = order.horizon
        old = sum(one.uses + 1 >= horizon for one in kept)
        new = self.admitted * (horizon <= 1)
        return Receipt(
            run=order.run,
            round_number=order.round_number,
            admitted=self.admitted,
            spent=order.price * self.bought,
            occupancy=len(kept) + self.admitted,
            expiring=old + new,
            prior_uses=sum(one.uses for one in kept),
            total_admitted=books.total_admitted,
            total_spent=books.total_spent,
            exhausted=self.exhausted,
            seen=books.total_seen,
            set_aside=books.total_set_aside,
            last_taken=last_taken(books),
            asked=self.asked,
            arrived=self.arrived,
            under_way=books.under_way,
            under_way_spent=books.under_way_spent,
            oldest_under_way=self.oldest_under_way if books.under_way else 0,
            supplier_fails=self.supplier_fails,
            spool_full=self.overflow.full,
            spool_dropped=self.overflow.dropped,
            total_refused=books.total_refused,
            total_refunded=books.total_refunded,
            gone=tuple(float(cell) for row in sorted(unheard.items()) for cell in row),
            total_expired=books.total_expired,
            total_erased=books.total_erased,
            passed=books.total_passed,
            record=books.record_digest,
        )
