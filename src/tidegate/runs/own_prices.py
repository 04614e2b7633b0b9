"""``prices.jsonl``: what a sample cost each client in each round, where each has its own price."""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np

from tidegate._internal.arrays import FloatArray
from tidegate._internal.saving import reading
from tidegate.runs.folder import PRICES, REMEDY
from tidegate.runs.reader import RunView, whole_lines
from tidegate.wire import Order


def write_prices(folder: Path, round_number: int, orders: Mapping[str, Order]) -> None:
    """Add the prices of a round's orders, unless all are the same.

    A server that was killed may have left half a line: this one begins on a line of its own.
    """
    prices = {client: order.price for client, order in orders.items()}
    if len(set(prices.values())) > 1:
        with (folder / PRICES).open("a", encoding="utf-8") as lines:
            lines.write(f"\n{json.dumps({'round': round_number, 'prices': prices})}\n")


def price_table(view: RunView) -> FloatArray | None:
    """A row of prices for each round that was settled, a column for each client; or None.

    None where all clients paid the same in every round. A client that was not sent an order in a
    round is given the price that is a mean of its own, and the round's where it never had any.
    """
    names = {client.name: number for number, client in enumerate(view.clients)}
    rows = {row.round_number: place for place, row in enumerate(view.rounds)}
    table = np.full((len(rows), len(names)), np.nan)
    for round_number, prices in _told(view.folder / PRICES):
        for client in names.keys() & prices.keys() if round_number in rows else ():
            table[rows[round_number], names[client]] = prices[client]
    if np.isnan(table).all():
        return None
    for column in table.T:
        known = column[~np.isnan(column)]
        if len(known):
            column[np.isnan(column)] = known.mean()
    of_the_round = np.array([row.price for row in view.rounds])
    return np.where(np.isnan(table), of_the_round[:, None], table)


def _told(path: Path) -> Iterator[tuple[int, dict[str, float]]]:
    """Rounds and their prices; one that was decided again, by another server, is told twice."""
    for text in whole_lines(path):
        try:
            line = json.loads(text)
        except json.JSONDecodeError:
            continue  # what a server that died left
        with reading(path, REMEDY):
            yield int(line["round"]), {name: float(one) for name, one in line["prices"].items()}
