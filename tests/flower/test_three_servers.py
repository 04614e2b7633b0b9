"""Three real servers, each a SuperLink with TLS and two SuperNodes, on one real PostgreSQL."""

import contextlib
import importlib
import math
import os
import signal
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from books import client_files, discrepancies, rows
from deployment import Deployment, deployed, kill, wait_for
from meetings import found_by
from postgres import PASSWORD, Postgres, needs_postgres

from tidegate.flower import run_in_process
from tidegate.integrations.postgres import PostgresMeeting
from tidegate.runs.reader import read_run
from tidegate.server.shards import MeetingView

APP = Path(__file__).parent.parent / "helpers" / "shard_app"
SIDES = ("server", "client")
ROUNDS = 20
BUDGET = 330.0
NAMES = ("east", "north", "west")
RUN = "six-clients"
NODES = 2
MINUTES = 45 * 60.0


@contextlib.contextmanager
def three(folder: Path) -> Iterator[dict[str, Deployment]]:
    """A deployment for each shard, all online."""
    with contextlib.ExitStack() as opened, ThreadPoolExecutor(3) as at_once:

        def start(name: str) -> Deployment:
            (folder / name).mkdir()
            return opened.enter_context(deployed(folder / name, NODES))

        yield dict(zip(NAMES, at_once.map(start, NAMES), strict=True))


def alone(folder: Path, patch: pytest.MonkeyPatch) -> tuple[float, float]:
    """Effective samples of one server with all six nodes, in this process, and what it spent."""
    patch.syspath_prepend(str(APP))
    server, client = (importlib.import_module(f"sharded.{side}_app") for side in SIDES)
    config: dict[str, bool | float | int | str] = {
        "folder": str(folder), "shard": "", "clients": 6, "num-server-rounds": ROUNDS,
        "timeout": 60.0,
    }  # fmt: skip
    run_in_process(server.app, client.app, num_clients=6, run_config=config)
    rounds = read_run(folder).rounds
    return rounds[-1].effective_samples, math.fsum(row.spent for row in rounds)


@pytest.mark.full
@pytest.mark.process
@needs_postgres
def test_three_servers_lose_no_cent_while_server_node_and_database_are_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs = {name: tmp_path / "runs" / name for name in NAMES}
    with Postgres() as database, found_by(database), three(tmp_path) as servers:
        meeting, granted = PostgresMeeting(), list[MeetingView]()

        def begin(name: str) -> str:
            config = {"folder": str(runs[name]), "shard": name, "num-server-rounds": ROUNDS}
            return servers[name].run(APP, config)

        def played(name: str, rounds: int) -> None:
            def enough() -> bool | None:
                with contextlib.suppress(OSError):
                    return len(rows(runs[name])) >= rounds or None
                return None

            wait_for(enough, f"round {rounds} of {name}", MINUTES, every=0.5)

        ids = {name: begin(name) for name in NAMES}
        played("east", 4)
        granted.append(meeting.look(RUN))
        for process in servers["east"].processes():
            if servers["east"].owns(process, "flwr-serverapp"):
                os.kill(process, signal.SIGKILL)
        ids["east"] = begin("east")
        played("west", 8)
        granted.append(meeting.look(RUN))
        kill(servers["west"].nodes[1])
        servers["west"].restart_node(1, NODES)
        played("north", 12)
        granted.append(meeting.look(RUN))
        database.kill()
        played("north", 14)
        database.start()
        for name, run_id in ids.items():
            ended = servers[name].finished(run_id, MINUTES)
            assert ended == "finished:completed", servers[name].log(run_id)
        granted.append(meeting.look(RUN))
        logs = {name: servers[name].log(run_id) for name, run_id in ids.items()}
        files = {
            name: client_files(RUN, *(one.buffers(number) for number in range(NODES)))
            for name, one in servers.items()
        }
    assert f"resuming run {RUN}" in logs["east"]
    assert "continues with the money promised to it" in logs["north"]
    assert "can be reached again" in logs["north"]
    for view in granted:
        assert view.spent <= view.granted <= BUDGET * view.round_number
    last = granted[-1]
    books = {name: read_run(folder).rounds for name, folder in runs.items()}
    for shard in last.shards:
        mine = books[shard.shard]
        assert [row.round_number for row in mine] == list(range(1, ROUNDS + 1))
        assert shard.spent == pytest.approx(math.fsum(row.spent for row in mine), rel=1e-12)
        assert discrepancies(runs[shard.shard], files[shard.shard]) == []
    everything = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert not [one for one in everything if PASSWORD.encode() in one.read_bytes()]
    effective, spent = alone(tmp_path / "alone", monkeypatch)
    gained = last.effective_samples / effective
    print(f"spent {last.spent:.2f}, granted {last.granted:.2f} of {BUDGET * ROUNDS:.2f}; "
          f"effective samples {gained:.4f} of one server's, which spent {spent:.2f}")  # fmt: skip
    assert gained >= 0.98  # a node that is away reuses nothing, so that more is no surprise
