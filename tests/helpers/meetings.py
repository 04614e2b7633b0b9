"""Meeting places for tests: one in memory, one in a real PostgreSQL; both must do the same."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import psycopg
import pytest
from postgres import Postgres, needs_postgres

from tidegate.integrations import postgres
from tidegate.integrations.postgres import PostgresMeeting
from tidegate.server.fleet_round import FleetRound
from tidegate.server.shards import Meeting, Report
from tidegate.server.shards.meeting import Registration, Visit
from tidegate.server.shards.memory import MemoryMeeting

BOTH = [
    pytest.param("memory", id="memory"),
    pytest.param("postgres", id="postgres", marks=[pytest.mark.process, needs_postgres]),
]


@contextmanager
def found_by(database: Postgres) -> Iterator[pytest.MonkeyPatch]:
    """Let this process find a database, as a server's environment would.

    A busy machine is no database that is away: it has a minute for everything.
    """
    with pytest.MonkeyPatch.context() as patch:
        for limit in ("CONNECT_SECONDS", "STATEMENT_SECONDS"):
            patch.setattr(postgres, limit, 60)
        for name, value in database.environment.items():
            patch.setenv(name, value)
        yield patch


@contextmanager
def meeting_place(kind: str) -> Iterator[Meeting]:
    """One of both."""
    if kind == "memory":
        yield MemoryMeeting()
        return
    with Postgres() as database, found_by(database):
        yield PostgresMeeting()


def record_of(meeting: Meeting, run: str) -> dict[str, Any]:
    """The coordinator's record, as it lies there."""
    if isinstance(meeting, MemoryMeeting):
        found: dict[str, Any] = json.loads(meeting._runs[run].record)
        return found
    with psycopg.connect() as connection:
        kept = connection.execute("SELECT record FROM tidegate.run WHERE run = %s", (run,))
        return dict(kept.fetchall()[0][0])


def settled(number: int, spent: float = 0.0, **more: Any) -> FleetRound:
    """A round of a shard."""
    values = {
        "price": 1.0, "ordered": 0.0, "fleet": 2, "orders": 2, "answered": 2, "exhausted": 0,
        "admitted": 1, "overspend": 0.0, "cost_debt": 0.0, "exposure": 0.0, "slots": 20,
        "training_size": 10, "distinct_samples": 10, "effective_samples": 5.0 * number, **more,
    }  # fmt: skip
    return FleetRound(round_number=number, spent=spent, **values)


def registration(run: str, shard: str, **more: Any) -> Registration:
    """Of a shard of two."""
    given = {"budget": 30.0, "slots": {"east": 10, "west": 20}, "books": shard, **more}
    return Registration(run=run, shard=shard, **given)


def visit(run: str, shard: str, now: int, **more: Any) -> Visit:
    """A visit without news."""
    given = {"held": 0, "report": None, "rounds": [], **more}
    return Visit(run=run, shard=shard, round_number=now, **given)


def report(run: str, shard: str, now: int, wish: float = 1.0) -> Report:
    """What a shard says that plans to spend so much, and would like the same as everybody."""
    return Report(run=run, shard=shard, round_number=now, spends=wish, shadow_price=1.0)
