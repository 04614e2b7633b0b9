"""The books of a run on Flower: the server's, each client's own, and where they differ."""

import json
import math
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

from tidegate.runs.reader import read_accounts


def rows(folder: Path) -> list[dict[str, Any]]:
    """One row for each round that is settled."""
    path = folder / "rounds.jsonl"
    if not path.exists():
        return []
    return [json.loads(line) for line in path.read_text().splitlines()]


def accounts(folder: Path) -> dict[str, Any]:
    """The server's account of each client."""
    return read_accounts(folder)[1]


OWN = ("number", "buffer_id", "own_time", "wall_time", "used_at", "steps", "sums")
"""What differs from device to device, beside the record's digest."""


def client_files(run: str, *folders: Path) -> dict[str, dict[str, Any]]:
    """What each client's own file says: its books, its samples, and all orders and receipts."""
    found = {}
    for path in sorted(path for folder in folders for path in folder.glob("*.sqlite")):
        with closing(sqlite3.connect(path)) as connection:
            connection.row_factory = sqlite3.Row
            query = "SELECT * FROM clients WHERE run = ?"
            for client in connection.execute(query, (run,)).fetchall():
                found[client["client"]] = _client(connection, dict(client))
    return found


def _client(connection: sqlite3.Connection, books: dict[str, Any]) -> dict[str, Any]:
    def of_client(query: str) -> list[tuple[Any, ...]]:
        return [tuple(row) for row in connection.execute(query, (books["number"],)).fetchall()]

    answers = of_client(
        "SELECT sent_order, receipt FROM answers WHERE client = ? ORDER BY round_number"
    )
    samples = of_client(
        "SELECT key, content FROM samples JOIN contents USING (number) "
        "WHERE client = ? AND state = 'stored' ORDER BY place"
    )
    kept = of_client(
        "SELECT key, state FROM samples WHERE client = ? AND state IN ('candidate', 'chosen') "
        "ORDER BY state, place"
    )
    stored = of_client("SELECT count(*) FROM samples WHERE client = ? AND state = 'stored'")
    content = {name: value for name, value in books.items() if name not in OWN}
    del content["record_digest"]
    return {
        **content,
        "samples": samples,
        "stored": stored[0][0],
        "kept": kept,
        "answers": [(order, _without_record(receipt)) for order, receipt in answers],
    }


def _without_record(receipt: str) -> str:
    """A receipt without the digest of the device's record, which holds times and secrets."""
    told = json.loads(receipt)
    del told["record"]
    return json.dumps(told)


class Differences:
    """Collects, in words, what should be the same and is not."""

    def __init__(self) -> None:
        self.found: list[str] = []

    def same(self, what: str, mine: object, other: object) -> None:
        if isinstance(mine, float) and isinstance(other, int | float):
            alike = math.isclose(mine, other, rel_tol=1e-9, abs_tol=1e-9)
        else:
            alike = mine == other
        if not alike:
            self.found.append(f"{what}: {mine} and {other}")

    def at_most(self, what: str, value: int, limit: int) -> None:
        if value > limit:
            self.found.append(f"{what}: {value}, of {limit} at most")


def discrepancies(run: Path, clients: dict[str, dict[str, Any]]) -> list[str]:
    """Where the server's books, after a last round that all answered, and the clients' differ."""
    differ, played, booked = Differences(), rows(run), accounts(run)
    differ.same("clients with an account and with a file", sorted(booked), sorted(clients))
    for name in booked.keys() & clients.keys():
        account, own = booked[name], clients[name]
        newest = account["newest"]
        figures = {
            "admitted": newest["admitted"],
            "spent": newest["spent"],
            "refunded": newest["refunded"],
            "refused": newest["refused"],
            "bought": newest["bought"],
            "last_round": newest["round_number"],
        }
        for figure, booked_figure in figures.items():
            differ.same(f"{name}'s {figure} at the server and at home", booked_figure, own[figure])
        differ.same(f"{name}'s unanswered orders", account["outstanding"], None)
    differ.same("rounds", [row["round_number"] for row in played], [*range(1, len(played) + 1)])
    spent = math.fsum(row["spent"] for row in played)
    paid = math.fsum(one["spent"] - one["refunded"] for one in clients.values())
    admitted = sum(one["admitted"] for one in clients.values())
    parts = [part for one in booked.values() for part in (one["newest"], one["lost"])]
    heard = math.fsum(part["spent"] - part["refunded"] for part in parts)
    differ.same("spent by rounds and by accounts", spent, heard)
    differ.same("spent by rounds and by clients", spent, paid)
    differ.same("admitted by rounds and by clients", sum(r["admitted"] for r in played), admitted)
    differ.same("distinct samples", played[-1]["distinct_samples"], admitted)
    stored = sum(one["stored"] for one in clients.values())
    differ.same("samples in the last training and in buffers", played[-1]["training_size"], stored)
    for name, own in clients.items():
        _check_own(name, own, differ)
    return differ.found


def _check_own(name: str, own: dict[str, Any], differ: Differences) -> None:
    """A client's books against its own orders, receipts and samples."""
    pairs = [(json.loads(order), json.loads(receipt)) for order, receipt in own["answers"]]
    total, admitted, paid = 0, 0, 0.0
    for order, receipt in pairs:
        where = f"{name}, round {order['round_number']}"
        bought, total = receipt["bought"] - total, receipt["bought"]
        paid += order["price"] * bought
        differ.same(f"{where}: the receipt's round", receipt["round_number"], order["round_number"])
        differ.same(f"{where}: paid up to now", receipt["spent"], paid)
        differ.at_most(f"{where}: bought", bought, order["count"])
        differ.at_most(f"{where}: stored", receipt["occupancy"], own["buffer_capacity"])
        differ.at_most(f"{where}: planned", sum(receipt["holding"]), own["buffer_capacity"])
        admitted = receipt["admitted"]
        differ.at_most(f"{where}: admitted or refused", admitted + receipt["refused"], total)
    differ.same(f"{name}: bought in total", own["bought"], total)
    differ.same(f"{name}: admitted in total", own["admitted"], admitted)
    differ.same(f"{name}: price x bought, summed", paid, own["spent"])
    differ.same(f"{name}: samples taken from the stream", int(own["cursor"] or 0), own["read"])
    differ.at_most(f"{name}: stored", own["stored"], own["buffer_capacity"])
    differ.same(f"{name}: samples with a content", len(own["samples"]), own["stored"])
