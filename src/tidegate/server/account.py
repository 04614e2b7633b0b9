"""What the server knows of one client: what it has paid, and exactly what its buffer holds.

Every order that a client applies uses each of its samples once. So orders are the clock by which
samples age, and the server reads the same clock as the client: no receipt is believed that cannot
follow from it.
"""

import math
from dataclasses import dataclass, replace

from tidegate._internal.replacing import with_changes
from tidegate.errors import WireError
from tidegate.server.holding import Batches, Holding, together, without_oldest
from tidegate.server.let_go import gone, without
from tidegate.server.under_way import ROUNDING, refunded, still_under_way
from tidegate.wire import MOST_IN_A_ROW, Address, Introduction, Order, Receipt


@dataclass(frozen=True)
class Account:
    """One client's account."""

    buffer_capacity: int
    """B_m, a hard limit on what a receipt may claim to store, and so to admit in a round."""
    buffer_id: str = ""
    """Of the buffer that its orders are for."""
    total_admitted: int = 0
    total_spent: float = 0.0
    """Committed, before refunds."""
    total_refunded: float = 0.0
    last_round: int = 0
    """Of the newest receipt that was booked since the client's books began."""
    earlier_admitted: int = 0
    """Part of the total that belongs to books which the client has lost."""
    earlier_spent: float = 0.0
    earlier_refunded: float = 0.0
    under_way: int = 0
    """Samples that the client has bought and that have not come yet, as far as was heard."""
    under_way_spent: float = 0.0
    """Committed for them."""
    oldest_under_way: int = 0
    """The round that bought the oldest of them; 0 if none is, or the client does not say."""
    supplier_fails: bool = False
    spool_full: bool = False
    spool_dropped: int = 0
    total_refused: int = 0
    """Samples that the present buffer has bought and that will never come."""
    losses: int = 0
    """Buffers that the client has lost."""
    lost_samples: int = 0
    """That may have gone into them, or were set aside: so many were read from the stream."""
    total_set_aside: int = 0
    """Samples that the client has passed over, because they could not be used."""
    earlier_set_aside: int = 0
    """Part of the total that belongs to books which the client has lost."""
    candidates: int = 0
    """That it reads from its stream for an order, if it chooses among them."""
    seen: int = 0
    """Samples of the stream that the present buffer has read, if it chooses among them."""
    last_taken: str = ""
    """Of the newest receipt: a digest of how far the stream was read."""
    lost_after: int = 0
    """The part of ``lost_samples`` that may have been read after that."""
    lost_batches: Batches = ()
    """What may have been in them, from the second on, or left early, and was not bought again."""
    total_expired: int = 0
    """Samples that left the present buffer because they were held for too long."""
    total_erased: int = 0
    """Samples that left it because their subject is forgotten."""
    passed: int = 0
    """Samples of the stream that it passed over, because their subject is forgotten."""
    record: str = ""
    """Digest of the client's own record, up to the order of ``last_round``."""
    applied: int = 0
    """Orders that the client has applied, as far as was heard, or may have to a buffer it lost."""
    batches: Batches = ()
    """What is stored. Every order applied since has used it once."""
    exhausted: bool = False
    """Whether its stream or acquisition gave less than was ordered, and has given nothing since."""
    outstanding: Order | None = None
    """Sent and not answered; the client may have applied it."""
    retired_in: int = 0
    """The round in which an operator took the client out of the fleet; 0 if it belongs to it."""

    def _uses(self, batches: Batches | None = None) -> list[tuple[int, int]]:
        """(how often used, samples) of what is stored, or would be, oldest first."""
        stored = self.batches if batches is None else batches
        return [(self.applied - since, count) for since, count in stored]

    def carried_samples(self, retention_horizon: int) -> int:
        """Samples that are still stored when the client's next round begins.

        Args:
            retention_horizon: K, or 0 where samples do not expire.
        """
        most = retention_horizon or math.inf
        return sum(count for uses, count in self._uses() if uses < most)

    @property
    def paid(self) -> float:
        """All that was committed and has not come back."""
        return self.total_spent - self.total_refunded

    @property
    def own_refunded(self) -> float:
        """What came back to the present buffer, as far as was heard."""
        return self.total_refunded - self.earlier_refunded

    def most_bought(self, order: Order, arrived: int = 0, under_way: int = 0) -> int:
        """Samples that an order can lead the client to buy.

        A rule by age leads to no more than there are slots that are empty, or old enough for the
        price: a client cannot claim to have bought again what it claimed to have bought just now.
        Whatever has arrived since the last order, or is still under way, has a slot already, so
        that without them this is the most in any case.

        Args:
            order: what the client is asked to do.
            arrived: samples bought earlier that join the buffer with this order.
            under_way: samples bought earlier that have not come yet.
        """
        evicts = order.retention == "oldest_first"
        horizon = order.horizon
        kept = tuple(one for one in self.batches if self.applied - one[0] < horizon)
        empty = self.buffer_capacity - sum(count for _, count in kept)
        for taken in (arrived, under_way):  # empty slots first, then the oldest
            kept = without_oldest(kept, max(taken - empty, 0))
            empty = max(empty - taken, 0)
        if not order.thresholds:
            stored = sum(count for _, count in kept)
            return min(order.count, empty + stored if evicts else empty)
        takes = [order.price <= threshold for threshold in order.thresholds]
        last = len(takes) - 1
        old = sum(count for uses, count in self._uses(kept) if takes[min(uses, last)])
        return min(order.count, empty * takes[0] + old)

    def stores_after(self, order: Order, admitted: int) -> "Holding":
        """What the client holds once it has applied an order and taken in so many samples."""
        horizon = order.horizon
        old = tuple(one for one in self.batches if self.applied - one[0] < horizon)
        batches = (*old, *([(self.applied, admitted)] if admitted else []))
        too_many = sum(count for _, count in batches) - self.buffer_capacity
        batches = without_oldest(batches, max(too_many, 0))
        uses = self._uses(batches)
        return Holding(
            batches=batches,
            occupancy=sum(count for _, count in batches),
            expiring=sum(count for used, count in uses if used + 1 >= horizon),
            prior_uses=sum(used * count for used, count in uses),
        )

    def after(self, receipt: Receipt, order: Order) -> "Account":
        """The account once a receipt is booked; one that cannot be the answer is refused."""
        admitted, bought = receipt.admitted, receipt.bought
        left = still_under_way(self, receipt)
        possible = self.most_bought(order, receipt.arrived, left)
        if bought > possible:
            raise WireError(
                f"it reports {bought} samples of round {order.round_number}, where its order can "
                f"have led to {possible} at most"
            )
        back = refunded(self, receipt)
        before = self.total_admitted - self.earlier_admitted
        if receipt.total_admitted != before + admitted:
            raise WireError(
                f"it reports {receipt.total_admitted} samples in all, after {before} and "
                f"{admitted} of round {order.round_number}"
            )
        paid = self.total_spent - self.earlier_spent + receipt.spent
        forgiven = ROUNDING * (1 + self.total_spent + receipt.total_spent)
        if abs(receipt.total_spent - paid) > forgiven:
            raise WireError(f"it reports {receipt.total_spent} spent in all, in place of {paid}")
        most_read = self._most_read(order)
        possible_reads = range(self._read, self._read + (1 + MOST_IN_A_ROW) * most_read + 1)
        if (receipt.seen or self.seen) and receipt.seen not in possible_reads:
            raise WireError(
                f"it reports {receipt.seen} samples read from its stream in all, after "
                f"{self._read} and {most_read} at a time in round {order.round_number}"
            )
        aside, most_aside = self._own_set_aside, self._own_set_aside + MOST_IN_A_ROW * bought
        if receipt.seen:  # what failed when it was read was seen, perhaps by an earlier order
            most_aside = receipt.seen - receipt.total_admitted
        if not aside <= receipt.set_aside <= most_aside:
            raise WireError(
                f"it reports {receipt.set_aside} samples set aside in all, after {aside} and at "
                f"most {most_aside} with round {order.round_number}"
            )
        left_early = gone(self, receipt)
        stays = with_changes(self, batches=without(self.batches, left_early))
        holds = stays.stores_after(order, admitted)
        holds.check(receipt)
        return with_changes(
            self,
            total_admitted=self.total_admitted + admitted,
            # What rounding lets through must not make it fall.
            total_spent=max(self.total_spent, self.earlier_spent + receipt.total_spent),
            total_refunded=self.total_refunded + back,
            under_way=receipt.under_way,
            under_way_spent=receipt.under_way_spent,
            oldest_under_way=receipt.oldest_under_way,
            supplier_fails=receipt.supplier_fails,
            spool_full=receipt.spool_full,
            spool_dropped=receipt.spool_dropped,
            total_refused=receipt.total_refused,
            last_round=receipt.round_number,
            applied=self.applied + 1,
            batches=holds.batches,
            lost_batches=without_oldest(together(self.lost_batches, left_early), bought),
            total_expired=receipt.total_expired,
            total_erased=receipt.total_erased,
            passed=receipt.passed,
            record=receipt.record,
            total_set_aside=self.earlier_set_aside + receipt.set_aside,
            seen=receipt.seen,
            # A client that does not know how far it read has not begun to read.
            last_taken=receipt.last_taken or self.last_taken,
            lost_after=0 if receipt.last_taken else self.lost_after,
            exhausted=receipt.exhausted or (self.exhausted and not bought),
            outstanding=None,
        )

    @property
    def _unheard(self) -> int:
        """Samples that the order which is not answered may have led to."""
        return 0 if self.outstanding is None else self.most_bought(self.outstanding)

    @property
    def exposure(self) -> float:
        """What the order that is not answered may turn out to have cost."""
        return 0.0 if self.outstanding is None else self._unheard * self.outstanding.price

    def with_new_buffer(self, buffer_id: str) -> "Account":
        """The account of a client that has lost its buffer, and its books with it.

        What it may have paid for an order that was never answered counts as spent.
        """
        spent, waits = self.total_spent + self.exposure, self.outstanding is not None
        return Account(
            buffer_capacity=self.buffer_capacity,
            buffer_id=buffer_id,
            total_admitted=self.total_admitted,
            total_spent=spent,
            earlier_admitted=self.total_admitted,
            earlier_spent=spent,
            total_refunded=self.total_refunded,
            earlier_refunded=self.total_refunded,
            losses=self.losses + bool(self._all_batches or self.under_way or waits),
            lost_samples=self.lost_samples + self._read_from_stream(),
            lost_batches=self._lost() if self.losses else (),
            total_set_aside=self.total_set_aside,
            earlier_set_aside=self.total_set_aside,
            last_taken=self.last_taken,
            lost_after=self.lost_after + self._read_unheard,
            applied=self.applied + waits,
        )

    def address(self, run: str, client: str) -> Address:
        """Whom an order is for, and how far the client's books are known here."""
        return Address(
            run=run,
            client=client,
            buffer_id=self.buffer_id,
            booked_round=self.last_round,
            skip=self.lost_samples,
            last_taken=self.last_taken if self.lost_samples else "",
            skip_after=self.lost_after,
        )

    def within_losses(self, order: Order) -> Order:
        """A rule that replaces what was lost as if it were still there."""
        if not (order.thresholds and self.lost_batches):
            return order
        return replace(order, count=replace(self, batches=self._all_batches).most_bought(order))

    @property
    def _all_batches(self) -> Batches:
        """What is stored, and what was lost and not bought again, oldest first."""
        return together(self.lost_batches, self.batches)

    def _read_from_stream(self) -> int:
        """Samples that may have gone into the present buffer, or were passed over before it."""
        return self._read + self.passed + self._read_unheard

    @property
    def _read(self) -> int:
        """Samples of the stream that the present buffer has read, as far as was heard."""
        return self.seen or self.total_admitted - self.earlier_admitted + self._own_set_aside

    @property
    def _read_unheard(self) -> int:
        """Samples that the order which is not answered may have led the client to read."""
        return 0 if self.outstanding is None else self._most_read(self.outstanding)

    def _most_read(self, order: Order) -> int:
        """Samples that an order can lead the client to read, without those that fail."""
        return max(self.most_bought(order), self.candidates)

    def introduced(self, introduction: Introduction) -> "Account":
        """The account once a client has said how far it has read its stream."""
        account = replace(self, candidates=introduction.candidates)
        if introduction.seen <= self._read:
            return account
        # An order that is void now may have filled the buffer, or have had more candidates.
        most_read = max(introduction.candidates, self.candidates, self.buffer_capacity)
        if introduction.seen > self._read + (1 + MOST_IN_A_ROW) * most_read:
            return account  # nobody believes that
        return replace(
            account, seen=introduction.seen, last_taken=introduction.last_taken, lost_after=0
        )

    @property
    def _own_set_aside(self) -> int:
        """Samples that the present buffer has set aside, as far as was heard."""
        return self.total_set_aside - self.earlier_set_aside

    def _lost(self) -> Batches:
        """What a client may have had and lost: all that was booked, and what was not answered."""
        batches = (*self._all_batches, (self.applied, self.under_way + self._unheard))
        too_many = sum(count for _, count in batches) - self.buffer_capacity
        return without_oldest(batches, max(too_many, 0))
