"""A meeting place in PostgreSQL: grants, reports and settled rounds are rows.

A shard connects, does everything in one transaction, and disconnects. The shard that divides a
round holds the lock on the run's row meanwhile; all others wait for it, and read what it wrote.
"""

import json
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from tidegate.errors import ConfigurationError, SupplierError
from tidegate.integrations.postgres.tables import ROW, check_version, find_version, make_tables
from tidegate.server.fleet_round import FleetRound
from tidegate.server.shards.coordinator import Coordinator
from tidegate.server.shards.meeting import (
    LEDGER_SUMS,
    MeetingView,
    Registration,
    Visit,
    check_memory,
    check_same,
    divided,
    shard_view,
)
from tidegate.server.shards.messages import Grant, Report

try:
    import psycopg
except ModuleNotFoundError as missing:
    raise ModuleNotFoundError(
        "psycopg is not installed; pip install 'tidegate[postgres]'", name="psycopg"
    ) from missing

SERVICE = re.compile(r"[\w.-]+")
CONNECT_SECONDS = 5
STATEMENT_SECONDS = 5
"""For one statement, and for the lock on a run that another shard divides."""
LONGEST_REASON = 300
FIND_RUN = "SELECT budget, slots, round_number FROM tidegate.run WHERE run = %s"
LOCK_RUN = "SELECT round_number, record::text FROM tidegate.run WHERE run = %s FOR NO KEY UPDATE"
POST_ROUND = (
    f"INSERT INTO tidegate.ledger (run, shard, {', '.join(ROW)}) "  # noqa: S608 - our own names
    f"VALUES (%s, %s, {', '.join(['%s'] * len(ROW))}) ON CONFLICT (run, shard, round_number) "
    f"DO UPDATE SET {', '.join(f'{name} = excluded.{name}' for name in ROW[1:])}"
)
POST_REPORT = """
    INSERT INTO tidegate.report (run, shard, round_number, spends, shadow_price)
    VALUES (%s, %s, %s, %s, %s) ON CONFLICT (run, shard) DO UPDATE
    SET round_number = excluded.round_number, spends = excluded.spends,
        shadow_price = excluded.shadow_price
    WHERE excluded.round_number > tidegate.report.round_number"""
POST_GRANT = """
    INSERT INTO tidegate.granted (run, shard, first_round, before, budgets)
    VALUES (%s, %s, %s, %s, %b) ON CONFLICT (run, shard) DO UPDATE
    SET first_round = excluded.first_round, before = excluded.before, budgets = excluded.budgets"""
SAVE_DIVISION = """
    UPDATE tidegate.run SET round_number = %s, record = %s, divided = now() WHERE run = %s"""
FIND_REPORTS = """
    SELECT shard, round_number, spends, shadow_price FROM tidegate.report WHERE run = %s"""
FIND_GRANTS = """
    SELECT shard, first_round, before, budgets FROM tidegate.granted WHERE run = %s"""
FIND_SUMS = """
    SELECT DISTINCT ON (shard) shard, round_number, sum(spent) OVER by_shard,
        (sum(admitted) OVER by_shard)::bigint, cost_debt, exposure, fleet,
        (sum(training_size) OVER by_shard)::bigint, effective_samples
    FROM tidegate.ledger WHERE run = %s WINDOW by_shard AS (PARTITION BY shard)
    ORDER BY shard, round_number DESC"""


class PostgresMeeting:
    """A meeting place in a PostgreSQL database, for shards on many machines.

    libpq's environment variables (``PGHOST``, ``PGUSER``, ``PGPASSWORD`` or ``PGPASSFILE``,
    ``PGSSLMODE``, ...) or a section of the connection service file say where the database is and
    who may use it. There is no argument for a password, so that none gets into an app, a folder or
    a log. The first shard creates the tables, in a schema ``tidegate``.

    Args:
        service: the section of the service file (``~/.pg_service.conf`` or ``PGSERVICEFILE``);
            without it, only the environment variables say where the database is.
    """

    def __init__(self, service: str | None = None) -> None:
        if service is not None and not (isinstance(service, str) and SERVICE.fullmatch(service)):
            # The value is not repeated: it may be an address with a password.
            raise ConfigurationError(
                "service must be the name of a section of the connection service file, such as "
                "'tidegate'; put host, user and password there, or into PG* variables"
            )
        self._service = service

    def register(self, registration: Registration) -> int:
        """Register a shard; the first of a run fixes its budget and its slots."""
        record = Coordinator(registration.run, registration.budget, registration.slots).to_record()
        with self._transaction() as cursor:
            make_tables(cursor)
            cursor.execute(
                "INSERT INTO tidegate.run (run, budget, slots, record) VALUES (%s, %s, %s, %s) "
                "ON CONFLICT DO NOTHING",
                (
                    registration.run,
                    registration.budget,
                    json.dumps(dict(registration.slots)),
                    json.dumps(record),
                ),
            )
            budget, slots, _ = cursor.execute(FIND_RUN, (registration.run,)).fetchone()
            cursor.execute(
                "INSERT INTO tidegate.shard (run, shard, books) VALUES (%s, %s, %s) "
                "ON CONFLICT DO NOTHING",
                (registration.run, registration.shard, registration.books),
            )
            who = (registration.run, registration.shard)
            found = "SELECT books FROM tidegate.shard WHERE run = %s AND shard = %s"
            (books,) = cursor.execute(found, who).fetchone()
            check_same(registration, budget=budget, slots=slots, books=books)
            found = "SELECT max(round_number) FROM tidegate.ledger WHERE run = %s AND shard = %s"
            (posted,) = cursor.execute(found, who).fetchone()
            return int(posted or 0)

    def exchange(self, visit: Visit) -> Grant:
        """Accept what a shard brings, divide its round if no shard has, and return its grant."""
        who = (visit.run, visit.shard)
        with self._transaction() as cursor:
            found = cursor.execute(FIND_RUN, (visit.run,)).fetchone()
            if found is None:
                raise SupplierError(
                    "the shards' database", f"no longer has run {visit.run!r}; restore it"
                )
            last = found[2]
            check_memory(visit, last)
            if visit.rounds:
                rows = [(*who, *_row(one)) for one in visit.rounds]
                cursor.executemany(POST_ROUND, rows)
            cursor.execute(
                "UPDATE tidegate.shard SET heard = now() WHERE run = %s AND shard = %s", who
            )
            if visit.report is not None:
                news = visit.report
                told = (news.round_number, news.spends, news.shadow_price)
                cursor.execute(POST_REPORT, (*who, *told))
            if last < visit.round_number:
                self._divide(cursor, visit)
            cursor.execute(f"{FIND_GRANTS} AND shard = %s", who)
            return _grant(visit.run, cursor.fetchone())

    def _divide(self, cursor: Any, visit: Visit) -> bool:
        """Divide a round unless another shard has meanwhile; return whether this one did."""
        last, record = cursor.execute(LOCK_RUN, (visit.run,)).fetchone()
        if last >= visit.round_number:
            return False
        reports = _reports(cursor, visit.run)
        after, grants = divided(json.loads(record), visit.round_number, reports.values())
        cursor.execute(SAVE_DIVISION, (visit.round_number, json.dumps(after), visit.run))
        cursor.executemany(
            POST_GRANT,
            [
                (one.run, one.shard, one.first_round, one.before, list(one.budgets))
                for one in grants
            ],
        )
        return True

    def look(self, run: str) -> MeetingView:
        """Return what is known about a run, read in a transaction that cannot write."""
        with self._transaction(read_only=True) as cursor:
            check_version(cursor)
            if find_version(cursor) is None or not (
                found := cursor.execute(FIND_RUN, (run,)).fetchone()
            ):
                raise ConfigurationError(f"the database has no run {run!r}{_others(cursor)}")
            budget, slots, last = found
            heard = "SELECT shard, extract(epoch FROM heard)::float8 FROM tidegate.shard"
            heard_at = dict(cursor.execute(f"{heard} WHERE run = %s", (run,)).fetchall())
            grants = {row[0]: _grant(run, row) for row in cursor.execute(FIND_GRANTS, (run,))}
            reports = _reports(cursor, run)
            sums = {
                row[0]: dict(zip(LEDGER_SUMS, row[1:], strict=True))
                for row in cursor.execute(FIND_SUMS, (run,))
            }
        return MeetingView(
            run=run,
            budget=budget,
            round_number=last,
            shards=tuple(
                shard_view(
                    shard,
                    slots=count,
                    heard=heard_at.get(shard),
                    round_number=last,
                    grant=grants.get(shard),
                    report=reports.get(shard),
                    ledger=sums.get(shard),
                )
                for shard, count in sorted(slots.items())
            ),
        )

    @contextmanager
    def _transaction(self, *, read_only: bool = False) -> Iterator[Any]:
        """Open a transaction on its own connection, with time limits at the database, too."""
        where = "" if self._service is None else f"service={self._service}"
        found = "any" if read_only else "read-write"  # of several hosts, a writer needs the primary
        try:
            with psycopg.connect(
                where,
                connect_timeout=CONNECT_SECONDS,
                target_session_attrs=found,
                prepare_threshold=None,  # for a pool in between
            ) as connection:
                connection.read_only = read_only or None
                # Each statement must see what other shards have written, whatever the database
                # prefers.
                connection.isolation_level = psycopg.IsolationLevel.READ_COMMITTED
                with connection.cursor() as cursor:
                    cursor.execute(
                        "SELECT set_config('statement_timeout', %(s)s, true), "
                        "set_config('idle_in_transaction_session_timeout', %(s)s, true)",
                        {"s": f"{STATEMENT_SECONDS}s"},
                    )
                    yield cursor
        except psycopg.Error as wrong:
            reason = " ".join(str(wrong).split())[:LONGEST_REASON] or type(wrong).__name__
            raise SupplierError("the shards' database", f"cannot be used: {reason}") from None


def _row(one: FleetRound) -> tuple[Any, ...]:
    return tuple(getattr(one, name) for name in ROW)


def _grant(run: str, row: Sequence[Any]) -> Grant:
    shard, first_round, before, budgets = row
    return Grant(
        run=run, shard=shard, first_round=first_round, before=before, budgets=tuple(budgets)
    )


def _reports(cursor: Any, run: str) -> dict[str, Report]:
    return {
        shard: Report(
            run=run, shard=shard, round_number=now, spends=spends, shadow_price=shadow_price
        )
        for shard, now, spends, shadow_price in cursor.execute(FIND_REPORTS, (run,))
    }


def _others(cursor: Any) -> str:
    """Return the newest runs in the database, for a user who mistyped one."""
    if find_version(cursor) is None:
        return "; no shard has been started there"
    names = cursor.execute("SELECT run FROM tidegate.run ORDER BY registered DESC LIMIT 5")
    return f"; the newest are {', '.join(repr(name) for (name,) in names) or 'none'}"
