"""Read the folder of a run while it is running, between two starts, and afterwards.

Readers take no lock and need no Flower: the books are replaced in one step, rows are appended, and
a last row that is incomplete is ignored.
"""

import json
import math
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from tidegate._internal.natural_order import natural_order
from tidegate._internal.saving import plain, reading
from tidegate.errors import ConfigurationError, DamagedFileError
from tidegate.runs.books import BooksView, read_books
from tidegate.runs.folder import BOOKS, METRICS, REMEDY, ROUNDS, holds_run
from tidegate.runs.journal import ServerMark
from tidegate.runs.retirements import asked
from tidegate.server.account import Account
from tidegate.server.fleet_round import FleetRound

MADE_UP = re.compile("[0-9a-f]{32}")
"""The name of a run to which nobody gave one."""


@dataclass(frozen=True)
class ClientView:
    """One client, by the server's books."""

    name: str
    buffer_capacity: int
    stored: int
    """Samples, by its last receipt."""
    total_admitted: int
    total_spent: float
    last_round: int
    """The round of its last receipt; 0 before the first."""
    away_for: int | None
    """Rounds since it was online; None if it is no longer in the plan."""
    owes_answer: bool
    """Whether an order of an earlier round has no receipt."""
    is_retired: bool
    """Whether an operator has retired it, or has asked the server to."""
    candidates: int = 0
    """Candidates that it reads for an order; 0 if it takes samples as they come."""
    read: int = 0
    """Samples that its present buffer has read from the stream."""
    failed: bool = False
    """Whether it owes a receipt, or was left out, because of an error or a refused reply."""
    troubles: Sequence[str] = ()
    """Problems of its purchases by its last receipt: ``empty`` (it holds nothing, and nothing is
    under way), ``short`` (it bought fewer samples than ordered in the last round, or in an earlier
    one and none since), ``suppliers`` (one fails), ``spools`` (its stream has no room)."""


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
    app: str = ""
    """``publisher/name``; empty if unknown."""
    exposure: float = 0.0
    """What orders without a reply may have cost, those of the round under way included."""

    @property
    def title(self) -> str:
        """What people call the run: a name of its own or its app and day, policy and budget.

        For example ``my-fleet, 19 November, tide, 55 a round``.
        """
        names = [self.run]
        if MADE_UP.fullmatch(self.run):
            started = [datetime.fromtimestamp(at, UTC) for at, _ in self.starts[:1]]
            app = self.app.rpartition("/")[2] or self.folder.absolute().name
            names = [app, *(f"{at.day} {at:%B}" for at in started)]
        policy = self.policy.rpartition(":")[2]
        return ", ".join([*names, policy, f"{self.budget:,.6g} a round"])

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
        _client_of(
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
            app=books.app,
            exposure=math.fsum(account.exposure for account in books.accounts.values()),
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
            f"there is no folder {folder}; give that of a run (tidegate run APP --set folder=..., "
            "or AdmissionControl(folder=...)), or try again if the run is just starting"
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


def _client_of(
    name: str,
    account: Account,
    away_for: int | None,
    round_number: int,
    requests: Mapping[str, bool],
) -> ClientView:
    """Return a client as an account of the books shows it.

    Args:
        name: the client's.
        account: the server's account of it.
        away_for: the rounds since it was online.
        round_number: the round under way, or the next one.
        requests: whom operators have asked to retire, or to let in again.
    """
    order, newest = account.outstanding, account.newest
    is_retired = requests.get(name, account.retired_in > 0)
    troubles = {
        "empty": account.is_empty,
        "short": newest.is_dry and newest.round_number == round_number - 1,
        "suppliers": newest.health.get("failing_suppliers", 0) > 0,
        "spools": newest.health.get("full_spools", 0) > 0,
    }
    return ClientView(
        name=name,
        buffer_capacity=account.buffer_capacity,
        stored=newest.occupancy,
        total_admitted=account.admitted,
        total_spent=account.lost.spent + newest.spent,
        last_round=newest.round_number,
        away_for=away_for,
        owes_answer=order is not None and order.round_number < round_number and not is_retired,
        is_retired=is_retired,
        candidates=account.candidates,
        read=newest.read,
        troubles=() if is_retired else tuple(trouble for trouble, here in troubles.items() if here),
    )
