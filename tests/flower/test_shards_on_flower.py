"""Servers on Flower that share one budget, in memory and in a real PostgreSQL that is killed."""

import logging
import math
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from deployment import wait_for
from flwr.app import ArrayRecord
from flwr.serverapp.strategy import FedAvg
from gated_apps import MODEL, gated_app
from meetings import BOTH, found_by, meeting_place
from postgres import PASSWORD, Postgres, needs_postgres

from tidegate.errors import DamagedFileError, RunDiffersError, SupplierError
from tidegate.flower import AdmissionControl, LocalGrid, Shard
from tidegate.integrations.postgres import PostgresMeeting
from tidegate.prices import PricePath, UniformPrice
from tidegate.server.shards import Meeting
from tidegate.server.shards.memory import MemoryMeeting

ROUNDS = 30
BUDGET = 44.0
SLOTS = {"east": 38, "west": 38}
After = Callable[[int, ArrayRecord], None]


class KilledError(RuntimeError):
    """Stands for the end of a process, between two of its steps."""


def shard(name: str, meeting: Meeting, **given: Any) -> AdmissionControl:
    prices = PricePath(UniformPrice(1, 10), seed=given.pop("seed", 1))
    return AdmissionControl(
        FedAvg(fraction_evaluate=0.0), "tide",
        **{
            "budget": BUDGET, "prices": prices, "run": "shared",
            "shard": Shard(name, SLOTS, meeting, patience=20.0), **given,
        },
    )  # fmt: skip


def play(one: AdmissionControl, rounds: int = ROUNDS, after: After | None = None) -> None:
    grid = LocalGrid(gated_app(), [{"partition-id": number} for number in range(4)])
    one.start(grid, MODEL, rounds, evaluate_fn=after)


@pytest.fixture(params=BOTH)
def meeting(request: pytest.FixtureRequest) -> Iterator[Meeting]:
    with meeting_place(request.param) as place:
        yield place


def test_two_servers_keep_one_budget_and_one_ledger(meeting: Meeting) -> None:
    """Side by side; each waits for the other after every round."""
    servers = {name: shard(name, meeting, seed=n) for n, name in enumerate(SLOTS, start=1)}
    together = threading.Barrier(2)

    def wait(server_round: int, arrays: ArrayRecord) -> None:
        together.wait(60)

    with ThreadPoolExecutor(2) as pool:
        list(pool.map(lambda one: play(one, after=wait), servers.values()))
    view = meeting.look("shared")
    spent = {name: math.fsum(row.spent for row in one.rounds) for name, one in servers.items()}
    assert {one.shard: one.spent for one in view.shards} == pytest.approx(spent, rel=1e-12)
    assert 0.9 * BUDGET * ROUNDS < sum(spent.values()) <= view.granted <= BUDGET * ROUNDS
    assert [one.round_number for one in view.shards] == [ROUNDS, ROUNDS]
    assert all(one.shadow_price for one in view.shards)
    for name, one in servers.items():
        assert all(row.overspend <= 1e-9 for row in one.rounds), name


def test_a_server_that_starts_again_counts_no_grant_twice(tmp_path: Path) -> None:
    meeting = MemoryMeeting()

    def die(server_round: int, arrays: ArrayRecord) -> None:
        if server_round == 10:
            raise KilledError

    with pytest.raises(KilledError):
        play(shard("east", meeting, folder=tmp_path), after=die)
    again = shard("east", meeting, folder=tmp_path)
    play(again)
    assert len(again.rounds) == ROUNDS
    spent = math.fsum(row.spent for row in again.rounds)
    east = meeting.look("shared").shards[0]
    assert east.spent == pytest.approx(spent, rel=1e-12)
    assert spent <= east.granted
    with pytest.raises(RunDiffersError, match="'east' of run 'shared' belongs to a server with ot"):
        play(shard("east", meeting, folder=tmp_path / "other"))
    with pytest.raises(RunDiffersError, match="belongs to a server with other books"):
        play(shard("east", meeting))
    for path in tmp_path.iterdir():
        if path.is_file() and path.name != "shard.json":
            path.unlink()
    with pytest.raises(DamagedFileError, match="books of shard 'east' are gone, but it has been g"):
        play(shard("east", meeting, folder=tmp_path))


def test_another_budget_is_refused_before_the_first_round(tmp_path: Path) -> None:
    meeting = MemoryMeeting()
    play(shard("east", meeting), 1)
    other = shard("west", meeting, budget=45.0, folder=tmp_path)
    with pytest.raises(
        RunDiffersError, match=r"a budget of 44.0, but 'west' was started with 45.0"
    ):
        play(other)
    assert not (tmp_path / "books.sqlite").exists()


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"run": None}, "shard 'east' has no run: shards find each other by the run's name"),
        ({"shard": "east"}, "shard must be a Shard, got 'east'"),
        ({"budget": "44"}, "budget must be a number above 0, got '44'"),
    ],
)
def test_what_a_shard_lacks_is_named(given: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        shard("east", MemoryMeeting(), **given)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (("north", SLOTS, MemoryMeeting()), "'north' is not among 'east', 'west'"),
        (("east", ["east"], MemoryMeeting()), "slots must be a Mapping"),
        (("east", {"east": 0}, MemoryMeeting()), "the slots of shard 'east' must be a whole num"),
        (("east", SLOTS, "postgres"), "meeting must be a meeting place"),
        (("east", SLOTS, MemoryMeeting), "meeting must be a meeting place"),
        (("east", SLOTS, MemoryMeeting(), 0.0), "patience must be above 0 seconds, got 0.0"),
    ],
)
def test_impossible_shards_are_refused(given: tuple[Any, ...], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        Shard(*given)


@pytest.mark.process
@needs_postgres
def test_without_its_database_a_shard_lives_on_what_it_was_promised(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Killed, and later stopped without an end; each is told once, and no password anywhere."""
    caplog.set_level(logging.INFO)
    folder = tmp_path / "run"
    with Postgres() as database, found_by(database) as patch:
        meeting = PostgresMeeting()

        def disturb(server_round: int, arrays: ArrayRecord) -> None:
            if server_round == 10:
                database.kill()
            if server_round == 13:
                database.start()
            if server_round == 20:
                database.stop()
            if server_round == 22:
                database.go_on()
                wait_for(lambda: not asking().is_alive() or None, "the end of the last question")

        def asking() -> threading.Thread:
            assert east._membership is not None
            assert east._membership._late is not None
            return east._membership._late

        east = shard("east", meeting, folder=folder)
        play(east, after=disturb)
        told = [record.getMessage() for record in caplog.records if "shards' " in record.message]
        places = [text.split(":")[0] for text in told]
        assert places == ["round 11", "round 14", "round 21", "round 23"], told
        assert "shard 'east' continues with the money promised to it, up to round 15" in told[0]
        assert "the shards' meeting place did not reply within 20 s" in told[2]
        assert told[1].endswith("the shards' meeting place can be reached again")
        assert sum(row.spent for row in east.rounds[10:13])
        assert meeting.look("shared").spent == pytest.approx(
            math.fsum(row.spent for row in east.rounds), rel=1e-12
        )
        database.kill()
        caplog.clear()
        play(shard("east", meeting, folder=folder), ROUNDS)  # all are played: nothing to ask for
        assert "cannot be used" in caplog.text
        with pytest.raises(SupplierError, match="the shards' database cannot be used") as away:
            play(shard("west", meeting, folder=tmp_path / "west"))
        database.start()
        patch.setenv("PGPASSWORD", f"wrong {PASSWORD}")
        with pytest.raises(SupplierError, match="password authentication failed") as refused:
            play(shard("west", meeting, folder=tmp_path / "west"))
    for text in (caplog.text, *told, repr(away.value), repr(refused.value)):
        assert PASSWORD not in text
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert len(files) > 5
    assert not [path for path in files if PASSWORD.encode() in path.read_bytes()]
