"""What an order leads to at a client, from what its buffer holds and what is under way."""

from collections.abc import Sequence
from dataclasses import dataclass

from tidegate.client.store import Books, StoredSample, last_taken
from tidegate.wire import Order, Receipt


def is_over(uses: int, order: Order) -> bool:
    """Whether a sample that was trained on so often has expired.

    K-step retention counts rounds that its client took part in: what a client has paid for is used
    K times, however long it was away in between.
    """
    return order.retention == "k_step" and uses >= order.retention_horizon


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
        """How many samples an order asks for."""
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
        """What stays beside so many fresh samples: empty slots are filled, then the oldest go."""
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

    @property
    def bought(self) -> int:
        """Samples that the order pays for."""
        return self.admitted - self.arrived + self.asked

    def receipt(self, order: Order, books: Books, kept: Sequence[StoredSample]) -> Receipt:
        """The receipt for the order, from the books afterwards and what stays beside the fresh."""
        old = sum(is_over(one.uses + 1, order) for one in kept)
        new = self.admitted * is_over(1, order)
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
            total_refused=books.total_refused,
            total_refunded=books.total_refunded,
        )
