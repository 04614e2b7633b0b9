"""Read the folder of a run while it is running, between two starts, and afterwards.

Readers take no lock and need no Flower: the books are replaced in one step, rows are appended, and
a last row that is incomplete is ignored.
"""

import json
import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from tidegate._internal.natural_order import natural_order
from tidegate._internal.saving import plain, reading
from tidegate.errors import ConfigurationError, DamagedFileError
from tidegate.runs.books import BooksView, read_books
from tidegate.runs.client_view import ClientView, client_view
from tidegate.runs.folder import BOOKS, METRICS, REMEDY, ROUNDS, holds_run
from tidegate.runs.journal import ServerMark
from tidegate.runs.retirements import asked
from tidegate.server.fleet_round import FleetRound


@dataclass(frozen=True)
class RunView:
    """A run, by its folder."""

    folder: Path
    run: str
    policy: str
    options: Mapping[str, Any]
    """The policy's settings."""
    headroom: float
    """Slots that each client has for every planned slot."""
    learning: Mapping[str, Any]
    """Constants of the learning-error bound."""
    is_shard: bool
    """Whether its budget was granted round by round."""
    budget: float
    num_rounds: int | None
    """T; None if the run has no last round."""
    mean_price: float | None
    """The expected price of a sample; None if the policy does not use it."""
    fraction_train: float
    """The part of the fleet that a round is meant to reach."""
    min_train_nodes: int
    """Clients that it reaches in any case."""
    round_number: int
    """The round under way, or the next one."""
    rounds: list[FleetRound]
    metrics: dict[str, dict[int, float]]
    """By ``source/name``, the value of each round that has one; NaN where it was not finite."""
    averaged: dict[int, int]
    """Clients whose models went into the average of each round."""
    starts: list[tuple[float, dict[str, str]]]
    """When a server started to serve this run, with its versions."""
    ending: str
    """How the last of them ended: ``over``, ``failed``, or "" if it is running or was killed."""
    is_gone: bool
    """Whether the last of them was killed, as far as this machine can tell."""
    begun_at: dict[int, float]
    """When each round was decided, in seconds since 1970."""
    ended_at: dict[int, float]
    """When it was settled."""
    clients: list[ClientView]
    failures: dict[int, tuple[int, str]] = field(default_factory=dict)
    """How many clients replied to each round with an error or were refused, and the first
    reason."""
    left_out: Mapping[str, str] = field(default_factory=dict)
    """Clients (or ``node N``) that the last round left out; the first few with the reason."""
    server: ServerMark | None = None
    """The last of the servers; None before the first."""
    is_served: bool | None = None
    """Whether a server holds the folder's lock; None if this was not checked, or cannot be."""

    @property
    def is_over(self) -> bool:
        """Whether the run is complete: all rounds are done, and their models evaluated.

        A server without a last round says itself that it has finished; one that was killed after
        its last round will evaluate no more.
        """
        if self.num_rounds is None:
            return self.ending == "over"
        return self.is_played and (self.ending != "" or self.is_gone)

    @property
    def is_played(self) -> bool:
        """Whether the last round, if any, was settled; its model may not be evaluated yet."""
        return self.num_rounds is not None and self.round_number > self.num_rounds

    @property
    def allowed_per_round(self) -> float:
        """C; for a shard, the average grant of its rounds."""
        if not (self.is_shard and self.rounds):
            return self.budget
        spent = math.fsum(row.spent for row in self.rounds)
        return (spent - self.rounds[-1].overspend) / len(self.rounds)

    @property
    def away(self) -> list[ClientView]:
        """Clients that have left, were offline in the last round, or have not replied."""
        waited_for = [client for client in self.clients if not client.is_retired]
        return [client for client in waited_for if client.away_for != 0 or client.owes_answer]

    @property
    def retired(self) -> list[ClientView]:
        """Clients that an operator has retired; the server does not wait for them."""
        return [client for client in self.clients if client.is_retired]


def read_run(folder: Path) -> RunView:
    """Read the present state of a folder."""
    books = saved_books(folder)
    round_number, absences = books.round_number, books.absences
    terms, requests = books.terms, asked(folder)
    clients = [
        client_view(
            name,
            books.accounts[name],
            absences.get(name) if absences else 0,
            round_number,
            requests,
        )
        for name in sorted(books.accounts, key=natural_order)
    ]
    rounds = settled_rounds(folder / ROUNDS, round_number - 1)
    metrics = dict[str, dict[int, float]]()
    times: dict[str, dict[int, float]] = {"decided": {}, "settled": {}}
    averaged, failures = dict[int, int](), dict[int, tuple[int, str]]()
    failing, left_out = frozenset[str](), dict[str, str]()
    server: ServerMark | None = None
    starts, ending = list[tuple[float, dict[str, str]]](), ""
    for text in whole_lines(folder / METRICS):
        try:
            line = json.loads(text)
        except json.JSONDecodeError:
            continue  # left behind by a server that died
        with reading(folder / METRICS, REMEDY):
            number, source = line["round"], line["source"]
            if source == "started":
                starts.append((line["at"], line["versions"]))
                left_out = {}
                server = ServerMark(line["pid"], line["machine"], line["boot"])
            ending = source if source in ("over", "failed") else ""
            if source in times:
                times[source][number] = line["at"]
            if source == "settled":
                averaged[number] = line["averaged"]
                if "left_out" in line:  # when it changes
                    left_out = _reasons(**line["left_out"])
                failing = frozenset(line.get("failed_clients", ()))
                failures[number] = line["failed"], line.get("error", "")
            for name, value in line.get("metrics", {}).items():
                finite = math.nan if value is None else value
                metrics.setdefault(f"{source}/{name}", {})[number] = finite
    with reading(folder / BOOKS, REMEDY):
        return RunView(
            folder=folder,
            run=books.run,
            policy=terms["policy"],
            options={**terms["options"], "spend_ahead": terms["spend_ahead"]},
            headroom=terms["headroom"],
            learning=terms["learning"],
            is_shard=terms["shard"] is not None,
            budget=terms["budget"],
            num_rounds=terms["num_rounds"],
            mean_price=terms["mean_price"],
            fraction_train=terms["fraction_train"],
            min_train_nodes=terms["min_train_nodes"],
            round_number=round_number,
            rounds=rounds,
            metrics=metrics,
            averaged=averaged,
            starts=starts,
            ending=ending,
            is_gone=not ending and server is not None and server.is_gone,
            begun_at=times["decided"],
            ended_at=times["settled"],
            clients=[
                replace(client, failed=_failed(client, failing, left_out)) for client in clients
            ],
            failures=failures,
            left_out=left_out,
            server=server,
        )


def _failed(client: ClientView, failing: Collection[str], left_out: Collection[str]) -> bool:
    return (client.name in left_out and client.away_for != 0) or (
        client.owes_answer and client.name in failing
    )


def _reasons(clients: Mapping[str, int], reasons: Sequence[str]) -> dict[str, str]:
    return {name: reasons[at] if at < len(reasons) else "" for name, at in clients.items()}


def read_accounts(folder: Path) -> tuple[str, dict[str, Any]]:
    """Return the run in a folder, and the server's account of each client, as plain values."""
    books = saved_books(folder)
    return books.run, {client: asdict(account) for client, account in books.accounts.items()}


def saved_books(folder: Path) -> BooksView:
    """Return a run's books; refuse a folder that holds none."""
    if folder.is_file():
        raise ConfigurationError(f"{folder} is a file; give the run's folder, {folder.parent}")
    if not folder.exists():
        raise ConfigurationError(
            f"there is no folder {folder}; give the folder that AdmissionControl(folder=...) "
            "saves to, or try again if the run is just starting"
        )
    path = folder / BOOKS
    books = read_books(path) if path.exists() else None
    if books is None:
        inside = next((inner for inner in sorted(folder.iterdir()) if _may_hold_run(inner)), None)
        remedy = f"did you mean {inside}?" if inside else "give the one that the server saves to"
        raise ConfigurationError(f"{folder} holds no run; {remedy}")
    return books


def _may_hold_run(folder: Path) -> bool:
    """Return whether a run is in a folder; False if this user may not look into it."""
    try:
        return holds_run(folder)
    except OSError:
        return False


def settled_rounds(path: Path, settled: int) -> list[FleetRound]:
    """Return the first rows of a file of rounds; an unsettled round may follow them."""
    with reading(path, REMEDY):
        rounds = [plain(FleetRound, json.loads(row)) for row in whole_lines(path)[:settled]]
    if len(rounds) < settled:
        reason = f"has {len(rounds)} rounds, but {settled} were settled"
        raise DamagedFileError(path, reason, REMEDY)
    return rounds


def whole_lines(path: Path) -> list[str]:
    """Yield the complete lines of a file that may be being written."""
    text = path.read_text("utf-8") if path.exists() else ""
    return [line for line in text[: text.rfind("\n") + 1].splitlines() if line]
