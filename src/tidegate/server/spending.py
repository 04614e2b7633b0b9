"""Orders that cost no more than may be spent, where clients have prices of their own."""

import math
from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from tidegate.admission.allocation import cheapest_first
from tidegate.server.ledger import Ledger
from tidegate.wire import Order


def within_cash(orders: Mapping[str, Order], ledger: Ledger, money: float) -> dict[str, Order]:
    """The same orders, with what each may lead to limited such that money pays for all of it.

    The ledger knows what each client stores, and so how many samples a rule can lead to there.
    Where money does not pay for all, those with the lowest prices come first.
    """
    if math.isinf(money):
        return dict(orders)
    accounts = {client: ledger.account(client) for client in orders}
    wanted = np.array([accounts[one].most_bought(orders[one]) for one in orders], dtype=np.int64)
    prices = np.array([order.price for order in orders.values()], dtype=np.float64)
    counts = cheapest_first(wanted, prices, money).tolist()
    return {
        client: replace(order, count=min(order.count, count))
        for (client, order), count in zip(orders.items(), counts, strict=True)
    }
