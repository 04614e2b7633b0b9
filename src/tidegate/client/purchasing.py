"""Purchases under way: ask the supplier, and collect what became of them."""

import logging
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace

from tidegate.client.buying import TRIES, Source, one_try_more, to_try_again
from tidegate.client.store import FailedSample, Held
from tidegate.client.supplier import Delivered, Outcome, Refused, Request, Supplier
from tidegate.errors import ConfigurationError, DamagedFileError

logger = logging.getLogger(__name__)


@dataclass
class Answers:
    """What became of purchases since the last order."""

    left: dict[str, Held]
    """Those still under way, by their keys, oldest first."""
    most: int = 0
    """The most samples that may arrive at once; more wait for the next order."""
    arrived: list[tuple[Held, bytes, str]] = field(default_factory=list)
    """With the complete, packed samples and their groups."""
    refused: list[tuple[Held, float]] = field(default_factory=list)
    """With what was paid back."""
    tried: dict[str, FailedSample] = field(default_factory=dict)
    """By their keys, samples that failed before."""
    failed: dict[str, FailedSample] = field(default_factory=dict)
    """Answers that could not be turned into a sample, by their keys; some are set aside."""
    calls_failed: bool = False
    """Whether the supplier did not reply."""

    @property
    def supplier_fails(self) -> bool:
        """Whether the supplier did not reply, or could not be asked for earlier purchases."""
        return self.calls_failed or not all(purchase.is_asked for purchase in self.left.values())

    @property
    def ended(self) -> list[Held]:
        """Purchases that have arrived, or never will."""
        arrived = [purchase for purchase, *_ in self.arrived]
        return [*arrived, *(purchase for purchase, _ in self.refused)]


class Purchasing:
    """Asks a supplier for what was bought, and collects its answers.

    A supplier that fails costs only time: everything that it did not answer is asked again with the
    next order.
    """

    def __init__(self, source: Source, supplier: Supplier, give_up_after: int | None) -> None:
        """Connect one client with one supplier.

        Args:
            source: where samples come from, with the store of purchases.
            supplier: the supplier.
            give_up_after: rounds after which a purchase is cancelled; None to wait for ever.
        """
        self._source, self._store = source, source.store
        self._supplier = supplier
        self._give_up_after = give_up_after

    def collect(self, round_number: int, most: int) -> Answers:
        """Collect what has arrived or been refused, and cancel what took too long.

        Args:
            round_number: of the order.
            most: samples that may arrive at once.
        """
        under_way = {purchase.key: purchase for purchase in self._store.held("under way")}
        answers = Answers(under_way, most, tried=to_try_again(self._store))
        self._hear(answers, "collect", list(answers.left))
        late = [
            key
            for key, purchase in answers.left.items()
            if purchase.is_void or self._is_late(purchase, round_number)
        ]
        self._hear(answers, "cancel", late)
        return answers

    def ask(self) -> None:
        """Ask the supplier for purchases that it may not know; they are in the books already."""
        pending = [
            purchase
            for purchase in self._store.held("under way")
            if not (purchase.is_asked or purchase.is_void)
        ]
        requests = {
            purchase.number: request
            for purchase in pending
            if (request := self._request(purchase)) is not None
        }
        if not requests:
            return
        try:
            self._supplier.ask(list(requests.values()))
        except Exception:
            logger.exception(
                "the supplier could not be asked for %d samples; the client asks again with the "
                "next order",
                len(requests),
            )
            return
        self._store.mark_asked([*requests])

    def _request(self, purchase: Held) -> Request | None:
        """Return what to ask the supplier; None if the sample cannot be read."""
        try:
            sample = self._store.unpack(self._store.content(purchase.number) or b"")
        except DamagedFileError:
            logger.exception("%a cannot be read, so the supplier is not asked for it", purchase.key)
            return None
        return Request(purchase.key, sample, purchase.price)

    def _is_late(self, purchase: Held, round_number: int) -> bool:
        waits = self._give_up_after
        return waits is not None and round_number - purchase.bought_round >= waits

    def _hear(self, answers: Answers, step: str, keys: Sequence[str]) -> None:
        """Note the supplier's answers to these purchases."""
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
            answers.calls_failed = True
            return
        for outcome in outcomes:
            if not isinstance(outcome, Delivered | Refused):
                raise ConfigurationError(
                    f"the supplier's {step} returned {type(outcome).__name__}; it must return "
                    "Delivered or Refused of tidegate.client.supplier"
                )
            purchase = answers.left.get(outcome.key)
            if purchase is not None:  # else it was heard before, or nobody asked
                self._note(answers, purchase, outcome)

    def _note(self, answers: Answers, purchase: Held, outcome: Outcome) -> None:
        """End one purchase, unless its answer cannot be used yet."""
        if isinstance(outcome, Refused):
            logger.warning(
                "the supplier refused %a%s; %s",
                purchase.key,
                f" ({outcome.reason})" if outcome.reason else "",
                "its price is refunded" if outcome.refunded else "its price is lost",
            )
            answers.refused.append((purchase, purchase.price * outcome.refunded))
        elif purchase.is_void:
            logger.warning("%a arrived too late: its sample may no longer be kept", purchase.key)
            answers.refused.append((purchase, 0.0))
        elif len(answers.arrived) == answers.most:
            return
        else:
            completed = self._completed(answers, purchase, outcome)
            if completed is not None:
                answers.arrived.append((purchase, *completed))
            elif not answers.failed[purchase.key].set_aside:
                return
            else:
                answers.refused.append((purchase, 0.0))
        del answers.left[purchase.key]

    def _completed(
        self, answers: Answers, purchase: Held, outcome: Delivered
    ) -> tuple[bytes, str] | None:
        """Return the sample that an answer makes complete, and its group; None if none can be."""
        try:
            sample = self._store.unpack(self._store.content(purchase.number) or b"")
            complete = self._supplier.complete(sample, outcome.answer)
            return self._source.packed(complete, purchase.key)
        except ConfigurationError:
            raise
        except Exception as wrong:
            key = purchase.key
            logger.exception("the answer for %a could not be turned into a sample", key)
            failure = one_try_more(key, answers.tried, wrong)
            answers.failed[key] = replace(failure, set_aside=failure.tries >= TRIES)
            return None
