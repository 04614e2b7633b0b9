"""The gate: turns an order into fresh samples and a receipt, on a client.

Admitting is where money is spent. The gate applies an order once, however often it arrives; it
never stores more samples than the buffer holds; and the store has everything that it did, in one
piece, before it replies.
"""

import json
import logging
import math
from collections.abc import Mapping
from functools import partial

from tidegate import buffer
from tidegate.client.buying import Acquire, Buying, Group, Source, Subject, Worth
from tidegate.client.limits import duration
from tidegate.client.purchasing import Answers, Purchasing
from tidegate.client.samples import Samples
from tidegate.client.store import Books, Change, Store
from tidegate.client.streams import Confirms, Limited, Stream, TakenBefore, pass_over
from tidegate.client.streams.stream import Overflows, overflow_of
from tidegate.client.supplier import Supplier
from tidegate.errors import ConfigurationError, WireError
from tidegate.selection import Selection
from tidegate.wire import Address, Order, Receipt, cursor_digest

MOST_UNDER_WAY = 10_000
"""Purchases of a client that may be under way, unless its gate says otherwise: a person gives a few
thousand labels a week."""
ROUNDING = 1e-12
"""Of sums of money: for each unit of them."""

logger = logging.getLogger(__name__)


def check_one_source(acquire: object, supplier: object) -> None:
    """Refuse a gate with both a hook for immediate samples and a supplier of later ones."""
    if supplier is not None and acquire is not None:
        raise ConfigurationError(
            "give the gate either acquire, for samples that are available at once, or a "
            "supplier, for samples that arrive later, not both"
        )


class Gate:
    """Stream, store and acquisition of one client in one run."""

    def __init__(  # noqa: PLR0913 - all but two are given by name, and few are needed
        self,
        store: Store,
        stream: Stream,
        acquire: Acquire | None = None,
        selection: Selection | None = None,
        supplier: Supplier | None = None,
        give_up_after: int | None = None,
        keep_at_most: str | None = None,
        subject: Subject | None = None,
        *,
        group: Group | None = None,
        keep_bought: bool = False,
        most_under_way: int = MOST_UNDER_WAY,
        spend_at_most: float | None = None,
        spend_ahead: float = 0.0,
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
            group: returns the group of a complete sample, such as its class; ``buffer.leaving``
                says which samples then make room for others.
            keep_bought: whether samples that have left the buffer stay on the device.
            most_under_way: purchases that may be under way at once.
            spend_at_most: the device's own ceiling: after t orders it has committed at most t times
                this, less refunds, whatever the server orders; None for no ceiling.
            spend_ahead: orders whose part of the ceiling may be spent before they come.
        """
        check_one_source(acquire, supplier)
        self._store = store
        self._stream = stream
        keep = 0 if keep_at_most is None else duration(keep_at_most)
        store.keep_at_most(keep)
        if subject is not None:
            store.whose("")  # refuse a device that has lost its key before reading anything
        limited = stream if isinstance(stream, Limited) else None
        if limited is not None:
            limited.keep_at_most(keep)
            limited.name_subjects(subject)
        # Asked once: checking a protocol takes longer than applying an order.
        self._confirms = stream if isinstance(stream, Confirms) else None
        self._overflows = stream if isinstance(stream, Overflows) else None
        self._start = stream.cursor
        books = store.books()
        owner = f"{books.run}/{books.client}"
        self._source = Source(store, stream, owner, acquire, subject, selection, limited, group)
        self._keeps_bought = keep_bought
        self._most_under_way = most_under_way
        self._spend_at_most, self._spend_ahead = spend_at_most, spend_ahead
        self._purchasing = (
            None if supplier is None else Purchasing(self._source, supplier, give_up_after)
        )

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
        receipt = self._receipt_of(order, books)
        if receipt is None:
            begun = self._is_in_place(books, address)
            answers = self._collect(books, order)
            newest = self._newest(books)
            ordered = self._ordered(order, newest, books.buffer_capacity, answers)
            buying = Buying(self._source, order, books, ordered, self._affordable(order, books))
            if begun:
                self._buy(buying, worth)
            receipt = self._finish(order, newest, buying, answers)
        if self._purchasing is not None:
            self._purchasing.ask()
        return receipt

    def _receipt_of(self, order: Order, books: Books) -> Receipt | None:
        """Return the receipt of an order that was applied; None for one that is to be applied."""
        if order.run != books.run:
            raise WireError(f"this gate serves run {books.run!r}, not {order.run!r}")
        newest, void = books.last_round, books.void_round
        if order.round_number > newest and order.round_number > void:
            return None
        answered = self._store.answer(order.round_number)
        if order.round_number == newest and answered is not None:
            if answered[0] != order:
                raise WireError(f"round {newest} was applied with another order: {answered[0]}")
            return answered[1]
        if order.round_number > newest:
            raise WireError(
                f"round {order.round_number} is void: the server no longer expects orders up to "
                f"round {void} to be applied"
            )
        raise WireError(f"round {order.round_number} is too late: round {newest} has been applied")

    def _ordered(self, order: Order, newest: Receipt, capacity: int, answers: Answers) -> int:
        """Return how many samples an order asks for.

        What the server believes decides: slots that emptied since wait for the next order.
        """
        believed = buffer.kept(newest.holding, order.horizon, newest.expiring)
        wanted = buffer.wanted(order, believed, capacity)
        if self._purchasing is None:
            return wanted
        return min(wanted, max(self._most_under_way - len(answers.left), 0))

    def _affordable(self, order: Order, books: Books) -> float:
        """Return how many samples the device's own ceiling lets it buy."""
        if self._spend_at_most is None or not order.price:
            return math.inf
        allowed = self._spend_at_most * (books.orders + 1 + self._spend_ahead)
        left = allowed * (1 + ROUNDING) - (books.spent - books.refunded)
        return max(left // order.price, 0)

    def _newest(self, books: Books) -> Receipt:
        """Return the newest receipt, which the server has, or what the buffer began with."""
        answered = self._store.answer(books.last_round)
        if answered is not None:
            return answered[1]
        return Receipt.begun(books.run, json.loads(books.begun))

    def _buy(self, buying: Buying, worth: Worth | None) -> None:
        """Choose and pay for what an earlier process that died had not paid for already."""
        buying.batch.cursor = self._stream.cursor
        lacking = max(buying.wanted - self._store.count("paid"), 0)
        comes_paid = self._source.selection is None and self._purchasing is None
        if comes_paid and not self._store.count("candidate", "chosen"):
            buying.take_next(lacking)
            return
        buying.choose(lacking, worth)
        if self._purchasing is None:
            buying.pay(lacking)

    def _finish(self, order: Order, newest: Receipt, buying: Buying, answers: Answers) -> Receipt:
        """Store what arrived and what was bought, in one step, and write the receipt."""
        for failure in answers.failed.values():
            buying.batch.tried[failure.key] = failure
            if failure.set_aside:
                buying.batch.set_aside.append(failure)
        for purchase in answers.ended:
            buying.batch.tried.pop(purchase.key, None)
        with self._store.step(order.round_number, buying.books) as change:
            if buying.takes_next:
                change.books.is_dry = buying.is_dry()
            buying.batch.write(change, "paid")
            arrived = self._settle(change, answers)
            terms = {
                "price": order.price,
                "bought_round": order.round_number,
                "bought_in": change.books.orders + 1,
            }
            bought, asked = self._book(change, terms, buying.wanted)
            self._make_room(change, order, len(arrived) + len(bought))
            for number in arrived:
                change.move(number, "stored")
            for number in bought:
                change.move(number, "stored", **terms)
            books = change.books
            books.last_round = order.round_number
            books.orders += 1
            books.admitted += len(arrived) + len(bought)
            change.train()
            count = books.bought - buying.books.bought
            is_short = count < buying.wanted and not buying.reads_on
            is_dry = is_short or (not buying.wanted and newest.is_dry)
            is_capped = buying.is_capped
            receipt = self._receipt(
                order, books, answers, asked, is_dry=is_dry, is_capped=is_capped
            )
            change.note_order(order)
            change.answer(order, receipt)
            change.tick()
        if not self._store.file.is_shared:  # else it is on disk when the next order comes
            self._confirm(change.books)
        return receipt

    def _settle(self, change: Change, answers: Answers) -> list[int]:
        """Book what suppliers said; return the numbers of the samples that arrived."""
        arrived = []
        refused = [purchase.number for purchase, _ in answers.refused]
        for purchase, packed, group in answers.arrived:
            if change.rewrite(purchase.number, packed, group):
                arrived.append(purchase.number)
            else:  # it was swept meanwhile
                refused.append(purchase.number)
        for number in refused:
            change.drop(number)
        change.books.refused += len(refused)
        change.books.refunded += sum(refund for _, refund in answers.refused)
        return arrived

    def _book(
        self, change: Change, terms: Mapping[str, float], wanted: int
    ) -> tuple[list[int], int]:
        """Book what was paid for, and what a supplier will be asked for.

        Args:
            change: to book it in.
            terms: price, round and number of the order.
            wanted: by the order; what was paid for beyond it waits.

        Returns:
            The numbers of the samples that are complete, and how many will come later.
        """
        paid = self._store.held("paid")[:wanted]
        chosen = self._store.held("chosen") if self._purchasing else []
        asked = chosen[: wanted - len(paid)]
        for candidate in asked:
            change.move(candidate.number, "under way", **terms)
        swept = [sample.number for sample in paid if sample.is_void]
        for number in swept:
            change.drop(number)
        count = len(paid) + len(asked)
        change.books.bought += count
        change.books.refused += len(swept)
        change.books.spent += terms["price"] * count
        return [sample.number for sample in paid if not sample.is_void], len(asked)

    def _make_room(self, change: Change, order: Order, fresh: int) -> None:
        """Let samples leave whose time in training is over, then those that make room."""
        books = change.books
        leaves = change.numbers("state = 'stored' AND since <= ?", books.orders - order.horizon)
        most = max(books.buffer_capacity - fresh, 0)
        too_many = self._store.count("stored") - len(leaves) - most
        if too_many > 0:
            stays = self._store.stays(books.orders, order.horizon)
            for (stay, group), count in buffer.leaving(stays, too_many).items():
                where = "state = 'stored' AND since = ? AND in_group = ? ORDER BY place LIMIT ?"
                leaves += change.numbers(where, books.orders - stay, group, count)
        for number in leaves:
            if self._keeps_bought:
                change.keep(number)
            else:
                change.drop(number)

    def _receipt(
        self,
        order: Order,
        books: Books,
        answers: Answers,
        asked: int,
        *,
        is_dry: bool,
        is_capped: bool,
    ) -> Receipt:
        """Return the receipt for an order.

        Args:
            order: the order.
            books: the books afterwards.
            answers: what suppliers said, and what is still under way.
            asked: samples that were bought for the order and come later.
            is_dry: whether fewer samples came than were asked for.
            is_capped: whether the device's own ceiling cut the order.
        """
        planned = buffer.planned(self._store.ages(books.orders), books.buffer_capacity)
        uses = self._store.uses(books.orders)
        under_way_spent = math.fsum(purchase.price for purchase in answers.left.values())
        return Receipt(
            run=order.run,
            round_number=order.round_number,
            bought=books.bought,
            admitted=books.admitted,
            refused=books.refused,
            spent=books.spent,
            refunded=books.refunded,
            under_way_spent=under_way_spent + order.price * asked,
            holding=buffer.holding(planned),
            expiring=sum(count for age, count in planned.items() if age >= order.horizon),
            occupancy=uses.total(),
            uses=sum(times * count for times, count in uses.items()),
            read=books.read,
            is_dry=is_dry,
            last_taken=books.last_taken,
            record=books.record_digest,
            health=self._health(books, answers, order, is_capped=is_capped),
        )

    def _health(
        self, books: Books, answers: Answers, order: Order, *, is_capped: bool
    ) -> dict[str, float]:
        """Return what the server should know and nothing depends on, without what is 0."""
        overflow = overflow_of(self._overflows)
        rounds = [purchase.bought_round for purchase in answers.left.values()]
        health = {
            "set_aside": books.set_aside,
            "expired": books.expired,
            "erased": books.erased,
            "at_ceiling": int(is_capped),
            "waiting_since": min(rounds, default=order.round_number * (books.under_way > 0)),
            "failing_suppliers": int(answers.supplier_fails),
            "full_spools": int(overflow.full),
            "spool_dropped": overflow.dropped,
        }
        return {name: value for name, value in health.items() if value}

    def samples(self) -> Samples:
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

    def _is_in_place(self, books: Books, address: Address | None) -> bool:
        """Bring the stream to the place that the books know; return False if that fails."""
        place = self._start if books.cursor is None else books.cursor
        if place != self._stream.cursor:
            self._stream.seek(place)
        self._confirm(books)
        return books.cursor is not None or self._skip(books, address)

    def _collect(self, books: Books, order: Order) -> Answers:
        """Return what became of purchases that were under way."""
        if self._purchasing is not None:
            return self._purchasing.collect(order.round_number, books.buffer_capacity)
        if books.under_way:
            raise ConfigurationError(
                f"{books.client} has {books.under_way} samples under way, but its gate has no "
                "supplier; pass the supplier that they were bought from"
            )
        return Answers({})

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
