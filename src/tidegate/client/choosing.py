"""Choose the samples that an order buys: as the stream has them, or the best candidates."""

import logging
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from tidegate.client.store import Books, Candidate, Choice, Store
from tidegate.client.streams import Stream
from tidegate.client.taking import TRIES, Taken, Taker
from tidegate.errors import ConfigurationError
from tidegate.selection import Selection
from tidegate.wire import Order

Worth = Callable[[list[Any]], Sequence[float]]
"""Rates candidates: returns one number for each; the greatest are bought first."""

logger = logging.getLogger("flwr.tidegate")


class Chooser:
    """Reads candidates for one client, and records which of them to pay for.

    Args:
        store: keeps them.
        stream: where they come from.
        taker: reads them.
        selection: how many candidates are read and may wait; None to take samples as they come.
    """

    def __init__(
        self, store: Store, stream: Stream, taker: Taker, selection: Selection | None
    ) -> None:
        self._store = store
        self._stream = stream
        self._taker = taker
        self._selection = selection

    def choose(self, books: Books, order: Order, wanted: int, worth: Worth | None) -> Books:
        """Read candidates, choose among all that are kept, and record the choice.

        Candidates that were chosen before but not paid for come first: an order whose reply was
        lost may have paid for them. A recorded choice is not made again.
        """
        if books.chosen_round == order.round_number:
            return books
        kept = self._store.candidates() if books.candidates else []
        hopeless = {key for key, one in self._taker.failures().items() if one.tries >= TRIES}
        hopeful = sum(one.chosen and one.key not in hopeless for one in kept)
        needed = max(wanted - hopeful, 0)
        waited = [one for one in kept if not one.chosen]
        reads = self._reads(needed, len(waited))
        bought = self._store.purchases() if books.under_way else []
        known = [*(one.key for one in kept), *(one.key for one in bought)]
        read = self._taker.read_next(reads, known)
        waiting = [*waited, *read.samples]
        if self._selection is None:  # it chose before: waiting candidates come first in the stream
            chosen, dropped = [one.key for one in waiting[:needed]], []
        else:
            worths = self._worths(waiting, worth) if needed else []
            place = books.client, order.round_number
            chosen = [waiting[one].key for one in self._selection.choose(worths, needed, place)]
            taken = set(chosen)
            left = [one.key for one in waiting if one.key not in taken]
            dropped = left[: max(len(left) - self._selection.backlog, 0)]
        # Candidates of the backlog may still be enough for an order.
        short = len(chosen) < needed
        is_dry = dry_now(books, read) if short else books.is_dry and not chosen
        if not (reads or chosen or dropped):
            return books  # nothing to record
        after = replace(
            books,
            cursor=self._stream.cursor,
            is_dry=is_dry,
            total_set_aside=books.total_set_aside + len(read.set_aside),
            total_passed=books.total_passed + read.passed_over,
            total_seen=_seen(books) + len(read.samples) + len(read.set_aside),
            candidates=len(kept) + len(read.samples) - len(dropped),
            chosen_round=order.round_number,
        )
        self._store.choose(
            Choice(order.round_number, books, after, read.samples, chosen, dropped, read.failed)
        )
        kept_now = self._store.books()
        return replace(
            after,
            record_number=kept_now.record_number,
            record_digest=kept_now.record_digest,
        )

    def _reads(self, needed: int, waiting: int) -> int:
        """Return how many samples of the stream to read for an order that needs so many."""
        if self._selection is None:
            return max(needed - waiting, 0)
        if not needed and not self._selection.backlog:
            return 0  # nobody would look at them
        return max(self._selection.candidates, needed)

    def _worths(self, waiting: list[Candidate], worth: Worth | None) -> Sequence[float]:
        """Return what candidates are worth; without a function all are worth the same."""
        if worth is None or not waiting:
            return [0.0] * len(waiting)
        worths = [float(one) for one in worth([self._store.unpack(one.packed) for one in waiting])]
        if len(worths) != len(waiting):
            raise ConfigurationError(
                f"worth returned {len(worths)} numbers for {len(waiting)} candidates; it must "
                "return one for each, in their order"
            )
        return worths


def dry_now(books: Books, taken: Taken) -> bool:
    """Return whether a stream has no more samples, and log it if it still had some before."""
    if taken.dry and not books.is_dry:
        logger.warning(
            "the stream of %s has run dry: the client buys fewer samples than ordered until the "
            "stream has more",
            books.client,
        )
    return taken.dry or (books.is_dry and not taken.samples)


def _seen(books: Books) -> int:
    """Return how many samples were read from the stream so far."""
    return books.total_seen or books.total_admitted + books.total_set_aside
