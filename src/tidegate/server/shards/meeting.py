"""The place where shards meet: each leaves its report and its rounds, and takes its grant.

It needs no process of its own. The first shard that reaches a new round divides its money for all,
in one step that excludes all other shards. Every call may be repeated: a lost reply is given a
second time, and nothing is divided or recorded twice.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

from tidegate.errors import RunDiffersError, SupplierError
from tidegate.server.fleet_round import FleetRound
from tidegate.server.shards.coordinator import Coordinator
from tidegate.server.shards.messages import Grant, Report


@dataclass(frozen=True, kw_only=True)
class Registration:
    """What a shard says when it starts."""

    run: str
    shard: str
    budget: float
    """C, of all shards together."""
    slots: Mapping[str, int]
    """Of every shard."""
    books: str
    """Identifies its books; no other server has the same."""


@dataclass(frozen=True, kw_only=True)
class Visit:
    """What a shard brings when a round begins, and once more at the end."""

    run: str
    shard: str
    round_number: int
    """t, the round that begins."""
    held: int
    """The first round of the newest grant that it has; 0 if it has none."""
    report: Report | None
    rounds: Sequence[FleetRound]
    """Settled rounds that are not in the ledger, as far as the shard knows."""


@dataclass(frozen=True, kw_only=True)
class ShardView:
    """A shard, as the meeting place knows it."""

    shard: str
    slots: int
    round_number: int
    """The last round that it has settled; 0 before the first."""
    heard: float | None
    """Time of its last visit, in seconds since 1970; None before the first."""
    granted: float
    """Up to the round that was divided last."""
    promised_until: int
    """The last round that it has a budget for."""
    shadow_price: float | None
    """What one more unit of money would be worth to it, if it has reported that."""
    spent: float
    admitted: int
    cost_debt: float
    exposure: float
    fleet: int
    total_uses: int
    effective_samples: float


@dataclass(frozen=True, kw_only=True)
class MeetingView:
    """A run of several shards at one moment."""

    run: str
    budget: float
    """C."""
    round_number: int
    """The last that was divided; 0 before the first."""
    shards: tuple[ShardView, ...]

    @property
    def granted(self) -> float:
        """To all shards, up to the round that was divided last."""
        return math.fsum(shard.granted for shard in self.shards)

    @property
    def spent(self) -> float:
        """By all shards, as far as they have reported."""
        return math.fsum(shard.spent for shard in self.shards)

    @property
    def effective_samples(self) -> float:
        """Of all shards together, (Σ uses)² / Σ uses²."""
        trained = [shard for shard in self.shards if shard.effective_samples]
        squared = math.fsum(shard.total_uses**2 / shard.effective_samples for shard in trained)
        return sum(shard.total_uses for shard in trained) ** 2 / squared if squared else 0.0


@runtime_checkable
class Meeting(Protocol):
    """A place where shards meet; it raises ``SupplierError`` while it cannot be reached."""

    def register(self, registration: Registration) -> int:
        """Register a shard; the first of a run fixes its budget and its slots.

        Returns:
            The last round of this shard that is in the ledger.

        Raises:
            RunDiffersError: the run has another budget or other slots, or this shard's name belongs
                to other books.
        """
        ...

    def exchange(self, visit: Visit) -> Grant:
        """Accept what a shard brings, divide its round if no shard has, and return its grant."""
        ...

    def look(self, run: str) -> MeetingView:
        """Return what is known about a run; changes nothing."""
        ...


def check_same(
    registration: Registration, *, budget: float, slots: Mapping[str, int], books: str
) -> None:
    """Refuse a shard that was started with other terms than the first one of its run.

    Args:
        registration: the shard's registration.
        budget: of the run.
        slots: of the run.
        books: the books that the shard's name belongs to.
    """
    run, shard = registration.run, registration.shard
    for name, saved, said in (
        ("budget", budget, registration.budget),
        ("slots", slots, registration.slots),
    ):
        if saved != said:
            raise RunDiffersError(
                f"the shards of run {run!r} share a {name} of {saved}, but {shard!r} "
                f"was started with {said}; start all of them with the same, or give the new run "
                "another name",
                name=name,
                saved=saved,
                given=said,
            )
    if books != registration.books:
        raise RunDiffersError(
            f"shard {shard!r} of run {run!r} belongs to a server with other books: "
            "its money would be spent twice. Give every server a shard of its own; if the server "
            "has lost its folder, restore a copy, or start a new run with another name",
            name="books",
            saved=books,
            given=registration.books,
        )


def check_memory(visit: Visit, divided: int) -> None:
    """Refuse to divide if the meeting place has forgotten a round that was granted before.

    A database restored from a copy, or a replica that lags, would grant it twice.
    """
    if visit.held > divided:
        raise SupplierError(
            f"the shards' meeting place has run {visit.run!r} at round {divided}, but",
            (
                f"{visit.shard!r} holds a grant for round {visit.held}: the database has lost "
                "rounds. No round is divided until they are restored; replicate synchronously"
            ),
        )


def divided(
    record: Mapping[str, Any], round_number: int, reports: Iterable[Report]
) -> tuple[dict[str, Any], list[Grant]]:
    """Divide a round; return the record to save first, and the grant of each shard.

    Args:
        record: of the coordinator.
        round_number: t.
        reports: the newest of each shard; those that the coordinator knows add nothing.
    """
    coordinator = Coordinator.from_record(record)
    grants = coordinator.divide(round_number, reports)
    return coordinator.to_record(), grants


def shard_view(
    shard: str,
    *,
    slots: int,
    heard: float | None,
    round_number: int,
    grant: Grant | None,
    report: Report | None,
    ledger: Mapping[str, Any] | None,
) -> ShardView:
    """Build the view of a shard from what a meeting place has.

    Args:
        shard: its name.
        slots: its slots by its registration.
        heard: the time of its last visit.
        round_number: the last round that was divided.
        grant: its newest grant.
        report: its newest report.
        ledger: sums over its rounds, and the state after the last; None before the first.
    """
    sums: Mapping[str, Any] = ledger or dict.fromkeys(LEDGER_SUMS, 0)
    return ShardView(
        shard=shard,
        slots=slots,
        heard=heard,
        granted=0.0 if grant is None else grant.until(round_number),
        promised_until=0 if grant is None else grant.last_round,
        shadow_price=None if report is None else report.shadow_price,
        **{name: sums[name] for name in LEDGER_SUMS},
    )


LEDGER_SUMS = (
    *("round_number", "spent", "admitted", "cost_debt", "exposure", "fleet", "total_uses"),
    "effective_samples",
)
"""What a view tells of the rounds that a shard has settled."""
