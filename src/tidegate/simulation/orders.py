"""How a simulated fleet follows an order: quotes, room, and how many samples each client buys.

Slots of purchases under way (``reserved``) count as neither empty nor old, as they do for a client
with a supplier (``client.slots``) and for the server.
"""

import dataclasses
import itertools
import math
from collections import deque
from collections.abc import Iterator
from typing import Any

import numpy as np

from tidegate._internal.arrays import CountArray, FloatArray, IntArray, Members
from tidegate._internal.randomness import PRICES, generator
from tidegate.admission.allocation import Allocation
from tidegate.admission.floor import least_counts
from tidegate.admission.rule import FleetOrder, Quote
from tidegate.errors import ConfigurationError
from tidegate.policies import JointPolicy
from tidegate.prices import FedPrices, Price, PriceLaw, length_of
from tidegate.retention.buffers import Buffers
from tidegate.retention.oldest_first import OldestFirstBuffers


def quote_for(
    price: Price,
    shares: FloatArray,
    who: Members,
    buffers: Buffers,
    reserved: IntArray | int,
    delay: float,
) -> Quote:
    """Return the quote for the clients that take part, or for the fleet if none does."""
    if not isinstance(price, float) and len(price[who]):
        price, shares = price[who], shares[who]
    quote = dataclasses.replace(Quote.of(price, shares), delay=delay)
    if not isinstance(buffers, OldestFirstBuffers):
        return quote
    return dataclasses.replace(quote, empty_slots=buffers.empty(who, reserved))


def room_for(buffers: Buffers, who: Members, reserved: IntArray | int) -> IntArray:
    """Return how many samples each of these clients can buy within its capacity."""
    room = buffers.room(who)
    if isinstance(buffers, OldestFirstBuffers):
        return room  # a fresh sample replaces another; the rule accounts for reserved slots
    free: IntArray = np.maximum(room - reserved, 0)
    return free


def least_for(
    policy: JointPolicy[Any],
    buffers: Buffers,
    reserved: IntArray | int,
    paid: FloatArray,
    prices: FloatArray,
    who: Members,
    round_number: int,
) -> IntArray:
    """Return the least that each of these clients buys, at its own price."""
    least = least_counts(
        policy.least_share,
        policy.admission.budget * policy.shares[who],
        prices,
        paid[who],
        buffers.occupancy[who] + reserved,
        round_number,
    )
    room: IntArray = np.maximum(buffers.room(who) - reserved, 0)
    return np.minimum(least, room)


def buys(
    allocation: Allocation,
    buffers: Buffers,
    order: FleetOrder,
    price: Price,
    room: IntArray | None,
    most: int | None,
    who: Members,
    reserved: IntArray | int,
) -> tuple[CountArray, Allocation]:
    """Return how many samples each of these clients buys, by its part of a total or by a rule."""
    if not order.thresholds:
        return allocation.allocate(order.total_admission, room, most, who)
    if not isinstance(buffers, OldestFirstBuffers):
        raise TypeError(f"a rule by age needs oldest-first buffers, got {buffers!r}")
    wanted = buffers.wanted(who, order.thresholds, price, reserved)
    if math.isinf(order.total_admission):
        return wanted.astype(np.int32), allocation
    limits, allocation = allocation.allocate(order.total_admission, room, most, who)
    return np.minimum(wanted, limits).astype(np.int32), allocation


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
