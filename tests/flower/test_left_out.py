"""A node that fails before it is sent an order: log and alarms say who that is, and why."""

import json
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from flwr.app import ArrayRecord, Context, Error, Message, MetricRecord
from flwr.clientapp import ClientApp
from flwr.serverapp.strategy import FedAvg
from gated_apps import MODEL, gated_app
from meetings import settled

from tidegate.flower import AdmissionControl, LocalGrid
from tidegate.flower.flower_internals import NodeInfo
from tidegate.report.alarms import Alarm, alarms
from tidegate.report.incidents import incidents
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
    folder: Path,
    *,
    until: int,
    damaged: Sequence[int] = (),
    failing: Sequence[int] = (),
    dead: Sequence[int] = (),
    at_training: Callable[[], None] = lambda: None,
) -> dict[str, Alarm]:
    """Play a part of a run; return the alarms while it is in its last round.

    After two rounds some buffers are damaged, the training of some clients fails, and the processes
    of others die.
    """

    class Dying(LocalGrid):
        def _answer(self, message: Message) -> Message:
            reply = super()._answer(message)
            if message.metadata.dst_node_id - 2 in dead and len(one.rounds) >= 2:
                return Message(Error(8, "ClientApp stopped responding."), reply_to=message)
            return reply

    buffers, found = folder / "buffers", dict[str, Alarm]()

    def fail(message: Message, context: Context) -> None:
        at_training()
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
        one.start(Dying(gated_app(fail), nodes), MODEL, ROUNDS, evaluate_fn=evaluate)
    return found


STILL_BUYING = "the server still sends them orders"


def test_a_client_whose_buffer_is_damaged_is_named_with_the_reason(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    told = play(tmp_path, until=5, damaged=[1])
    assert "node 3 (partition-1) is left out: it replied without an introduction" in caplog.text
    assert "partition-1 (failed): it replied" in told["CLIENTS FAIL"].what
    assert ".sqlite cannot be opened as a buffer" in told["CLIENTS FAIL"].what
    assert STILL_BUYING not in told["CLIENTS FAIL"].to_do
    assert not told.keys() & {"CLIENTS AWAY", "NODES LEFT OUT"}


def test_whoever_fails_in_training_is_told_apart(tmp_path: Path) -> None:
    told = play(tmp_path, until=5, damaged=[1], failing=[0])["CLIENTS FAIL"]
    assert "partition-1 (failed): RuntimeError: no memory" in told.what
    assert ": it replied without an introduction" in told.what
    assert STILL_BUYING in told.to_do


def test_a_client_whose_process_died_is_named_with_the_reason(tmp_path: Path) -> None:
    told = play(tmp_path, until=3, dead=[0])
    assert told["CLIENTS FAIL"].what == "partition-0 (failed): ClientApp stopped responding"
    assert "CLIENTS AWAY" not in told
    (failed,) = incidents(read_run(tmp_path / "run"))
    assert failed.what == "1 client failed: ClientApp stopped responding; see server.log"


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


def noted(folder: Path) -> list[dict[str, Any] | None]:
    lines = (folder / METRICS).read_text("utf-8").splitlines()
    return [json.loads(line).get("left_out") for line in lines if "settled" in line]


def test_a_thousand_nodes_fill_no_file(tmp_path: Path) -> None:
    journal, row = Journal(tmp_path), settled(1)
    gateless = {f"node {number}": "gateless" * 1000 for number in range(3000)}
    for left_out in ({"site-1": "a damaged buffer", **gateless}, {}):
        for _ in range(2):
            journal.settled(Moment(row, 1.0, 0, 0, left_out=left_out))
    first, *others = noted(tmp_path)
    assert others == [None, {"clients": {}, "reasons": []}, None]
    assert first is not None
    assert len(first["clients"]) == 1000
    assert [len(one) for one in first["reasons"]] == [len("a damaged buffer"), 500]
    assert (first["clients"]["site-1"], first["clients"]["node 7"]) == (0, 1)


class Named(LocalGrid):
    """Its nodes were registered with these names."""

    names: Mapping[int, str] = {}

    def get_nodes(self) -> list[NodeInfo]:
        return [NodeInfo(node_id=one, name=self.names.get(one, "")) for one in self.get_node_ids()]


def left_out(app: ClientApp, partitions: Sequence[int], names: Mapping[int, str]) -> list[str]:
    """Who takes no part in a run of one round, and with which reason."""
    grid = Named(app, [{"partition-id": number} for number in partitions])
    grid.names = names
    one = AdmissionControl(FedAvg(fraction_evaluate=0.0), "tide", budget=22.0, prices=3.0)
    one.start(grid, MODEL, 1)
    return [f"{who}: {reason}" for who, reason in one._nodes.left_out().items()]


def test_names_that_others_have_or_that_cannot_be_sent_are_told() -> None:
    (told,) = left_out(gated_app(), [0, 0, 1], {})
    assert told.startswith("node ")
    assert "another node is already 'partition-0'; give each node its own name" in told
    (told,) = left_out(gated_app(), [0, 1, 2], {4: "a" * 201})
    assert told.startswith("node 4: client must be a name of at most 200 printable")


def test_an_app_that_cannot_be_loaded_is_told_and_a_node_that_is_gone_is_not() -> None:
    class Broken(Named):
        code = 1

        def _answer(self, message: Message) -> Message:
            if message.metadata.dst_node_id == 2:
                return Message(Error(self.code, "no module named torch"), reply_to=message)
            return super()._answer(message)

    for code, expected in ((1, 1), (8, 1), (3, 0), (5, 0)):
        grid = Broken(gated_app(), [{"partition-id": number} for number in range(NODES)])
        grid.code = code
        one = AdmissionControl(FedAvg(fraction_evaluate=0.0), "tide", budget=22.0, prices=3.0)
        one.start(grid, MODEL, 1)
        assert len(one._nodes.left_out()) == expected
