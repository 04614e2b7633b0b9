"""What an order leads to in a simulated fleet: quotes, room, and how many samples each buys.

Slots that purchases under way have taken (``reserved``) are neither empty nor old: a client with a
supplier counts them so (``client.slots``), and the server that knows it does.
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
    """What those who take part pay; where nobody does, what the fleet would."""
    if not isinstance(price, float) and len(price[who]):
        price, shares = price[who], shares[who]
    quote = dataclasses.replace(Quote.of(price, shares), delay=delay)
    if not isinstance(buffers, OldestFirstBuffers):
        return quote
    return dataclasses.replace(quote, empty_slots=buffers.empty(who, reserved))


def room_for(buffers: Buffers, who: Members, reserved: IntArray | int) -> IntArray:
    """Samples that each of these could buy now without storing more than it has room for."""
    room = buffers.room(who)
    if isinstance(buffers, OldestFirstBuffers):
        return room  # a fresh sample takes the slot of another; the rule counts what is reserved
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
    """Samples that each of these is bought in any case, at a price of its own."""
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
    """What each of these clients buys: its part of a total, or what a rule leads to."""
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
    """Each price of a path, and those of the next rounds, as many as are known.

    Args:
        law: of prices.
        seed: of the path.
        size: clients with a price of their own; none for one price for all.
        known: rounds whose prices are known beforehand.
        num_rounds: of the run; a feed is not asked for later ones.

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
