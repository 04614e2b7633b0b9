"""``prices.jsonl``: prices of a round that its single price does not describe.

These are each client's own price, if they differ, and the amounts that a price consists of, such as
money and carbon.
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
    """Append the prices of a round's orders unless all are equal, and the amounts if several.

    A killed server may have left half a line, so the next one starts on a line of its own.
    """
    line: dict[str, object] = {}
    prices = {client: order.price for client, order in orders.items()}
    if len(set(prices.values())) > 1:
        line["prices"] = prices
    if isinstance(feed, PricedByAmounts) and len(feed.rates) > 1:
        amounts = feed.amounts(round_number)
        if amounts:  # a round that an earlier server decided is written already
            line["amounts"] = {name: [amounts[name], rate] for name, rate in feed.rates.items()}
    if line:
        with (folder / PRICES).open("ab+") as lines:
            lines.seek(max(lines.tell() - 1, 0))
            end = b"" if lines.read() in (b"", b"\n") else b"\n"
            text = json.dumps({"round": round_number, **line})
            lines.write(end + text.encode() + b"\n")


def amounts_paid(view: RunView) -> dict[str, tuple[float, float]]:
    """Return, by name, how much of each amount all samples took, and its part of the money.

    Empty if prices do not consist of several amounts.
    """
    rows = {row.round_number: row for row in view.rounds}
    paid: dict[str, tuple[float, float]] = {}
    amounts = {number: line["amounts"] for number, line in _told(view.folder) if "amounts" in line}
    for number in rows.keys() & amounts.keys():
        row = rows[number]
        bought = row.spent / row.price if row.price else 0.0
        for name, (amount, rate) in amounts[number].items():
            before = paid.get(name, (0.0, 0.0))
            paid[name] = before[0] + bought * amount, before[1] + bought * amount * rate
    return paid


def price_table(view: RunView) -> FloatArray | None:
    """Return a row of prices for each settled round and a column for each client, or None.

    None if all clients paid the same in every round. What a client would have paid in a round
    without an order is unknown: it is assumed to be as far from the round's average as the client's
    price usually was.
    """
    names = {client.name: number for number, client in enumerate(view.clients)}
    rows = {row.round_number: place for place, row in enumerate(view.rounds)}
    average = np.array([row.price for row in view.rounds])
    ratios, is_told = np.full((len(rows), len(names)), np.nan), np.zeros(len(rows), dtype=bool)
    for round_number, line in _told(view.folder):
        place = rows.get(round_number)
        if place is None or "prices" not in line:
            continue
        is_told[place] = True
        for client in names.keys() & line["prices"].keys():
            ratios[place, names[client]] = line["prices"][client] / (average[place] or 1.0)
    if not is_told.any():
        return None
    known = ~np.isnan(ratios)
    usual = np.where(known, ratios, 0.0).sum(axis=0) / np.maximum(known.sum(axis=0), 1)
    usual = np.where(known.any(axis=0), usual, 1.0)
    ratios = np.where(known, ratios, usual)
    ratios[~is_told] = 1.0  # all clients with an order paid the same
    table: FloatArray = average[:, None] * ratios
    return table


def _told(folder: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield rounds and what is written about them; one that two servers decided occurs twice."""
    path = folder / PRICES
    for text in whole_lines(path):
        try:
            line = json.loads(text)
        except json.JSONDecodeError:
            continue  # left behind by a server that died
        with reading(path, REMEDY):
            yield int(line["round"]), line
