"""What only a database can do: other versions, rights, time limits, credentials, SIGKILL."""

import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from pathlib import Path

import psycopg
import pytest
from check_size import at_size
from meetings import found_by, registration, settled, visit
from postgres import PASSWORD, USER, Postgres, needs_postgres

import shards_in_postgres
from tidegate.errors import ConfigurationError, RunDiffersError, SupplierError
from tidegate.integrations import postgres
from tidegate.integrations.postgres import PostgresMeeting
from tidegate.integrations.postgres.tables import VERSION
from tidegate.server.fleet_round import FleetRound
from tidegate.server.shards import Membership, Shard

pytestmark = [pytest.mark.process, needs_postgres]

SECRET = "in the service file"  # noqa: S105 - of a database that lives for seconds
VISITS = at_size(20, 80)
_numbers = count(1)


@pytest.fixture(scope="module")
def cluster() -> Iterator[Postgres]:
    with Postgres() as server:
        yield server


@pytest.fixture
def database(cluster: Postgres) -> Iterator[pytest.MonkeyPatch]:
    """An empty database of its own, which this process finds by its environment."""
    name = f"database_{next(_numbers)}"
    with found_by(cluster) as patch:
        with psycopg.connect(autocommit=True) as connection:
            connection.execute(f"CREATE DATABASE {name}")
        patch.setenv("PGDATABASE", name)
        yield patch


def execute(statement: str) -> None:
    with psycopg.connect() as connection:
        connection.execute(statement)


def test_many_that_are_the_first_make_the_tables_once(database: pytest.MonkeyPatch) -> None:
    ready = threading.Barrier(6)

    def come(number: int) -> int:
        ready.wait()
        return PostgresMeeting().register(registration("r", ("east", "west")[number % 2]))

    with ThreadPoolExecutor(6) as pool:
        assert list(pool.map(come, range(6))) == [0] * 6
    with psycopg.connect() as connection:
        found = connection.execute("SELECT version FROM tidegate.version").fetchall()
    assert found == [(VERSION,)]


def test_newer_tables_are_refused(database: pytest.MonkeyPatch) -> None:
    meeting = PostgresMeeting()
    meeting.register(registration("r", "east"))
    execute("UPDATE tidegate.version SET version = version + 1")
    told = rf"tables in version {VERSION + 1}, but this program supports version {VERSION}; install"
    with pytest.raises(RunDiffersError, match=told):
        meeting.register(registration("r", "west"))
    with pytest.raises(RunDiffersError, match=told):
        meeting.look("r")


def test_who_may_only_read_can_look_and_a_look_changes_nothing(
    database: pytest.MonkeyPatch,
) -> None:
    meeting = PostgresMeeting()
    with pytest.raises(ConfigurationError, match="no run 'r'; no shard has been started there"):
        meeting.look("r")
    meeting.register(registration("r", "east"))
    meeting.exchange(visit("r", "east", 1, rounds=[settled(1, 2.5)]))
    with pytest.raises(ConfigurationError, match="has no run 'q'; the newest are 'r'"):
        meeting.look("q")
    name = f"reader_{next(_numbers)}"
    execute(
        f"CREATE ROLE {name} LOGIN PASSWORD '{PASSWORD}'; GRANT USAGE ON SCHEMA tidegate TO {name};"
        f"GRANT SELECT ON ALL TABLES IN SCHEMA tidegate TO {name}"
    )
    database.setenv("PGUSER", name)
    assert meeting.look("r").spent == 2.5
    with pytest.raises(SupplierError, match="cannot be used: permission denied"):
        meeting.exchange(visit("r", "east", 2))
    database.setenv("PGUSER", USER)
    execute("ALTER ROLE gate SET default_transaction_read_only = on")
    try:
        assert meeting.look("r").round_number == 1  # as on a replica
        with pytest.raises(SupplierError, match="cannot be used"):
            meeting.exchange(visit("r", "east", 2))
    finally:
        with psycopg.connect(options="-c default_transaction_read_only=off") as connection:
            connection.execute("ALTER ROLE gate RESET default_transaction_read_only")


def test_a_service_file_says_where_the_database_is_and_no_error_tells_its_password(
    cluster: Postgres, database: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    execute(f"CREATE ROLE north LOGIN SUPERUSER PASSWORD '{SECRET}'")
    file = tmp_path / "services"
    where = f"host=127.0.0.1\nport={cluster.port}\nuser=north\ndbname=postgres\n"
    file.write_text(f"[tidegate]\n{where}password={SECRET}\n[wrong]\n{where}password={SECRET}!\n")
    for name in ("PGHOST", "PGPORT", "PGUSER", "PGDATABASE", "PGPASSWORD"):
        database.delenv(name)
    database.setenv("PGSERVICEFILE", str(file))
    meeting = PostgresMeeting(service="tidegate")
    assert meeting.register(registration("by service", "east")) == 0
    errors = []
    for service, words in (("wrong", "password authentication failed"), ("none", "not found")):
        with pytest.raises(SupplierError, match=words) as wrong:
            PostgresMeeting(service).look("r")
        errors.append(wrong)
    file.write_text(f"[tidegate]\npassword {SECRET}\n")
    with pytest.raises(SupplierError, match="cannot be used") as wrong:
        meeting.look("r")
    errors.append(wrong)
    with pytest.raises(ConfigurationError, match="service must be the name of a sect") as refused:
        PostgresMeeting(f"host=127.0.0.1 password={SECRET}")
    for error in (*errors, refused):
        assert SECRET not in repr(error.getrepr(style="long"))
        assert SECRET not in f"{meeting!r} {vars(meeting)}"


@pytest.mark.parametrize("level", ["read committed", "repeatable read", "serializable"])
def test_every_visit_succeeds_whatever_isolation_the_database_prefers(
    database: pytest.MonkeyPatch, level: str
) -> None:
    database.setenv(
        "PGOPTIONS", f"-c default_transaction_isolation={level.replace(' ', chr(92) + ' ')}"
    )
    shards = ("east", "west")
    for shard in shards:
        PostgresMeeting().register(registration("r", shard))

    def play(shard: str) -> float:
        for now in range(1, VISITS + 1):
            grant = PostgresMeeting().exchange(visit("r", shard, now, rounds=[settled(now, 1.0)]))
        return grant.until(VISITS)

    with ThreadPoolExecutor(2) as pool:
        granted = sum(pool.map(play, shards))
    assert granted == pytest.approx(30.0 * VISITS)
    assert PostgresMeeting().look("r").spent == 2 * VISITS


def test_a_lock_that_nobody_gives_back_holds_no_round_up(
    database: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A round waits as long as the shard's patience; the database ends the wait soon after."""
    database.setattr(postgres, "STATEMENT_SECONDS", 5)
    meeting = PostgresMeeting()
    shard = Shard("east", {"east": 10, "west": 20}, meeting, patience=1.0)
    east = Membership(shard, "r", 30.0, tmp_path)
    east.join(None)
    east.meet(1, None, [])
    with psycopg.connect() as hung:
        hung.execute("SELECT * FROM tidegate.run FOR UPDATE")
        began = time.monotonic()
        east.meet(2, None, [settled(1)])
        east.meet(3, None, [settled(1), settled(2)])
        assert time.monotonic() - began < 4  # 1 s for the first, none for the second
        with pytest.raises(SupplierError, match="statement timeout"):
            meeting.exchange(visit("r", "west", 2))
        assert east.purse.grant.first_round == 1
    east.meet(4, None, [settled(one) for one in (1, 2, 3)])
    assert (east.purse.grant.first_round, meeting.look("r").shards[0].round_number) == (4, 3)


def test_a_database_that_is_killed_has_every_division_and_every_round_that_it_was_told(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """It is killed and started again while two shards play."""
    rounds, kills = at_size(60, 600), at_size(3, 30)
    slots = {"east": 10, "west": 20}
    with Postgres() as server, found_by(server):
        meeting = PostgresMeeting()
        calm, begun = threading.Event(), threading.Barrier(3)

        def serve(name: str) -> float:
            folder = tmp_path / name
            folder.mkdir()
            member = Membership(Shard(name, slots, meeting), "r", 30.0, folder)
            member.join(None)
            begun.wait(600)
            counted, books = 0.0, list[FleetRound]()
            while len(books) < rounds:
                now = len(books) + 1
                member.meet(now, None, books)
                budget = member.purse.budget(now, counted)
                counted += budget
                books.append(settled(now, budget))
                time.sleep(0.02)  # a round
            assert calm.wait(600)
            member.leave(None, books)
            return counted

        def break_it() -> None:
            begun.wait(600)
            for _ in range(kills):
                time.sleep(0.3)  # in the midst of things
                server.kill()
                server.start()
            calm.set()

        with ThreadPoolExecutor(3) as pool:
            killing = pool.submit(break_it)
            counted = list(pool.map(serve, slots))
            killing.result()
        assert "continues with the money promised to it" in caplog.text
        view = meeting.look("r")
        assert view.spent == pytest.approx(sum(counted), rel=1e-12)
        assert 0.5 * 30.0 * rounds < sum(counted) <= view.granted <= 30.0 * rounds


def test_the_benchmark_measures_divisions(database: pytest.MonkeyPatch) -> None:
    found = shards_in_postgres.measure(shards=3, seconds=2.5, every=1.0)
    assert (found.divisions, found.failed) == (3, 0)
    assert found.visits >= 7
    assert 0.9 < found.granted <= 1.0
    assert 0 < found.division_median <= found.visit_longest
