"""``prices.jsonl``: what prices were, where a round's one price does not tell it all.

Each client's own, where they differ, and the amounts that a price was made of, such as money and
carbon.
"""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from tidegate._internal.arrays import FloatArray
from tidegate._internal.saving import reading
from tidegate.prices import PricedByAmounts, PriceFeed
from tidegate.runs.folder import PRICES, REMEDY
from tidegate.runs.reader import RunView, whole_lines
from tidegate.wire import Order


def write_prices(
    folder: Path, round_number: int, orders: Mapping[str, Order], feed: PriceFeed | None
) -> None:
    """Add the prices of a round's orders unless all are the same, and the amounts if several.

    A server that was killed may have left half a line: the next begins on a line of its own.
    """
    told: dict[str, object] = {}
    prices = {client: order.price for client, order in orders.items()}
    if len(set(prices.values())) > 1:
        told["prices"] = prices
    if isinstance(feed, PricedByAmounts) and len(feed.rates) > 1:
        amounts = feed.amounts(round_number)
        if amounts:  # a round that an earlier server has decided is told already
            told["amounts"] = {name: [amounts[name], rate] for name, rate in feed.rates.items()}
    if told:
        with (folder / PRICES).open("ab+") as lines:
            lines.seek(max(lines.tell() - 1, 0))
            end = b"" if lines.read() in (b"", b"\n") else b"\n"
            text = json.dumps({"round": round_number, **told})
            lines.write(end + text.encode() + b"\n")


def amounts_paid(view: RunView) -> dict[str, tuple[float, float]]:
    """By name, how much of each amount all samples took, and what of the money it counted for.

    Nothing where prices are not made of several amounts.
    """
    rows = {row.round_number: row for row in view.rounds}
    paid: dict[str, tuple[float, float]] = {}
    told = {number: line["amounts"] for number, line in _told(view.folder) if "amounts" in line}
    for number in rows.keys() & told.keys():
        row = rows[number]
        bought = row.spent / row.price if row.price else 0.0
        for name, (amount, rate) in told[number].items():
            before = paid.get(name, (0.0, 0.0))
            paid[name] = before[0] + bought * amount, before[1] + bought * amount * rate
    return paid


def price_table(view: RunView) -> FloatArray | None:
    """A row of prices for each round that was settled, a column for each client; or None.

    None where all clients paid the same in every round. What a client would have paid in a round
    in which it was sent no order is not known: it is taken to be as far from the round's average
    as the client's price usually was.
    """
    names = {client.name: number for number, client in enumerate(view.clients)}
    rows = {row.round_number: place for place, row in enumerate(view.rounds)}
    average = np.array([row.price for row in view.rounds])
    ratios, told = np.full((len(rows), len(names)), np.nan), np.zeros(len(rows), dtype=bool)
    for round_number, line in _told(view.folder):
        place = rows.get(round_number)
        if place is None or "prices" not in line:
            continue
        told[place] = True
        for client in names.keys() & line["prices"].keys():
            ratios[place, names[client]] = line["prices"][client] / (average[place] or 1.0)
    if not told.any():
        return None
    known = ~np.isnan(ratios)
    usual = np.where(known, ratios, 0.0).sum(axis=0) / np.maximum(known.sum(axis=0), 1)
    usual = np.where(known.any(axis=0), usual, 1.0)
    ratios = np.where(known, ratios, usual)
    ratios[~told] = 1.0  # all who were sent an order paid the same
    table: FloatArray = average[:, None] * ratios
    return table


def _told(folder: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """Rounds and what is told of them; one that two servers have decided is told twice."""
    path = folder / PRICES
    for text in whole_lines(path):
        try:
            line = json.loads(text)
        except json.JSONDecodeError:
            continue  # what a server that died left
        with reading(path, REMEDY):
            yield int(line["round"]), line
