"""Shards that meet in PostgreSQL, each with a transaction a second: how long one takes.

python benchmarks/shards_in_postgres.py --shards 100 --seconds 60
python benchmarks/shards_in_postgres.py --shards 1000 --every 20 --seconds 60 --json

The database is the one that the PG* variables name. Every shard is a thread of this process that
connects, brings a report and a settled round, and takes its grant away; it begins its rounds at a
time of its own in each second, or in each period of ``--every`` seconds. Budgets are promised 100
rounds ahead, as late in a long run.
"""

import argparse
import json
import time
import uuid
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from tidegate.errors import SupplierError
from tidegate.integrations.postgres import PostgresMeeting
from tidegate.server.fleet_round import FleetRound
from tidegate.server.shards import Grant, Report
from tidegate.server.shards.meeting import Registration, Visit

BUDGET = 1000.0
FIRST = 200
"""The round that all begin after: from here on, budgets are promised 100 rounds ahead."""


class Timed(PostgresMeeting):
    """Notes how long divisions take, from the question for the lock to the last row."""

    def __init__(self) -> None:
        super().__init__()
        self.divisions: list[float] = []

    def _divide(self, cursor: Any, visit: Visit) -> bool:
        began = time.perf_counter()
        has_divided = super()._divide(cursor, visit)
        if has_divided:
            self.divisions.append(time.perf_counter() - began)
        return has_divided


@dataclass(frozen=True)
class Outcome:
    """Of one measurement; times in seconds."""

    shards: int
    seconds: float
    visits: int
    """Transactions that came to their end."""
    failed: int
    """Those that did not, because the database refused or was too slow."""
    visits_per_second: float
    visit_median: float
    visit_99: float
    visit_longest: float
    divisions: int
    division_median: float
    division_longest: float
    behind: int
    """Rounds that the slowest shard was behind at the end."""
    granted: float
    """As a part of what there was: never above 1."""


def settled(now: int) -> FleetRound:
    names = [name for name in FleetRound.__dataclass_fields__ if name != "health"]
    return FleetRound(**{**dict.fromkeys(names, 1), "round_number": now})  # type: ignore[arg-type]


def measure(shards: int, seconds: float, every: float) -> Outcome:
    meeting, run = Timed(), uuid.uuid4().hex
    names = [f"shard-{number}" for number in range(shards)]
    slots = dict.fromkeys(names, 100)

    def visit(name: str, now: int) -> Grant:
        report = Report(run=run, shard=name, round_number=now - 1, spends=1.0, shadow_price=1.0)
        seen = Visit(
            run=run, shard=name, round_number=now, held=0, report=report, rounds=[settled(now - 1)]
        )
        return meeting.exchange(seen)

    for name in names:
        given = Registration(run=run, shard=name, budget=BUDGET, slots=slots, books=name)
        meeting.register(given)
    visit(names[0], FIRST)
    meeting.divisions.clear()
    began = time.monotonic()

    def serve(number: int) -> tuple[list[float], int, int]:
        took, failed, now = list[float](), 0, FIRST
        while True:
            now += 1
            due = began + every * (now - FIRST - 1 + number / shards)
            if due > began + seconds:
                break
            time.sleep(max(due - time.monotonic(), 0.0))
            if time.monotonic() > began + seconds:
                break
            asked = time.perf_counter()
            try:
                visit(names[number], now)
                took.append(time.perf_counter() - asked)
            except SupplierError:
                failed += 1
        return took, failed, now

    with ThreadPoolExecutor(shards) as pool:
        served = list(pool.map(serve, range(shards)))
    elapsed = time.monotonic() - began
    took = np.array([one for times, _, _ in served for one in times])
    view = meeting.look(run)
    return Outcome(
        shards=shards,
        seconds=elapsed,
        visits=len(took),
        failed=sum(failed for _, failed, _ in served),
        visits_per_second=len(took) / elapsed,
        visit_median=float(np.median(took)),
        visit_99=float(np.quantile(took, 0.99)),
        visit_longest=float(took.max()),
        divisions=len(meeting.divisions),
        division_median=float(np.median(meeting.divisions)),
        division_longest=max(meeting.divisions),
        behind=max(now for _, _, now in served) - min(now for _, _, now in served),
        granted=view.granted / (BUDGET * view.round_number),
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--shards", type=int, nargs="+", default=[100])
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--every", type=float, default=1.0, help="seconds of a round")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    outcomes = [measure(shards, options.seconds, options.every) for shards in options.shards]
    if options.json:
        print(json.dumps([asdict(one) for one in outcomes], indent=2))
        return
    print("| shards | transactions a second | failed | median, ms | 99 %, ms | longest, ms | "
          "division, ms | longest division, ms | rounds behind |\n|" + "---|" * 9)  # fmt: skip
    for one in outcomes:
        print(f"| {one.shards:,} | {one.visits_per_second:,.0f} | {one.failed:,} | "
              f"{1e3 * one.visit_median:,.0f} | {1e3 * one.visit_99:,.0f} | "
              f"{1e3 * one.visit_longest:,.0f} | {1e3 * one.division_median:,.0f} | "
              f"{1e3 * one.division_longest:,.0f} | {one.behind} |")  # fmt: skip


if __name__ == "__main__":
    main()
