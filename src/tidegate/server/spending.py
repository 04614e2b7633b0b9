"""Limit orders to the money that may be spent, if clients have prices of their own."""

import math
from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from tidegate._internal.arrays import IntArray
from tidegate.admission.floor import with_least
from tidegate.server.ledger import Ledger
from tidegate.wire import Order


def within_cash(
    orders: Mapping[str, Order], ledger: Ledger, money: float, least: IntArray
) -> dict[str, Order]:
    """Return the same orders, limited so that the money pays for everything they can lead to.

    The ledger knows what each client stores, and so how many samples a rule can lead to there. A
    client that is owed more than that is told to buy it at any price. If the money does not pay for
    all, these clients come first, and then those with the lowest prices.

    Args:
        orders: of the clients that take part, each at its own price.
        ledger: of the run.
        money: what may be spent; infinity for no limit.
        least: samples that each client is bought in any case.
    """
    wanted = np.array([_most(ledger, *one) for one in orders.items()], dtype=np.int64)
    accounts = [ledger.account(one) for one in orders]
    room = np.array([max(one.buffer_capacity - one.under_way, 0) for one in accounts], np.int64)
    prices = np.array([order.price for order in orders.values()], dtype=np.float64)
    counts, owed = with_least(wanted, np.minimum(least, room), prices, money)
    return {
        client: _limited(order, count, is_owed=due > 0, is_free=math.isinf(money))
        for (client, order), count, due in zip(
            orders.items(), counts.tolist(), owed.tolist(), strict=True
        )
    }


def _most(ledger: Ledger, client: str, order: Order) -> int:
    return ledger.account(client).most_bought(order)


def _limited(order: Order, count: int, *, is_owed: bool, is_free: bool) -> Order:
    """Return an order for at most so many samples; at any price for those that are owed."""
    if is_owed:
        return replace(order, thresholds=(order.price,), count=count)
    return order if is_free else replace(order, count=min(order.count, count))
