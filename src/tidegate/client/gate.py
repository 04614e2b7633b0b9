"""The gate: on a client, turns an order into fresh samples and a receipt.

Admitting is where money is spent. The gate applies an order once, however often it arrives; it
never stores more than the buffer holds; and what it did is in the store, in one piece, before it
answers.
"""

import logging
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from tidegate.client.store import Books, Change, Store, StoredSample
from tidegate.client.streams import Stream
from tidegate.errors import WireError
from tidegate.wire import Order, Receipt

Acquire = Callable[[Any, str], Any]
"""Given a sample and its key, does what costs (fetches the label, switches the sensor on) and gives
the sample to store. Called once for each sample that is admitted. Where the process dies, or the
disk is full, after the call and before the commit, it is called again with the same key: a hook
that must not pay twice asks its supplier for that key."""

logger = logging.getLogger("flwr.tidegate")
"""Below Flower's own, so that it is seen wherever Flower's log is; without Flower a plain name."""


class Gate:
    """Stream, store and acquisition of one client in one run."""

    def __init__(self, store: Store, stream: Stream, acquire: Acquire | None = None) -> None:
        self._store = store
        self._stream = stream
        self._acquire = acquire
        self._start = stream.cursor

    def apply(self, order: Order, skip: int = 0) -> Receipt:
        """Apply an order; the same one again gives the same receipt and changes nothing.

        Args:
            order: what to do.
            skip: samples that a buffer which is lost has taken; the first order of the next one
                begins after them.
        """
        books = self._store.books()
        if order.run != books.run:
            raise WireError(f"this gate serves run {books.run!r}, not {order.run!r}")
        if order.round_number <= books.last_round:
            return self._answer_again(order, books.last_round)
        if order.round_number <= books.void_round:
            raise WireError(
                f"round {order.round_number} is past: the server counts on no order up to round "
                f"{books.void_round} any more"
            )
        # The books know how far the stream was read, whatever happened to this process since.
        place = self._start if books.cursor is None else books.cursor
        if place != self._stream.cursor:
            self._stream.seek(place)
        if books.cursor is None and skip:
            self._stream.take(skip)
        stored = self._store.stored()
        kept = [one for one in stored if not _is_over(one.uses, order)]
        empty, wanted = _wanted(kept, order, books.buffer_capacity)
        admitted = self._take(f"{books.run}/{books.client}", wanted)
        kept = kept[max(len(admitted) - empty, 0) :]  # the oldest make room
        after = replace(
            books,
            last_round=order.round_number,
            cursor=self._stream.cursor,
            total_admitted=books.total_admitted + len(admitted),
            total_spent=books.total_spent + order.price * len(admitted),
        )
        receipt = _receipt(order, after, kept, len(admitted), exhausted=len(admitted) < wanted)
        survivors = {one.position for one in kept}
        removed = [one.position for one in stored if one.position not in survivors]
        self._store.commit(Change(order, receipt, books, after, removed, admitted))
        return receipt

    def samples(self) -> list[Any]:
        """What the client trains on, oldest first."""
        return self._store.samples()

    def _answer_again(self, order: Order, last_round: int) -> Receipt:
        answer = self._store.answer(order.round_number)
        if order.round_number == last_round and answer is not None:
            if answer[0] != order:
                raise WireError(f"round {last_round} had another order: {answer[0]}")
            return answer[1]
        raise WireError(f"round {order.round_number} is past, round {last_round} is applied")

    def _take(self, owner: str, wanted: int) -> list[bytes]:
        """Fresh samples, one by one; a failure ends the round's admission, and nothing more."""
        admitted: list[bytes] = []
        while len(admitted) < wanted:
            before = self._stream.cursor
            try:
                taken = self._stream.take(1)
                if not taken:
                    logger.warning("the stream of %s is dry", owner)
                    break
                sample, key = taken[0], f"{owner}/{self._stream.cursor}"
                if self._acquire is not None:
                    sample = self._acquire(sample, key)
                admitted.append(self._store.pack(sample))
            except Exception:
                logger.exception("no sample after %s/%s; it stays in the stream", owner, before)
                self._stream.seek(before)
                break
        return admitted


def _is_over(uses: int, order: Order) -> bool:
    """Whether a sample that was trained on so often has expired.

    K-step retention counts rounds that its client took part in: what a client has paid for is used
    K times, however long it was away in between.
    """
    return order.retention == "k_step" and uses >= order.retention_horizon


def _wanted(kept: list[StoredSample], order: Order, buffer_capacity: int) -> tuple[int, int]:
    """How many slots are empty, to be filled first, and how many samples an order asks for."""
    empty = buffer_capacity - len(kept)
    if order.thresholds:
        cheap = [order.price <= threshold for threshold in order.thresholds]
        old = sum(cheap[min(one.uses, len(cheap) - 1)] for one in kept)
        return empty, min(empty * cheap[0] + old, order.count)
    most = buffer_capacity if order.retention == "oldest_first" else empty
    return empty, min(order.count, most)


def _receipt(
    order: Order, books: Books, kept: list[StoredSample], admitted: int, *, exhausted: bool
) -> Receipt:
    """The receipt for an order, from what stays and what is new."""
    old = sum(_is_over(one.uses + 1, order) for one in kept)
    new = admitted * _is_over(1, order)
    return Receipt(
        run=order.run,
        round_number=order.round_number,
        admitted=admitted,
        spent=order.price * admitted,
        occupancy=len(kept) + admitted,
        expiring=old + new,
        prior_uses=sum(one.uses for one in kept),
        total_admitted=books.total_admitted,
        total_spent=books.total_spent,
        exhausted=exhausted,
    )
