"""A meeting place in this process, for simulations and tests."""

import json
import math
import threading
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from tidegate.errors import ConfigurationError
from tidegate.server.fleet_round import FleetRound
from tidegate.server.shards.coordinator import Coordinator
from tidegate.server.shards.meeting import (
    MeetingView,
    Registration,
    Visit,
    check_memory,
    check_same,
    divided,
    shard_view,
)
from tidegate.server.shards.messages import Grant, Report


@dataclass
class _Run:
    """What a database has of a run."""

    budget: float
    slots: dict[str, int]
    record: str
    """Of the coordinator, as JSON."""
    round_number: int = 0
    """The last that was divided."""
    books: dict[str, str] = field(default_factory=dict)
    heard: dict[str, float] = field(default_factory=dict)
    reports: dict[str, Report] = field(default_factory=dict)
    grants: dict[str, Grant] = field(default_factory=dict)
    ledger: dict[tuple[str, int], FleetRound] = field(default_factory=dict)


class MemoryMeeting:
    """A meeting place for shards in one process; it ends with the process."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._runs: dict[str, _Run] = {}

    def register(self, registration: Registration) -> int:
        """Register a shard; the first of a run fixes its budget and its slots."""
        with self._lock:
            if registration.run not in self._runs:
                record = Coordinator(
                    registration.run, registration.budget, registration.slots
                ).to_record()
                self._runs[registration.run] = _Run(
                    registration.budget, dict(registration.slots), json.dumps(record)
                )
            run = self._runs[registration.run]
            books = run.books.get(registration.shard, registration.books)
            check_same(registration, budget=run.budget, slots=run.slots, books=books)
            run.books[registration.shard] = books
            return max(
                (round_number for shard, round_number in run.ledger if shard == registration.shard),
                default=0,
            )

    def exchange(self, visit: Visit) -> Grant:
        """Accept what a shard brings, divide its round if no shard has, and return its grant."""
        with self._lock:
            run = self._runs[visit.run]
            check_memory(visit, run.round_number)
            for row in visit.rounds:
                run.ledger[visit.shard, row.round_number] = row
            run.heard[visit.shard] = time.time()
            if visit.report is not None:
                known = run.reports.get(visit.shard)
                if known is None or known.round_number < visit.report.round_number:
                    run.reports[visit.shard] = visit.report
            if run.round_number < visit.round_number:
                record, grants = divided(
                    json.loads(run.record), visit.round_number, run.reports.values()
                )
                run.record, run.round_number = json.dumps(record), visit.round_number
                run.grants = {grant.shard: grant for grant in grants}
            return run.grants[visit.shard]

    def look(self, run: str) -> MeetingView:
        """Return what is known about a run; changes nothing."""
        with self._lock:
            if run not in self._runs:
                raise ConfigurationError(f"no shard of run {run!r} has registered")
            known = self._runs[run]
            return MeetingView(
                run=run,
                budget=known.budget,
                round_number=known.round_number,
                shards=tuple(
                    shard_view(
                        shard,
                        slots=slots,
                        heard=known.heard.get(shard),
                        round_number=known.round_number,
                        grant=known.grants.get(shard),
                        report=known.reports.get(shard),
                        ledger=_sums(row for (who, _), row in known.ledger.items() if who == shard),
                    )
                    for shard, slots in sorted(known.slots.items())
                ),
            )


def _sums(rows: Iterable[FleetRound]) -> dict[str, Any] | None:
    rounds = sorted(rows, key=lambda row: row.round_number)
    if not rounds:
        return None
    last = rounds[-1]
    return {
        "round_number": last.round_number,
        "spent": math.fsum(row.spent for row in rounds),
        "admitted": sum(row.admitted for row in rounds),
        "cost_debt": last.cost_debt,
        "exposure": last.exposure,
        "fleet": last.fleet,
        "total_uses": sum(row.training_size for row in rounds),
        "effective_samples": last.effective_samples,
    }
