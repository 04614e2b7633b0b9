"""The tables in which shards meet, and their version."""

from typing import Any

from tidegate.errors import RunDiffersError

VERSION = 1
"""Of the tables; raised whenever they change."""
LOCK = 7_465_676_174
"""Of the transaction that makes the tables: two shards may be the first at once."""
TABLES = """
CREATE SCHEMA IF NOT EXISTS tidegate;
CREATE TABLE tidegate.version (version integer NOT NULL);
CREATE TABLE tidegate.run (
    run text PRIMARY KEY,
    budget double precision NOT NULL,
    slots json NOT NULL,
    round_number bigint NOT NULL DEFAULT 0,
    record json NOT NULL,
    registered timestamptz NOT NULL DEFAULT now(),
    divided timestamptz
);
CREATE TABLE tidegate.shard (
    run text NOT NULL REFERENCES tidegate.run,
    shard text NOT NULL,
    books text NOT NULL,
    heard timestamptz,
    PRIMARY KEY (run, shard)
);
CREATE TABLE tidegate.report (
    run text NOT NULL REFERENCES tidegate.run,
    shard text NOT NULL,
    round_number bigint NOT NULL,
    spends double precision NOT NULL,
    shadow_price double precision NOT NULL,
    PRIMARY KEY (run, shard)
);
CREATE TABLE tidegate.granted (
    run text NOT NULL REFERENCES tidegate.run,
    shard text NOT NULL,
    first_round bigint NOT NULL,
    before double precision NOT NULL,
    budgets double precision[] NOT NULL,
    PRIMARY KEY (run, shard)
);
CREATE TABLE tidegate.ledger (
    run text NOT NULL REFERENCES tidegate.run,
    shard text NOT NULL,
    round_number bigint NOT NULL,
    price double precision NOT NULL,
    admitted bigint NOT NULL,
    spent double precision NOT NULL,
    overspend double precision NOT NULL,
    cost_debt double precision NOT NULL,
    exposure double precision NOT NULL,
    fleet bigint NOT NULL,
    answered bigint NOT NULL,
    training_size bigint NOT NULL,
    distinct_samples bigint NOT NULL,
    effective_samples double precision NOT NULL,
    settled timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (run, shard, round_number)
);
"""
ROW = (
    *("round_number", "price", "admitted", "spent", "overspend", "cost_debt", "exposure", "fleet"),
    *("answered", "training_size", "distinct_samples", "effective_samples"),
)
"""Of a settled round, what the ledger has."""


def make_tables(cursor: Any) -> None:
    """Create the tables if there are none; only the first shard needs the right to do so."""
    if find_version(cursor) is None:
        cursor.execute("SELECT pg_advisory_xact_lock(%s)", (LOCK,))
        if find_version(cursor) is None:
            cursor.execute(TABLES)
            cursor.execute("INSERT INTO tidegate.version VALUES (%s)", (VERSION,))
    check_version(cursor)


def check_version(cursor: Any) -> None:
    """Refuse tables that a newer Tidegate has created."""
    found = find_version(cursor)
    if found is not None and found > VERSION:
        raise RunDiffersError(
            f"the database has Tidegate's tables in version {found}, but this program supports "
            f"version {VERSION}; install the newer Tidegate that the other shards have, or use "
            "another database for these shards",
            name="version",
            saved=found,
            given=VERSION,
        )


def find_version(cursor: Any) -> int | None:
    """Return the version of the tables; None if there are none."""
    # Not to_regclass(): a session remembers that there was none, also after it has waited.
    cursor.execute(
        "SELECT 1 FROM pg_tables WHERE schemaname = 'tidegate' AND tablename = 'version'"
    )
    if cursor.fetchone() is None:
        return None
    cursor.execute("SELECT max(version) FROM tidegate.version")
    found: int | None = cursor.fetchone()[0]
    return found
