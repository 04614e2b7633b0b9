"""The folder of a run, read from outside: while it goes on, between two starts, and afterwards.

Readers take no lock and need no Flower: the books are replaced in one step, rows are appended, and
a last row that is not whole yet is not there yet.
"""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tidegate._internal.saving import Archive, plain, reading
from tidegate.errors import ConfigurationError, DamagedFileError
from tidegate.runs.books_file import check_format, read_books
from tidegate.runs.folder import BOOKS, CONTROL, METRICS, REMEDY, ROUNDS
from tidegate.runs.retirements import asked
from tidegate.runs.server_mark import ServerMark
from tidegate.server.fleet_round import FleetRound
from tidegate.server.saved_terms import current_terms


@dataclass(frozen=True)
class ClientView:
    """One client, as the server's books have it."""

    name: str
    buffer_capacity: int
    stored: int
    """Samples, when it was last heard."""
    total_admitted: int
    total_spent: float
    last_round: int
    """That it was heard in; 0 before the first."""
    away_for: int | None
    """Rounds since it could be reached; none if it is no longer planned for."""
    owes_answer: bool
    """Whether an order of an earlier round is not answered."""
    is_retired: bool
    """Whether an operator has taken it out for good, or has asked the server to."""
    batches: Sequence[tuple[int, int]] = ()
    """What is stored: the round that admitted samples, and how many of them are left."""


@dataclass(frozen=True)
class RunView:
    """A run, as its folder has it."""

    folder: Path
    run: str
    policy: str
    options: Mapping[str, Any]
    """The policy's settings."""
    headroom: float
    """Slots that each client has for every slot that is planned for."""
    learning: Mapping[str, Any]
    """Constants of the learning-error bound."""
    is_shard: bool
    """Whether its budget was granted round by round."""
    budget: float
    num_rounds: int | None
    """T; none where the run has no last round."""
    mean_price: float | None
    """What a sample was expected to cost; none where the policy does not ask."""
    fraction_train: float
    """The part of the fleet that a round is meant to reach."""
    min_train_nodes: int
    """Clients that it reaches in any case."""
    round_number: int
    """The round that is under way, or comes next."""
    rounds: list[FleetRound]
    metrics: dict[str, dict[int, float]]
    """By ``source/name``, the value of each round that has one; NaN where it was not finite."""
    averaged: dict[int, int]
    """Clients whose models went into the average of each round."""
    starts: list[tuple[float, dict[str, str]]]
    """When a server began to serve this run, with its versions."""
    ending: str
    """How the last of them ended: ``over``, ``failed``, or nothing if it goes on or was killed."""
    is_gone: bool
    """Whether the last of them was killed, as far as can be told from here."""
    begun_at: dict[int, float]
    """When each round was decided, in seconds since 1970."""
    ended_at: dict[int, float]
    """When it was settled."""
    clients: list[ClientView]
    server: ServerMark | None = None
    """The last of the servers; none before the first."""
    is_served: bool | None = None
    """Whether a server holds the folder's lock; none where nobody has looked, or can tell."""

    @property
    def is_over(self) -> bool:
        """Whether nothing more will come: all rounds are played, and their models judged.

        A server without a last round says itself that it has come to its end; one that was killed
        after its last round has judged all that it will.
        """
        if self.num_rounds is None:
            return self.ending == "over"
        return self.is_played and (self.ending != "" or self.is_gone)

    @property
    def is_played(self) -> bool:
        """Whether the last round, if there is one, was settled; its model may not be judged yet."""
        return self.num_rounds is not None and self.round_number > self.num_rounds

    @property
    def allowed_per_round(self) -> float:
        """C; of a shard, what its rounds were granted on average."""
        if not (self.is_shard and self.rounds):
            return self.budget
        spent = math.fsum(row.spent for row in self.rounds)
        return (spent - self.rounds[-1].overspend) / len(self.rounds)

    @property
    def away(self) -> list[ClientView]:
        """Clients that have left, could not be reached in the last round, or owe an answer."""
        waited_for = [one for one in self.clients if not one.is_retired]
        return [one for one in waited_for if one.away_for != 0 or one.owes_answer]

    @property
    def retired(self) -> list[ClientView]:
        """Clients that an operator has taken out; nobody waits for them."""
        return [one for one in self.clients if one.is_retired]


def read_run(folder: Path) -> RunView:
    """What a folder says now."""
    path, content = saved_content(folder)
    with reading(path, REMEDY):
        record = content["controller"]
        terms, absences = current_terms(record["terms"]), record["absences"]
        now = record["round_number"]
        requests = asked(folder)
        clients = [
            _client(name, account, absences.get(name) if absences else 0, now, requests)
            for name, account in sorted(record["ledger"]["accounts"].items())
        ]
        run = record["ledger"]["run"]
    rounds = settled_rounds(folder / ROUNDS, now - 1)
    metrics = dict[str, dict[int, float]]()
    times: dict[str, dict[int, float]] = {"decided": {}, "settled": {}}
    averaged = dict[int, int]()
    server: ServerMark | None = None
    starts, ending = list[tuple[float, dict[str, str]]](), ""
    for text in whole_lines(folder / METRICS):
        try:
            line = json.loads(text)
        except json.JSONDecodeError:
            continue  # what a server that died left
        with reading(folder / METRICS, REMEDY):
            number, source = line["round"], line["source"]
            if source == "started":
                starts.append((line["at"], line["versions"]))
                server = ServerMark(line["pid"], line["machine"], line.get("boot", ""))
            ending = source if source in ("over", "failed") else ""
            if source in times:
                times[source][number] = line["at"]
            if source == "settled":
                averaged[number] = line["averaged"]
            for name, value in line.get("metrics", {}).items():
                finite = math.nan if value is None else value
                metrics.setdefault(f"{source}/{name}", {})[number] = finite
    return RunView(
        folder=folder,
        run=run,
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
        round_number=now,
        rounds=rounds,
        metrics=metrics,
        averaged=averaged,
        starts=starts,
        ending=ending,
        is_gone=not ending and server is not None and server.is_gone,
        begun_at=times["decided"],
        ended_at=times["settled"],
        clients=clients,
        server=server,
    )


def read_accounts(folder: Path) -> tuple[str, dict[str, Any]]:
    """The run that a folder keeps, and the server's account of each client, as plain values."""
    path, content = saved_content(folder)
    with reading(path, REMEDY):
        ledger = content["controller"]["ledger"]
        return str(ledger["run"]), dict(ledger["accounts"])


def saved_content(folder: Path) -> tuple[Path, dict[str, Any]]:
    """The file of a run's books, and all that it holds, as plain values."""
    if folder.is_file():
        raise ConfigurationError(f"{folder} is a file; give the run's folder, {folder.parent}")
    if not folder.exists():
        raise ConfigurationError(
            f"there is no folder {folder}; give the one that AdmissionControl(folder=...) saves to"
        )
    path, old = folder / BOOKS, folder / CONTROL
    content = read_books(path) if path.exists() else None
    if content is not None:
        return path, content
    if not old.exists():
        raise ConfigurationError(
            f"{folder} holds no run; give the folder that AdmissionControl(folder=...) saves to"
        )
    with reading(old, REMEDY), old.open("rb") as file, Archive(file) as archive:
        return old, control_of(archive, old)


def settled_rounds(path: Path, settled: int) -> list[FleetRound]:
    """The first rows of a file of rounds; one of a round that was not settled may follow."""
    with reading(path, REMEDY):
        rounds = [plain(FleetRound, json.loads(row)) for row in whole_lines(path)[:settled]]
    if len(rounds) < settled:
        told = f"tells of {len(rounds)} rounds, and {settled} were settled"
        raise DamagedFileError(path, told, REMEDY)
    return rounds


def control_of(archive: Archive, path: Path) -> dict[str, Any]:
    """The part of a server's books that is JSON, in the file that older versions wrote."""
    content: dict[str, Any] = archive.json("control")
    check_format(content["version"], path)
    if "controller" not in content:  # a mark for older programs
        raise DamagedFileError(path.with_name(BOOKS), "is missing", REMEDY)
    return content


def _client(
    name: str,
    account: Mapping[str, Any],
    away_for: int | None,
    now: int,
    requests: Mapping[str, bool],
) -> ClientView:
    order = account["outstanding"]
    is_retired = requests.get(name, account.get("retired_in", 0) > 0)
    return ClientView(
        name=name,
        buffer_capacity=account["buffer_capacity"],
        stored=sum(count for _, count in account["batches"]),
        total_admitted=account["total_admitted"],
        total_spent=account["total_spent"],
        last_round=account["last_round"],
        away_for=away_for,
        owes_answer=order is not None and order["round_number"] < now and not is_retired,
        is_retired=is_retired,
        batches=[(bought, count) for bought, count in account["batches"]],
    )


def whole_lines(path: Path) -> list[str]:
    """Whole lines of a file that somebody may be writing to."""
    text = path.read_text("utf-8") if path.exists() else ""
    return [line for line in text[: text.rfind("\n") + 1].splitlines() if line]
