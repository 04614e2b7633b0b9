"""The gate: turns an order into fresh samples and a receipt, on a client.

Admitting is where money is spent. The gate applies an order once, however often it arrives; it
never stores more samples than the buffer holds; and the store has everything that it did, in one
piece, before it replies.
"""

import logging
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from tidegate import buffer
from tidegate.client.choosing import Chooser, Worth, dry_now
from tidegate.client.limits import duration
from tidegate.client.purchasing import Purchasing, Settled
from tidegate.client.store import (
    Books,
    BooksMovedError,
    Candidate,
    Change,
    FailedSample,
    Store,
    StoredSample,
    last_taken,
)
from tidegate.client.streams import Confirms, Limited, Stream, TakenBefore, pass_over
from tidegate.client.streams.stream import Overflows, overflow_of
from tidegate.client.supplier import Supplier
from tidegate.client.taking import Acquire, Subject, Taken, Taker
from tidegate.errors import ConfigurationError, WireError
from tidegate.selection import Selection
from tidegate.wire import Address, Order, Receipt, cursor_digest

MOST_UNDER_WAY = 10_000
"""Purchases of a client that may be under way."""

logger = logging.getLogger("flwr.tidegate")
"""Below Flower's own, so that it is seen wherever Flower's log is; without Flower a plain name."""


def check_one_source(acquire: object, supplier: object) -> None:
    """Refuse a gate with both a hook for immediate samples and a supplier of later ones."""
    if supplier is not None and acquire is not None:
        raise ConfigurationError(
            "give the gate either acquire, for samples that are available at once, or a "
            "supplier, for samples that arrive later, not both"
        )


class Gate:
    """Stream, store and acquisition of one client in one run."""

    def __init__(
        self,
        store: Store,
        stream: Stream,
        acquire: Acquire | None = None,
        selection: Selection | None = None,
        supplier: Supplier | None = None,
        give_up_after: int | None = None,
        keep_at_most: str | None = None,
        subject: Subject | None = None,
    ) -> None:
        """Connect a stream with a store.

        Args:
            store: the client's buffer.
            stream: where fresh samples come from.
            acquire: pays for and obtains a sample, called once for each admitted one; see
                ``Acquire``.
            selection: how the client chooses among candidates; None to take samples as they come.
            supplier: delivers samples later; in place of ``acquire``.
            give_up_after: rounds after which a purchase that has not arrived is cancelled.
            keep_at_most: how long the device may hold a sample, such as ``"30d"``; None for any
                time. Older samples are not handed out, and are deleted at the next opportunity.
            subject: returns whom or what a sample is about, so that it can be forgotten; given the
                sample as the stream has it.
        """
        check_one_source(acquire, supplier)
        self._store = store
        self._stream = stream
        self._keep = 0 if keep_at_most is None else duration(keep_at_most)
        store.keep_at_most(self._keep)
        if subject is not None:
            store.whose("")  # refuse a device that has lost its key before reading anything
        if isinstance(stream, Limited):
            stream.keep_at_most(self._keep)
            stream.name_subjects(subject)
        # Asked once: checking a protocol takes longer than applying an order.
        self._confirms = stream if isinstance(stream, Confirms) else None
        self._overflows = stream if isinstance(stream, Overflows) else None
        self._start = stream.cursor
        books = store.books()
        self._taker = Taker(store, stream, acquire, f"{books.run}/{books.client}", subject)
        self._chooser = Chooser(store, stream, self._taker, selection)
        self._selects = selection is not None
        self._purchasing = None if supplier is None else Purchasing(store, supplier, give_up_after)

    def apply(
        self, order: Order, address: Address | None = None, worth: Worth | None = None
    ) -> Receipt:
        """Apply an order; the same order again returns the same receipt and changes nothing.

        Args:
            order: the order.
            address: came with the order. It says what lost buffers have taken from the stream; the
                first order of the next buffer starts after that.
            worth: rates candidates, if the gate has a selection; without it all are worth the same.
        """
        self._store.let_go()
        books = self._store.books()
        if order.run != books.run:
            raise WireError(f"this gate serves run {books.run!r}, not {order.run!r}")
        if order.round_number <= books.last_round:
            return self._answer_again(order, books.last_round)
        if order.round_number <= books.void_round:
            raise WireError(
                f"round {order.round_number} is void: the server no longer expects orders up to "
                f"round {books.void_round} to be applied"
            )
        # The books know how far the stream was read, whatever happened to this process since.
        place = self._start if books.cursor is None else books.cursor
        if place != self._stream.cursor:
            self._stream.seek(place)
        self._confirm(books)
        begun = books.cursor is not None or self._skip(books, address)
        stored, newest = self._store.stored(), self._newest(books)
        settled = self._settle(books, order)
        # What the server believes decides: slots that emptied since wait for the next order.
        believed = buffer.kept(newest.holding, order.horizon, newest.expiring)
        wanted = buffer.wanted(order, believed, books.buffer_capacity)
        if self._purchasing is not None:
            wanted = min(wanted, max(MOST_UNDER_WAY - len(settled.left), 0))
        chosen, taken, asked = books, Taken({}), list[Candidate]()
        if begun:
            chosen, taken, asked = self._buy(books, order, wanted, worth)
        admitted = [*settled.arrived, *taken.samples]
        bought = len(taken.samples) + len(asked)
        ended = [sample.key for sample in taken.samples] + [
            failed.key for failed in taken.set_aside
        ]
        after = replace(
            chosen,
            last_round=order.round_number,
            orders=books.orders + 1,
            cursor=self._stream.cursor if begun else None,
            is_dry=dry_now(books, taken) if self._takes_next(books) else chosen.is_dry,
            total_admitted=books.total_admitted + len(admitted),
            total_spent=books.total_spent + order.price * bought,
            total_set_aside=chosen.total_set_aside + len(taken.set_aside) + settled.set_aside,
            total_passed=chosen.total_passed + taken.passed_over,
            under_way=len(settled.left) + len(asked),
            under_way_spent=settled.left_spent + order.price * len(asked),
            total_refused=books.total_refused + settled.refused,
            total_refunded=books.total_refunded + settled.refunded,
        )
        if chosen.candidates:  # these were candidates, and are no longer
            after = replace(after, candidates=chosen.candidates - len(ended) - len(asked))
        elif chosen.total_seen:  # these were read just now
            after = replace(after, total_seen=chosen.total_seen + len(ended))
        kept = [one for one in stored if one.uses < order.horizon]
        too_many = max(len(kept) + len(admitted) - books.buffer_capacity, 0)
        stay = kept[too_many:]  # the oldest make room
        is_dry = bought < wanted or (not wanted and newest.is_dry)
        receipt = self._receipt(order, after, stay, settled, len(admitted), bought, is_dry=is_dry)
        survivors = {one.position for one in stay}
        self._store.commit(
            Change(
                order=order,
                receipt=receipt,
                before=chosen,
                books=after,
                removed=[one.position for one in stored if one.position not in survivors],
                admitted=[one.packed for one in admitted],
                failed=_with(taken.failed, settled),
                done=[*(ended if chosen.candidates else []), *(one.key for one in asked)],
                asked=asked,
                ended=settled.ended,
                origins=[one.origin for one in admitted],
                bought_in=[one.bought_in or after.orders for one in admitted],
            )
        )
        self._confirm(after)
        if self._purchasing is not None:
            self._purchasing.ask()
        return receipt

    def _receipt(
        self,
        order: Order,
        books: Books,
        stay: Sequence[StoredSample],
        settled: Settled,
        fresh: int,
        bought: int,
        *,
        is_dry: bool,
    ) -> Receipt:
        """Return the receipt for an order.

        Args:
            order: the order.
            books: the books afterwards.
            stay: the samples that were stored before and still are.
            settled: the purchases that have ended, and those still under way.
            fresh: samples that join the buffer now.
            bought: samples bought for the order.
            is_dry: whether fewer samples came than were asked for.
        """
        bought_in = [one.bought_in for one in stay]
        bought_in += [one.bought_in for one in settled.arrived]
        bought_in += [one.bought_in for one in settled.left]
        ages = [books.orders - number + 1 for number in bought_in] + [1] * bought
        planned = buffer.planned(ages, books.buffer_capacity)
        return Receipt(
            run=order.run,
            round_number=order.round_number,
            bought=books.total_bought,
            admitted=books.total_admitted,
            refused=books.total_refused,
            spent=books.total_spent,
            refunded=books.total_refunded,
            under_way_spent=books.under_way_spent,
            holding=buffer.holding(planned),
            expiring=sum(age >= order.horizon for age in planned),
            occupancy=len(stay) + fresh,
            uses=sum(one.uses + 1 for one in stay) + fresh,
            read=books.read,
            is_dry=is_dry,
            last_taken=last_taken(books),
            record=books.record_digest,
            health=self._health(books, settled, order),
        )

    def _newest(self, books: Books) -> Receipt:
        """Return the newest receipt, which the server has; one without samples before the first."""
        answer = self._store.answer(books.last_round)
        return Receipt(run=books.run, round_number=0) if answer is None else answer[1]

    def _health(self, books: Books, settled: Settled, order: Order) -> dict[str, float]:
        """Return what the server should know and nothing depends on, without what is 0."""
        overflow = overflow_of(self._overflows)
        bought_in = [one.round_number for one in settled.left]
        health = {
            "set_aside": books.total_set_aside,
            "expired": books.total_expired,
            "erased": books.total_erased,
            "waiting_since": min(bought_in, default=order.round_number * (books.under_way > 0)),
            "failing_suppliers": int(settled.supplier_fails),
            "full_spools": int(overflow.full),
            "spool_dropped": overflow.dropped,
        }
        return {name: value for name, value in health.items() if value}

    def _buy(
        self, books: Books, order: Order, wanted: int, worth: Worth | None
    ) -> tuple[Books, Taken, list[Candidate]]:
        """Buy so many samples.

        Returns:
            The books after a choice among candidates; what was taken at once, or failed; and what
                was bought and will arrive later.
        """
        if self._takes_next(books):
            return books, self._taker.buy_next(wanted), []
        now = self._chooser.choose(books, order, wanted, worth)
        chosen = self._store.candidates(only_chosen=True) if now.candidates else []
        if replace(self._store.books(), void_round=now.void_round) != now:
            # Another process has paid, or is about to.
            raise BooksMovedError(f"another process is applying round {order.round_number}")
        if self._purchasing is None:
            return now, self._taker.buy(chosen, wanted), []
        return now, Taken(self._taker.failures()), chosen[:wanted]

    def _takes_next(self, books: Books) -> bool:
        """Return whether samples are taken as they come, and paid for at once."""
        return not self._selects and self._purchasing is None and not books.candidates

    def samples(self) -> list[Any]:
        """Return the samples to train on, oldest first; none that was held for too long."""
        return self._store.samples()

    def _confirm(self, books: Books) -> None:
        """Let the stream delete what the books have; if that fails, try again next time."""
        if books.cursor is None or self._confirms is None:
            return
        try:
            self._confirms.confirm(books.cursor)
        except Exception:  # the books are right, whatever the stream does
            logger.exception(
                "the stream of %s/%s could not confirm its samples and keeps them; it tries "
                "again with the next order",
                books.run,
                books.client,
            )

    def _answer_again(self, order: Order, last_round: int) -> Receipt:
        answer = self._store.answer(order.round_number)
        if order.round_number == last_round and answer is not None:
            if answer[0] != order:
                raise WireError(f"round {last_round} was applied with another order: {answer[0]}")
            if self._purchasing is not None:
                self._purchasing.ask()
            return answer[1]
        raise WireError(
            f"round {order.round_number} is too late: round {last_round} has been applied"
        )

    def _settle(self, books: Books, order: Order) -> Settled:
        """Return what became of purchases that were under way."""
        if self._purchasing is not None:
            return self._purchasing.settle(order.round_number, books.buffer_capacity)
        if books.under_way:
            raise ConfigurationError(
                f"{books.client} has {books.under_way} samples under way, but its gate has no "
                "supplier; pass the supplier that they were bought from"
            )
        return Settled([])

    def _skip(self, books: Books, address: Address | None) -> bool:
        """Skip what lost buffers have taken; return False if the stream fails, to try again."""
        if address is None or not address.skip:
            return True
        taken = TakenBefore(address.skip, address.skip, lambda cursor: cursor == self._start)
        if address.last_taken:
            digest = partial(cursor_digest, books.run, books.client)
            taken = TakenBefore(
                address.skip,
                address.skip_after,
                lambda cursor: digest(cursor) == address.last_taken,
            )
        try:
            pass_over(self._stream, taken)
        except Exception:
            logger.exception(
                "%s cannot skip the %d samples that its lost buffer took; it tries again with "
                "the next order",
                *(books.client, address.skip),
            )
            self._stream.seek(self._start)
            return False
        return True


def _with(failed: Sequence[FailedSample], settled: Settled) -> list[FailedSample]:
    """Return all failures after an order: those of the stream, and those of answers."""
    over = {*settled.failed, *settled.ended}
    return [*(one for one in failed if one.key not in over), *settled.failed.values()]
