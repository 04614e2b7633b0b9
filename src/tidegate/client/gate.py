"""The gate: on a client, turns an order into fresh samples and a receipt.

Admitting is where money is spent. The gate applies an order once, however often it arrives; it
never stores more than the buffer holds; and what it did is in the store, in one piece, before it
answers.
"""

import logging
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from tidegate.client.store import Books, Change, FailedSample, Store, StoredSample
from tidegate.client.streams import Stream, TakenBefore, pass_over
from tidegate.errors import WireError
from tidegate.wire import MOST_IN_A_ROW, Address, Order, Receipt, cursor_digest

Acquire = Callable[[Any, str], Any]
"""Given a sample and its key, does what costs (fetches the label, switches the sensor on) and gives
the sample to store. Called once for each sample that is admitted. Where it raises, gives something
that cannot be stored, or the process dies or the disk is full before the commit, it is called again
with the same key: a hook that must not pay twice asks its supplier for that key."""

TRIES = 3
"""After which a sample that fails is passed over. Once is not enough: a file may be locked for a
moment, and a supplier be away for a round; a sample that is damaged does not get better."""
LONGEST_ERROR = 500
"""Characters that are kept of an error: enough for its kind and its reason."""

logger = logging.getLogger("flwr.tidegate")
"""Below Flower's own, so that it is seen wherever Flower's log is; without Flower a plain name."""


class Gate:
    """Stream, store and acquisition of one client in one run."""

    def __init__(self, store: Store, stream: Stream, acquire: Acquire | None = None) -> None:
        self._store = store
        self._stream = stream
        self._acquire = acquire
        self._start = stream.cursor

    def apply(self, order: Order, address: Address | None = None) -> Receipt:
        """Apply an order; the same one again gives the same receipt and changes nothing.

        Args:
            order: what to do.
            address: that came with it. It says what lost buffers have taken from the stream; the
                first order of the next one begins after that.
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
        begun = books.cursor is not None or self._skip(books, address)
        stored = self._store.stored()
        kept = [one for one in stored if not _is_over(one.uses, order)]
        empty, wanted = _wanted(kept, order, books.buffer_capacity)
        taken = self._take(f"{books.run}/{books.client}", wanted if begun else 0)
        admitted, set_aside = taken.admitted, taken.set_aside
        kept = kept[max(len(admitted) - empty, 0) :]  # the oldest make room
        after = replace(
            books,
            last_round=order.round_number,
            cursor=self._stream.cursor if begun else None,
            total_admitted=books.total_admitted + len(admitted),
            total_spent=books.total_spent + order.price * len(admitted),
            total_set_aside=books.total_set_aside + len(set_aside),
        )
        receipt = _receipt(order, after, kept, len(admitted), exhausted=len(admitted) < wanted)
        survivors = {one.position for one in kept}
        removed = [one.position for one in stored if one.position not in survivors]
        failed = [*set_aside, *taken.tried.values()]
        self._store.commit(Change(order, receipt, books, after, removed, admitted, failed))
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

    def _skip(self, books: Books, address: Address | None) -> bool:
        """Pass over what lost buffers have taken; false if the stream fails, to be tried again."""
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
                "%s cannot pass over the %d samples that its lost buffer took; it tries again "
                "with the next order",
                *(books.client, address.skip),
            )
            self._stream.seek(self._start)
            return False
        return True

    def _take(self, owner: str, wanted: int) -> "_Taken":
        """Fresh samples, one by one; a failure ends the round's admission, and nothing more.

        A sample that has failed ``TRIES`` times is passed over, and set aside as soon as one after
        it is admitted: that proves that the sample is at fault, and not its source. A failure
        before the supplier is asked costs nothing and is tried again at once. A supplier that
        fails may be down, and is asked once an order.
        """
        taken = _Taken(
            [], [], {one.key: one for one in self._store.failures() if not one.set_aside}
        )
        passed: list[FailedSample] = []
        admitted_up_to = self._stream.cursor
        while len(taken.admitted) < wanted and len(passed) < MOST_IN_A_ROW:
            before = self._stream.cursor
            asked = False
            try:
                samples = self._stream.take(1)
                if not samples:
                    logger.warning("the stream of %s is dry", owner)
                    break
                sample, key = samples[0], f"{owner}/{self._stream.cursor}"
                if self._acquire is not None:
                    asked = True
                    sample = self._acquire(sample, key)
                packed = self._store.pack(sample)
            except Exception as wrong:
                after = self._stream.cursor
                failed = None if after == before else taken.fails(f"{owner}/{after}", wrong)
                if failed is None or (asked and failed.tries < TRIES):
                    logger.exception(
                        "no sample after %a; it stays in the stream", f"{owner}/{before}"
                    )
                    break
                if failed.tries < TRIES:
                    self._stream.seek(before)
                else:
                    passed.append(failed)
                continue
            taken.admits(packed, key, passed)
            passed, admitted_up_to = [], self._stream.cursor
        if passed:
            logger.error(
                "%d samples in a row of %s fail, and none after them could be taken; they stay in "
                "the stream. The first is %a: %a",
                *(len(passed), owner, passed[0].key, passed[0].error),
            )
        if self._stream.cursor != admitted_up_to:
            self._stream.seek(admitted_up_to)
        return taken


@dataclass
class _Taken:
    """What one order took from the stream."""

    admitted: list[bytes]
    set_aside: list[FailedSample]
    tried: dict[str, FailedSample]
    """By their keys, samples that failed and will be tried again, in the order of the stream."""

    def fails(self, key: str, wrong: Exception) -> FailedSample:
        """Note one try more."""
        tries = self.tried[key].tries + 1 if key in self.tried else 1
        error = f"{type(wrong).__name__}: {wrong}"[:LONGEST_ERROR]
        self.tried[key] = FailedSample(key, tries, error)
        return self.tried[key]

    def admits(self, packed: bytes, key: str, passed: list[FailedSample]) -> None:
        """Note a sample, and that those before it are at fault themselves."""
        self.admitted.append(packed)
        for one in passed:
            logger.warning("%a is set aside after %d tries: %a", one.key, one.tries, one.error)
            self.set_aside.append(replace(one, set_aside=True))
        keys = list(self.tried)  # up to this one all are done with; files may have left, too
        for done in keys[: keys.index(key) + 1] if key in self.tried else keys:
            del self.tried[done]


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
        set_aside=books.total_set_aside,
        last_taken=(
            "" if books.cursor is None else cursor_digest(books.run, books.client, books.cursor)
        ),
    )
