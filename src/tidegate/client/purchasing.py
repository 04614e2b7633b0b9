"""Purchases under way: ask the supplier, and collect what became of them."""

import logging
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace

from tidegate.client.store import Candidate, FailedSample, Purchase, Store
from tidegate.client.supplier import Delivered, Outcome, Refused, Request, Supplier
from tidegate.client.taking import TRIES, one_try_more, to_try_again
from tidegate.errors import ConfigurationError

logger = logging.getLogger("flwr.tidegate")
"""Below Flower's own, so that it is seen wherever Flower's log is; without Flower a plain name."""


@dataclass
class Settled:
    """What became of purchases since the last order."""

    left: list[Purchase]
    """Still under way, oldest first."""
    arrived: list[Candidate] = field(default_factory=list)
    """Complete, packed samples."""
    ended: list[str] = field(default_factory=list)
    """Keys of all that have arrived, or never will."""
    refused: int = 0
    refunded: float = 0.0
    failed: dict[str, FailedSample] = field(default_factory=dict)
    """Answers that could not be turned into a sample, by their keys; some are set aside."""

    room: int = 0
    """The most samples that may arrive at once; more wait for the next order."""
    calls_failed: bool = False
    """Whether the supplier did not reply."""

    @property
    def supplier_fails(self) -> bool:
        """Whether the supplier did not reply, or could not be asked for earlier purchases."""
        return self.calls_failed or not all(one.asked for one in self.left)

    @property
    def left_spent(self) -> float:
        """Committed for what is still under way."""
        return math.fsum(one.price for one in self.left)

    @property
    def set_aside(self) -> int:
        """Samples that arrived but could not be used."""
        return sum(one.set_aside for one in self.failed.values())


class Purchasing:
    """Asks a supplier for what was bought, and collects its answers.

    A supplier that fails costs only time: everything that it did not answer is asked again with the
    next order.
    """

    def __init__(self, store: Store, supplier: Supplier, give_up_after: int | None) -> None:
        """Connect one client with one supplier.

        Args:
            store: where purchases are kept.
            supplier: the supplier.
            give_up_after: rounds after which a purchase is cancelled; None to wait for ever.
        """
        self._store = store
        self._supplier = supplier
        self._give_up_after = give_up_after

    def settle(self, round_number: int, room: int) -> Settled:
        """Collect what has arrived or been refused, and cancel what took too long.

        Args:
            round_number: of the order.
            room: the most samples that may arrive at once.
        """
        purchases = {one.key: one for one in self._store.purchases()}
        settled = Settled([], room=room)
        self._hear(settled, purchases, "collect", list(purchases))
        late = [
            key for key, one in purchases.items() if one.is_void or self._is_late(one, round_number)
        ]
        self._hear(settled, purchases, "cancel", late)
        settled.left = list(purchases.values())
        return settled

    def ask(self) -> None:
        """Ask the supplier for purchases that it may not know; they are in the books already."""
        purchases = self._store.purchases()
        pending = [one for one in purchases if not (one.asked or one.is_void)]
        if not pending:
            return
        try:
            self._supplier.ask([self._request(one) for one in pending])
        except Exception:
            logger.exception(
                "the supplier could not be asked for %d samples; the client asks again with the "
                "next order",
                len(pending),
            )
            return
        self._store.mark_asked([one.key for one in pending])

    def _is_late(self, purchase: Purchase, round_number: int) -> bool:
        waits = self._give_up_after
        return waits is not None and round_number - purchase.round_number >= waits

    def _request(self, purchase: Purchase) -> Request:
        sample = self._store.unpack(self._store.purchased(purchase.key).packed)
        return Request(purchase.key, sample, purchase.price)

    def _hear(
        self, settled: Settled, purchases: dict[str, Purchase], step: str, keys: Sequence[str]
    ) -> None:
        """Note the supplier's answers to these purchases; remove ended ones from ``purchases``."""
        if not keys:
            return
        call: Callable[[Sequence[str]], Iterable[Outcome]] = getattr(self._supplier, step)
        try:
            outcomes = list(call(keys))
        except Exception:
            logger.exception(
                "the supplier's %s failed for %d purchases; the client calls it again with the "
                "next order",
                *(step, len(keys)),
            )
            settled.calls_failed = True
            return
        for outcome in outcomes:
            if not isinstance(outcome, Delivered | Refused):
                raise ConfigurationError(
                    f"the supplier's {step} returned {type(outcome).__name__}; it must return "
                    "Delivered or Refused of tidegate.client.supplier"
                )
            purchase = purchases.get(outcome.key)
            if purchase is not None:  # else it was heard before, or nobody asked
                self._note(settled, purchases, purchase, outcome)

    def _note(
        self,
        settled: Settled,
        purchases: dict[str, Purchase],
        purchase: Purchase,
        outcome: Outcome,
    ) -> None:
        """End one purchase, unless its answer cannot be used yet."""
        key = purchase.key
        if isinstance(outcome, Refused):
            logger.warning(
                "the supplier refused %a%s; %s",
                key,
                f" ({outcome.reason})" if outcome.reason else "",
                "its price is refunded" if outcome.refunded else "its price is lost",
            )
            settled.refused += 1
            settled.refunded += purchase.price * outcome.refunded
        elif purchase.is_void:
            logger.warning("%a arrived too late: its sample may no longer be kept", key)
            settled.refused += 1
        elif len(settled.arrived) == settled.room:
            return
        else:
            try:
                asked = self._store.purchased(key)
                sample = self._store.unpack(asked.packed)
                packed = self._store.pack(self._supplier.complete(sample, outcome.answer))
            except Exception as wrong:
                logger.exception("the answer for %a could not be turned into a sample", key)
                if not self._fails(settled, key, wrong):
                    return
                settled.refused += 1
            else:
                arrived = Candidate(key, packed, origin=asked.origin, bought_in=purchase.bought_in)
                settled.arrived.append(arrived)
        settled.ended.append(key)
        del purchases[key]

    def _fails(self, settled: Settled, key: str, wrong: Exception) -> bool:
        """Count one more try; return True if it was the last, and the sample is set aside."""
        failed = one_try_more(key, to_try_again(self._store), wrong)
        last = failed.tries >= TRIES
        settled.failed[key] = replace(failed, set_aside=last)
        return last
