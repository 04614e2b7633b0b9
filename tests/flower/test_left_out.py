"""A node that fails before it is sent an order: log and alarms say who that is, and why."""

import json
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from flwr.app import ArrayRecord, Context, Message, MetricRecord
from flwr.serverapp.strategy import FedAvg
from gated_apps import MODEL, gated_app
from meetings import settled

from tidegate.flower import AdmissionControl, LocalGrid
from tidegate.flower.nodes import Nodes
from tidegate.report.alarms import Alarm, alarms
from tidegate.report.live import summary
from tidegate.report.run_state import run_state
from tidegate.runs.folder import METRICS
from tidegate.runs.journal import Journal
from tidegate.runs.reader import read_run
from tidegate.runs.sinks import Moment

ROUNDS = 8
NODES = 3


class ServerStopsError(Exception):
    """A server that stops."""


def play(
    folder: Path, *, until: int, damaged: Sequence[int] = (), failing: Sequence[int] = ()
) -> dict[str, Alarm]:
    """Play a part of a run; return the alarms while it is in its last round.

    After two rounds some buffers are damaged, and the training of some clients fails.
    """
    buffers, found = folder / "buffers", dict[str, Alarm]()

    def fail(message: Message, context: Context) -> None:
        if context.node_config["partition-id"] in failing and len(one.rounds) >= 2:
            raise RuntimeError("no memory")

    def evaluate(server_round: int, arrays: ArrayRecord) -> MetricRecord:
        if server_round == 2:
            for number in damaged:
                for path in (buffers / f"{number}").glob("*.sqlite*"):
                    path.write_bytes(b"of another program" * 1000)
        if server_round == until:
            view, now = read_run(folder / "run"), time.time()
            told = alarms(view, summary(view, now), run_state(view, now))
            found.update({alarm.name: alarm for alarm in told})
            raise ServerStopsError
        return MetricRecord({})

    one = AdmissionControl(
        FedAvg(fraction_evaluate=0.0), "tide", budget=22.0, prices=3.0, folder=folder / "run"
    )
    nodes: list[dict[str, Any]] = [
        {"partition-id": number, "tidegate-folder": str(buffers / f"{number}")}
        for number in range(NODES)
    ]
    with suppress(ServerStopsError):
        one.start(LocalGrid(gated_app(fail), nodes), MODEL, ROUNDS, evaluate_fn=evaluate)
    return found


STILL_BUYING = "the server still sends them orders"


def test_a_client_whose_buffer_is_damaged_is_named_with_the_reason(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    told = play(tmp_path, until=5, damaged=[1])
    assert "node 3 (partition-1) is left out: it replied without an introduction" in caplog.text
    assert "partition-1 (replied with an error): it replied" in told["CLIENTS FAIL"].what
    assert ".sqlite cannot be opened as a buffer" in told["CLIENTS FAIL"].what
    assert STILL_BUYING not in told["CLIENTS FAIL"].to_do
    assert not told.keys() & {"CLIENTS AWAY", "NODES LEFT OUT"}


def test_whoever_fails_in_training_is_told_apart(tmp_path: Path) -> None:
    told = play(tmp_path, until=5, damaged=[1], failing=[0])["CLIENTS FAIL"]
    assert "partition-1 (replied with an error): RuntimeError: no memory" in told.what
    assert ": it replied without an introduction" in told.what
    assert STILL_BUYING in told.to_do


def test_everybody_is_named_if_nobody_is_left(tmp_path: Path) -> None:
    told = play(tmp_path, until=6, damaged=range(NODES))
    assert "NOTHING LEARNED" in told
    assert "partition-0 (replied with an error), partition-1 (" in told["CLIENTS FAIL"].what
    assert "; partition-0 because: it replied without" in told["CLIENTS FAIL"].what


def test_a_server_that_starts_again_knows_the_node_and_not_yet_the_client(tmp_path: Path) -> None:
    play(tmp_path, until=5, damaged=[1])
    told = play(tmp_path, until=7)
    assert told["NODES LEFT OUT"].what.startswith("node 3: it replied without an introduction")
    assert "one of the clients that are away" in told["NODES LEFT OUT"].to_do
    assert "partition-1" in told["CLIENTS AWAY"].what


def test_nothing_is_told_of_who_is_back(tmp_path: Path) -> None:
    play(tmp_path, until=5, damaged=[1])
    for path in (tmp_path / "buffers" / "1").iterdir():
        path.unlink()
    told = play(tmp_path, until=7)
    assert not told.keys() & {"CLIENTS FAIL", "CLIENTS AWAY", "NODES LEFT OUT"}


def test_reasons_are_written_once(tmp_path: Path) -> None:
    play(tmp_path, until=7, damaged=[1])
    lines = (tmp_path / "run" / METRICS).read_text("utf-8").splitlines()
    written = [json.loads(line) for line in lines if '"left_out"' in line]
    assert [list(line["left_out"]) for line in written] == [["partition-1"]]
    assert len(lines) > 2 * written[0]["round"] + 3  # more rounds followed


def test_a_thousand_nodes_fill_no_file(tmp_path: Path) -> None:
    journal = Journal(tmp_path)
    row = settled(1)
    for left_out in ({f"node {number}": "no gate" * 100 for number in range(3000)}, {}):
        for _ in range(2):
            journal.settled(Moment(row, 1.0, 0, 0, left_out=left_out))
    lines = [json.loads(line) for line in (tmp_path / METRICS).read_text("utf-8").splitlines()]
    noted = [line.get("left_out") for line in lines]
    assert noted[1] is noted[3] is None
    assert noted[2] == {}
    assert len(noted[0]) == 1000
    assert sum(map(bool, noted[0].values())) == 6


def test_a_name_that_another_node_has_is_told_of_the_node_and_not_of_its_owner() -> None:
    nodes = Nodes()
    nodes.refused = {3: "its buffer is damaged", 4: "its key differs"}
    nodes._names = {3: "site-0", 4: "site-1", 7: "site-0"}
    nodes.clients = {"site-0": 7}
    assert nodes.left_out() == {
        "node 3": "its buffer is damaged",
        "site-1": "its key differs",
    }
