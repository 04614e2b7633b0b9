"""How a simulated fleet follows an order: quotes, room, and how many samples each client buys."""

import dataclasses
import itertools
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from tidegate._internal.arrays import CountArray, FloatArray, IntArray, Members
from tidegate._internal.randomness import PRICES, generator
from tidegate.admission.rule import Quote
from tidegate.errors import ConfigurationError
from tidegate.policies.decision import Decision
from tidegate.prices import FedPrices, Price, PriceLaw, length_of
from tidegate.retention.buffers import Buffers
from tidegate.retention.oldest_first import OldestFirstBuffers


def quote_for(price: Price, shares: FloatArray, who: Members, planned: Buffers) -> Quote:
    """Return the quote for the clients that take part, or for the fleet if none does."""
    if not isinstance(price, float) and len(price[who]):
        price, shares = price[who], shares[who]
    quote = Quote.of(price, shares)
    if not isinstance(planned, OldestFirstBuffers):
        return quote
    return dataclasses.replace(quote, empty_slots=planned.empty(who))


@dataclass(frozen=True, eq=False)
class SimulatedStock:
    """What the clients of one round hold."""

    planned: Buffers
    """With what is under way."""
    paid: FloatArray
    """What each client of the fleet has paid so far."""
    who: Members

    def room(self) -> IntArray:
        """Return how many samples each can buy within its capacity."""
        return self.planned.room(self.who)

    def total_room(self) -> float:
        """Return how many samples all can buy within their capacities."""
        return float(self.room().sum())

    def wanted(self, thresholds: Sequence[float], prices: Price) -> IntArray:
        """Return how many samples each buys under a rule by age."""
        if not isinstance(self.planned, OldestFirstBuffers):
            raise TypeError(f"a rule by age needs oldest-first buffers, got {self.planned!r}")
        return self.planned.wanted(self.who, thresholds, prices)

    def reserves(self) -> tuple[FloatArray, IntArray, IntArray]:
        """Return what each has paid, how many samples it holds, and the most reserved for it."""
        held = self.planned.occupancy[self.who].astype(np.int64)
        return self.paid[self.who], held, self.room()

    def buys(self, decision: Decision, prices: Price) -> CountArray:
        """Return how many samples each buys."""
        bought = decision.counts
        if decision.thresholds and decision.owed is None:
            wanted = self.wanted(decision.thresholds, prices)
            bought = wanted if bought is None else np.minimum(wanted, bought)
        if bought is None:
            raise ValueError("a decision without a rule has counts")
        return bought.astype(np.int32)


def with_prices_ahead(
    law: PriceLaw, seed: int, size: int | None, known: int, num_rounds: int | None = None
) -> Iterator[tuple[Price, tuple[float, ...]]]:
    """Yield each price of a path, with the known prices of the next rounds.

    Args:
        law: the price law.
        seed: the seed of the path.
        size: the number of clients with their own price; None for one price for all.
        known: how many rounds ahead prices are known.
        num_rounds: the length of the run; a feed is not asked for later prices.

    >>> from tidegate.prices import RecordedPrices
    >>> list(with_prices_ahead(RecordedPrices([3.0, 1.0, 2.0]), 0, size=None, known=2))
    [(3.0, (1.0, 2.0)), (1.0, (2.0,)), (2.0, ())]
    """
    if known and size is not None:
        raise ConfigurationError(
            f"known_ahead={known} needs one price for all clients; leave it out, or leave out "
            "price_per_client"
        )
    length = num_rounds if isinstance(law, FedPrices) else length_of(law)
    path = itertools.islice(law.rounds(generator(seed, PRICES), size), length)
    coming = deque(itertools.islice(path, known + 1))
    while coming:
        now = coming.popleft()
        yield now, tuple(float(np.asarray(price)) for price in coming)
        coming.extend(itertools.islice(path, 1))
