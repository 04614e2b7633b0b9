"""A node that fails before it is sent an order: log and alarms say who that is, and why."""

import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from flwr.app import ArrayRecord, MetricRecord
from flwr.serverapp.strategy import FedAvg
from gated_apps import MODEL, gated_app

from tidegate.flower import AdmissionControl, LocalGrid
from tidegate.report.alarms import Alarm, alarms
from tidegate.report.live import summary
from tidegate.report.run_state import run_state
from tidegate.runs.reader import read_run

ROUNDS = 8
NODES = 3


class ServerStopsError(Exception):
    """A server that stops."""


def play(folder: Path, *, until: int, damaged_after: int = ROUNDS) -> AdmissionControl:
    """Play a part of a run; the buffer of the second client is damaged on the way."""
    buffers = folder / "buffers"

    def evaluate(server_round: int, arrays: ArrayRecord) -> MetricRecord:
        if server_round == until:
            raise ServerStopsError
        if server_round == damaged_after:
            for path in (buffers / "1").glob("*.sqlite*"):
                path.write_bytes(b"of another program" * 1000)
        return MetricRecord({})

    one = AdmissionControl(
        FedAvg(fraction_evaluate=0.0), "tide", budget=22.0, prices=3.0, folder=folder / "run"
    )
    nodes: list[dict[str, Any]] = [
        {"partition-id": number, "tidegate-folder": str(buffers / f"{number}")}
        for number in range(NODES)
    ]
    grid = LocalGrid(gated_app(lambda message, context: None), nodes)
    with suppress(ServerStopsError):
        one.start(grid, MODEL, ROUNDS, evaluate_fn=evaluate)
    return one


def found(folder: Path) -> dict[str, Alarm]:
    view, now = read_run(folder / "run"), time.time()
    return {one.name: one for one in alarms(view, summary(view, now), run_state(view, now))}


def test_a_client_whose_buffer_is_damaged_is_named_with_the_reason(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    play(tmp_path, until=5, damaged_after=2)
    assert "node 3 (partition-1) is left out: it replied without an introduction" in caplog.text
    told = found(tmp_path)
    assert "partition-1 (replied with an error): it replied" in told["CLIENTS FAIL"].what
    assert ".sqlite cannot be opened as a buffer" in told["CLIENTS FAIL"].what
    assert "sends them orders" not in told["CLIENTS FAIL"].to_do
    assert not told.keys() & {"CLIENTS AWAY", "NODES LEFT OUT"}


def test_a_server_that_starts_again_knows_the_node_and_not_yet_the_client(tmp_path: Path) -> None:
    play(tmp_path, until=5, damaged_after=2)
    play(tmp_path, until=7)
    told = found(tmp_path)
    assert told["NODES LEFT OUT"].what.startswith("node 3: it replied without an introduction")
    assert "one of the clients that are away" in told["NODES LEFT OUT"].to_do
    assert "partition-1" in told["CLIENTS AWAY"].what


def test_nothing_is_told_of_who_is_back(tmp_path: Path) -> None:
    play(tmp_path, until=5, damaged_after=2)
    for path in (tmp_path / "buffers" / "1").iterdir():
        path.unlink()
    play(tmp_path, until=7)
    assert not found(tmp_path).keys() & {"CLIENTS FAIL", "CLIENTS AWAY", "NODES LEFT OUT"}
