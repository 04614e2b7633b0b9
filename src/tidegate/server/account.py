"""The server's account of one client: what it paid, and exactly what its buffer holds.

Every order that a client applies uses each of its samples once. Samples therefore age by orders.
The server counts them, too, and refuses every receipt that contradicts its count.
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
    """Id of the buffer that its orders are for."""
    total_admitted: int = 0
    total_spent: float = 0.0
    """Committed, before refunds."""
    total_refunded: float = 0.0
    last_round: int = 0
    """Round of the newest receipt booked since the client's books began."""
    earlier_admitted: int = 0
    """Part of the total in books that the client has lost."""
    earlier_spent: float = 0.0
    earlier_refunded: float = 0.0
    under_way: int = 0
    """Samples that the client has bought and that have not arrived yet, by its last receipt."""
    under_way_spent: float = 0.0
    """Committed for them."""
    oldest_under_way: int = 0
    """The round that bought the oldest of them; 0 if there is none or it is not known."""
    supplier_fails: bool = False
    spool_full: bool = False
    spool_dropped: int = 0
    total_refused: int = 0
    """Samples that the present buffer has bought and that will never arrive."""
    losses: int = 0
    """Buffers that the client has lost."""
    lost_samples: int = 0
    """Samples that may have gone into them, or were set aside: the stream was read that far."""
    total_set_aside: int = 0
    """Samples that the client skipped because they could not be used."""
    earlier_set_aside: int = 0
    """Part of the total in books that the client has lost."""
    candidates: int = 0
    """Candidates that it reads from its stream for an order, if it chooses among them."""
    seen: int = 0
    """Samples of the stream that the present buffer has read, if it chooses among them."""
    last_taken: str = ""
    """Digest of how far the stream was read, from the newest receipt."""
    lost_after: int = 0
    """The part of ``lost_samples`` that may have been read after that."""
    lost_batches: Batches = ()
    """What may have been in them, from the second on, or left early, and was not bought again."""
    total_expired: int = 0
    """Samples that left the present buffer because they were held for too long."""
    total_erased: int = 0
    """Samples that left it because their subject is forgotten."""
    passed: int = 0
    """Samples of the stream that it skipped because their subject is forgotten."""
    record: str = ""
    """Digest of the client's own record, up to the order of ``last_round``."""
    applied: int = 0
    """Orders that the client has applied, by its last receipt, or may have to a lost buffer."""
    batches: Batches = ()
    """What it stores. Every order applied since has used it once."""
    exhausted: bool = False
    """Whether its stream or supplier delivered less than ordered, and nothing since."""
    outstanding: Order | None = None
    """The order without a reply, which the client may have applied."""
    retired_in: int = 0
    """The round in which an operator retired the client; 0 if it has not been retired."""

    def _uses(self, batches: Batches | None = None) -> list[tuple[int, int]]:
        """Return (uses, samples) of what is stored, or would be, oldest first."""
        stored = self.batches if batches is None else batches
        return [(self.applied - since, count) for since, count in stored]

    def carried_samples(self, retention_horizon: int) -> int:
        """Return the samples that are still stored when the client's next round begins.

        Args:
            retention_horizon: K, or 0 if samples do not expire.
        """
        most = retention_horizon or math.inf
        return sum(count for uses, count in self._uses() if uses < most)

    @property
    def paid(self) -> float:
        """What the client has committed, less refunds."""
        return self.total_spent - self.total_refunded

    @property
    def own_refunded(self) -> float:
        """Refunds to the present buffer, by the last receipt."""
        return self.total_refunded - self.earlier_refunded

    def most_bought(self, order: Order, arrived: int = 0, under_way: int = 0) -> int:
        """Return the most samples that the client can buy for an order.

        A rule by age fills at most the slots that are empty, or old enough for the price: a client
        cannot claim to have bought again what it claimed to have bought just now. Samples that have
        arrived since the last order, or are still under way, have a slot already, so this is the
        most without them.

        Args:
            order: the client's order.
            arrived: samples bought earlier that join the buffer with this order.
            under_way: samples bought earlier that have not arrived yet.
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
        """Return what the client holds after it applies an order and admits so many samples."""
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
        """Return the account after a receipt; refuse a receipt that cannot be the reply."""
        admitted, bought = receipt.admitted, receipt.bought
        left = still_under_way(self, receipt)
        possible = self.most_bought(order, receipt.arrived, left)
        if bought > possible:
            raise WireError(
                f"it reports {bought} samples for round {order.round_number}, but its order "
                f"allows at most {possible}"
            )
        back = refunded(self, receipt)
        before = self.total_admitted - self.earlier_admitted
        if receipt.total_admitted != before + admitted:
            raise WireError(
                f"it reports {receipt.total_admitted} samples in all, but it had {before} and "
                f"admitted {admitted} in round {order.round_number}"
            )
        paid = self.total_spent - self.earlier_spent + receipt.spent
        forgiven = ROUNDING * (1 + self.total_spent + receipt.total_spent)
        if abs(receipt.total_spent - paid) > forgiven:
            raise WireError(f"it reports {receipt.total_spent} spent in all, not {paid}")
        most_read = self._most_read(order)
        possible_reads = range(self._read, self._read + (1 + MOST_IN_A_ROW) * most_read + 1)
        if (receipt.seen or self.seen) and receipt.seen not in possible_reads:
            raise WireError(
                f"it reports {receipt.seen} samples read from its stream in all, but it had read "
                f"{self._read} and could read at most {most_read} in round {order.round_number}"
            )
        aside, most_aside = self._own_set_aside, self._own_set_aside + MOST_IN_A_ROW * bought
        if receipt.seen:  # samples that failed to be read were seen, perhaps for an earlier order
            most_aside = receipt.seen - receipt.total_admitted
        if not aside <= receipt.set_aside <= most_aside:
            raise WireError(
                f"it reports {receipt.set_aside} samples set aside in all, but it had {aside} and "
                f"could add at most {most_aside} with round {order.round_number}"
            )
        left_early = gone(self, receipt)
        stays = with_changes(self, batches=without(self.batches, left_early))
        holds = stays.stores_after(order, admitted)
        holds.check(receipt)
        return with_changes(
            self,
            total_admitted=self.total_admitted + admitted,
            # A difference within rounding must not make the total fall.
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
            # A client that does not know how far it read has not started to read.
            last_taken=receipt.last_taken or self.last_taken,
            lost_after=0 if receipt.last_taken else self.lost_after,
            exhausted=receipt.exhausted or (self.exhausted and not bought),
            outstanding=None,
        )

    @property
    def _unheard(self) -> int:
        """Return the samples that the order without a reply may have led to."""
        return 0 if self.outstanding is None else self.most_bought(self.outstanding)

    @property
    def exposure(self) -> float:
        """Return what the order without a reply may turn out to have cost."""
        return 0.0 if self.outstanding is None else self._unheard * self.outstanding.price

    def with_new_buffer(self, buffer_id: str) -> "Account":
        """Return the account of a client that has lost its buffer, and its books with it.

        What it may have paid for an order without a reply counts as spent.
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
        """Return the address of an order: the client, and how far its books are known here."""
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
        """Return a rule that replaces lost samples as if they were still there."""
        if not (order.thresholds and self.lost_batches):
            return order
        return replace(order, count=replace(self, batches=self._all_batches).most_bought(order))

    @property
    def _all_batches(self) -> Batches:
        """What is stored, and what was lost and not bought again, oldest first."""
        return together(self.lost_batches, self.batches)

    def _read_from_stream(self) -> int:
        """Samples that may have gone into the present buffer, or were skipped before it."""
        return self._read + self.passed + self._read_unheard

    @property
    def _read(self) -> int:
        """Samples of the stream that the present buffer has read, by the last receipt."""
        return self.seen or self.total_admitted - self.earlier_admitted + self._own_set_aside

    @property
    def _read_unheard(self) -> int:
        """Samples that the client may have read for the order without a reply."""
        return 0 if self.outstanding is None else self._most_read(self.outstanding)

    def _most_read(self, order: Order) -> int:
        """Return the most samples that the client can read for an order, besides failures."""
        return max(self.most_bought(order), self.candidates)

    def introduced(self, introduction: Introduction) -> "Account":
        """Return the account after a client said how far it has read its stream."""
        account = replace(self, candidates=introduction.candidates)
        if introduction.seen <= self._read:
            return account
        # An order that is now void may have filled the buffer, or had more candidates.
        most_read = max(introduction.candidates, self.candidates, self.buffer_capacity)
        if introduction.seen > self._read + (1 + MOST_IN_A_ROW) * most_read:
            return account  # this cannot be true
        return replace(
            account, seen=introduction.seen, last_taken=introduction.last_taken, lost_after=0
        )

    @property
    def _own_set_aside(self) -> int:
        """Samples that the present buffer has set aside, by the last receipt."""
        return self.total_set_aside - self.earlier_set_aside

    def _lost(self) -> Batches:
        """What a client may have lost: everything booked, and the order without a reply."""
        batches = (*self._all_batches, (self.applied, self.under_way + self._unheard))
        too_many = sum(count for _, count in batches) - self.buffer_capacity
        return without_oldest(batches, max(too_many, 0))
