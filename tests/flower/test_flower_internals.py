"""The contract with Flower: what we use of it beyond its public interface, on any version.

Run on the oldest version that is supported, on the newest that was tried, and every night on the
newest that is published: a test that fails there names what has changed.
"""

import importlib.metadata
import inspect
import logging
import subprocess
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from flwr.app import ConfigRecord, Context, Message, RecordDict
from flwr.clientapp import ClientApp
from flwr.common.constant import SUPERLINK_NODE_ID, ErrorCode
from flwr.serverapp import Grid
from flwr.serverapp.strategy import FedAvg, Strategy
from gated_apps import MODEL, gated_app
from later_flower import has
from packaging.requirements import Requirement
from packaging.version import Version

from tidegate.errors import ConfigurationError
from tidegate.flower import AdmissionControl, FoldedFedAvg, LocalGrid, flower_internals
from tidegate.flower.flower_internals import (
    CLIENT_RAISED,
    LATER_ARGUMENTS,
    NEWEST_TRIED,
    NO_REPLY,
    OLDEST_FLOWER,
    SERVER_NODE_ID,
    NodeInfo,
    act_as_server,
    app_of,
    check_flower,
    delivered,
    flower_version,
    is_client_fn,
    is_last_record,
    metrics_in,
    name_message,
    nodes_awaited,
    nodes_required,
    round_in,
    rounds_asked,
    run_of,
)

pytestmark = pytest.mark.contract

HINT = "Flower's private interface has changed: mend tidegate/flower/flower_internals.py"
PYPROJECT = Path(__file__).parents[2] / "pyproject.toml"
NODES = [{"partition-id": number} for number in range(2)]


def control(folder: Path | None = None, strategy: Strategy | None = None) -> AdmissionControl:
    inner = FedAvg(fraction_evaluate=0.0) if strategy is None else strategy
    return AdmissionControl(inner, "tide", budget=16.5, prices=2.0, folder=folder)


def warnings_in(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [one.getMessage() for one in caplog.records if one.levelno >= logging.WARNING]


def test_the_installed_flower_is_known_by_its_version() -> None:
    assert flower_version() == importlib.metadata.version("flwr")
    assert Version(flower_version()) >= Version(OLDEST_FLOWER)


def test_a_flower_that_is_newer_than_all_that_were_tried_runs_and_warns_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("tidegate.flower.strategy.flower_version", lambda: "1.99.0")
    strategy = control()
    strategy.start(LocalGrid(gated_app(), NODES), MODEL, num_rounds=3)
    assert sum(row.admitted for row in strategy.rounds) > 0
    (warning,) = [one for one in warnings_in(caplog) if "1.99.0" in one]
    assert warning.startswith(f"Flower 1.99.0 is newer than {NEWEST_TRIED}, the newest version")


@pytest.mark.parametrize("version", [OLDEST_FLOWER, "1.41.0", NEWEST_TRIED, "of unknown version"])
def test_a_flower_that_was_tried_runs_without_a_word(
    version: str, caplog: pytest.LogCaptureFixture
) -> None:
    check_flower(version)
    assert not warnings_in(caplog)


@pytest.mark.parametrize("version", ["1.42.1", "1.43.0.dev20261103", "2.0.0"])
def test_every_later_flower_is_warned_of(version: str, caplog: pytest.LogCaptureFixture) -> None:
    check_flower(version)
    assert len(warnings_in(caplog)) == 1


def test_a_flower_that_is_too_old_is_refused_when_a_run_starts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("tidegate.flower.strategy.flower_version", lambda: "1.39.9")
    grid = LocalGrid(gated_app(), NODES)
    with pytest.raises(ConfigurationError, match=r"Flower 1\.39\.9 is .* needs 1\.40\.0 or newer"):
        control().start(grid, MODEL, num_rounds=1)
    assert not grid.answers.sent


def test_no_extra_has_an_upper_bound_on_flower_and_all_have_the_lower_one() -> None:
    extras = tomllib.loads(PYPROJECT.read_text("utf-8"))["project"]["optional-dependencies"]
    declared = [Requirement(text) for texts in extras.values() for text in texts]
    wanted = [one for one in declared if one.name == "flwr"]
    assert len(wanted) >= 4
    for requirement in wanted:
        (bound,) = requirement.specifier
        assert bound.operator == ">="
        assert Version(bound.version) == Version(OLDEST_FLOWER), requirement


def test_a_process_can_act_as_the_server_of_a_run() -> None:
    act_as_server(7)
    message = Message(RecordDict({"c": ConfigRecord({"a": 1})}), 2, "train")
    assert (message.metadata.run_id, message.metadata.src_node_id) == (7, SERVER_NODE_ID), HINT
    name_message(message, "m-1")
    assert message.metadata.message_id == "m-1", HINT
    assert Message(RecordDict(), reply_to=message).metadata.reply_to_message_id == "m-1", HINT
    assert delivered(message, RecordDict()).metadata == message.metadata, HINT
    assert SERVER_NODE_ID == SUPERLINK_NODE_ID, HINT


def test_runs_and_nodes_have_what_is_read_from_them() -> None:
    assert run_of(7, "me/app").run_id == 7, HINT
    assert app_of(run_of(7, "me/app")) == "me/app", HINT
    node = NodeInfo(node_id=3)
    assert (node.name, node.public_key) == ("", b""), HINT


def test_error_codes_are_flowers_own() -> None:
    assert ErrorCode.CLIENT_APP_RAISED_EXCEPTION == CLIENT_RAISED, HINT
    unavailable = (
        ErrorCode.MESSAGE_UNAVAILABLE,
        ErrorCode.REPLY_MESSAGE_UNAVAILABLE,
        ErrorCode.NODE_UNAVAILABLE,
    )
    assert unavailable == NO_REPLY, HINT


def test_grids_of_ours_have_all_that_flower_asks_for() -> None:
    assert not LocalGrid.__abstractmethods__, HINT
    control(strategy=FoldedFedAvg(fraction_evaluate=0.0)).start(
        LocalGrid(gated_app(), NODES), MODEL, num_rounds=1
    )


def test_the_log_says_which_round_begins_what_was_measured_and_when_all_is_done(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with caplog.at_level(logging.INFO, "flwr"):
        control().start(LocalGrid(gated_app(), NODES), MODEL, num_rounds=2)
    records = caplog.records
    assert [rounds_asked(one) for one in records if rounds_asked(one) is not None] == [2], HINT
    assert [round_in(one) for one in records if round_in(one)] == [(1, 2), (2, 2)], HINT
    assert any("loss" in metrics_in(one) for one in records), HINT
    assert sum(is_last_record(one) for one in records) == 1, HINT


def test_the_log_says_how_many_nodes_a_strategy_waits_for(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    grid = LocalGrid(gated_app(), NODES)
    online = iter([[2, 3], [2, 3]])  # counted once, and once more to choose among them
    monkeypatch.setattr(grid, "get_node_ids", lambda: next(online, [2, 3, 4]))
    strategy = FedAvg(min_available_nodes=3, min_train_nodes=3)
    with caplog.at_level(logging.INFO, "flwr"):
        strategy.configure_train(1, MODEL, ConfigRecord(), grid)
    awaited = [nodes_awaited(one) for one in caplog.records]
    assert (2, 3) in awaited, HINT
    assert nodes_required(caplog.text) == 3, HINT


def test_a_client_fn_is_seen_behind_further_mods() -> None:
    seen: list[bool] = []
    inner: Callable[[Message, Context, Any], Message] = lambda message, context, then: then(  # noqa: E731
        message, context
    )

    def outer(message: Message, context: Context, call_next: Any) -> Message:
        seen.append(is_client_fn(call_next))
        return Message(RecordDict(), reply_to=message)

    def unused(context: Context) -> Any:
        raise AssertionError

    by_function = ClientApp(mods=[outer, inner])

    @by_function.train()
    def train(message: Message, context: Context) -> Message:
        raise AssertionError

    for app in (ClientApp(client_fn=unused, mods=[outer, inner]), by_function):
        grid = LocalGrid(app, NODES[:1])
        (message_id,) = grid.push_messages([Message(RecordDict(), 2, "train")])
        (reply,) = grid.pull_messages([message_id])
        assert not reply.has_error(), reply
    assert seen == [True, False], HINT


def test_later_arguments_of_start_are_there_from_the_version_that_is_named() -> None:
    for name, since in LATER_ARGUMENTS.items():
        assert has(name) == (Version(flower_version()) >= Version(since)), name
    known = "self grid initial_arrays num_rounds timeout train_config evaluate_config evaluate_fn"
    ours = inspect.signature(AdmissionControl.start).parameters
    theirs = inspect.signature(Strategy.start).parameters
    assert list(theirs)[:8] == known.split() == list(ours)[:8]


def moved_identity(patch: pytest.MonkeyPatch) -> None:
    patch.setitem(sys.modules, "flwr.supercore.task_identity", None)


def idle_identity(patch: pytest.MonkeyPatch) -> None:
    """Its attributes can be set, and no message has them."""
    act_as_server(4711)
    patch.setattr("flwr.supercore.task_identity.TaskIdentity", type("Idle", (), {}))


def moved_run(patch: pytest.MonkeyPatch) -> None:
    patch.delattr("flwr.supercore.run.Run.create_empty")


def renamed_id(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(
        type(Message(RecordDict(), 2, "train").metadata), "message_id", property(lambda self: "x")
    )


def demanding_grid(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(LocalGrid, "__abstractmethods__", frozenset({"stream_messages"}))


@pytest.mark.parametrize(
    ("change", "part"),
    [
        (moved_identity, "flwr.supercore.task_identity.TaskIdentity"),
        (idle_identity, "flwr.supercore.task_identity.TaskIdentity"),
        (moved_run, "flwr.supercore.run.Run.create_empty"),
        (renamed_id, "Metadata._message_id"),
        (demanding_grid, "a Grid with no further abstract methods"),
    ],
)
def test_what_is_no_longer_there_fails_by_name_and_says_what_works_without_it(
    change: Callable[[pytest.MonkeyPatch], None], part: str
) -> None:
    act_as_server(1)
    with pytest.MonkeyPatch.context() as patch:
        change(patch)
        with pytest.raises(ConfigurationError) as refused:
            control().start(LocalGrid(gated_app(), NODES), MODEL, num_rounds=1)
    told = str(refused.value)
    assert told.startswith("the grid in this process (tidegate run, LocalGrid) needs ")
    assert f"needs {part}, which Flower {flower_version()} does not have" in told
    assert f"install flwr<={NEWEST_TRIED}, or a newer Tidegate; flwr run needs no such grid" in told


class RemoteGrid(Grid):
    """A grid as Flower gives it to a ServerApp, in front of one in this process."""

    def __init__(self, grid: LocalGrid) -> None:
        self._grid = grid

    def set_run(self, run: Any) -> None:
        raise AssertionError

    @property
    def run(self) -> Any:
        return type("RunOfTomorrow", (), {"run_id": 1})()

    def create_message(self, *arguments: Any, **named: Any) -> Message:
        return self._grid.create_message(*arguments, **named)

    def get_node_ids(self) -> list[int]:
        return self._grid.get_node_ids()

    def push_messages(self, messages: Any) -> list[str]:
        return self._grid.push_messages(messages)

    def pull_messages(self, message_ids: Any) -> list[Message]:
        return self._grid.pull_messages(message_ids)

    def send_and_receive(self, messages: Any, *, timeout: float | None = None) -> list[Message]:
        return self._grid.send_and_receive(messages, timeout=timeout)


def test_a_saved_run_goes_on_without_the_name_of_its_app(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    strategy = control(tmp_path / "run")
    strategy.start(RemoteGrid(LocalGrid(gated_app(), NODES)), MODEL, num_rounds=2)
    assert len(strategy.rounds) == 2
    (warning,) = [one for one in warnings_in(caplog) if "Run.fab_id" in one]
    assert "give an absolute folder" in warning


@pytest.mark.process
def test_a_deployment_needs_nothing_of_what_only_this_process_needs(tmp_path: Path) -> None:
    """Both sides import, with all private modules gone, in a process that has not loaded them."""
    code = (
        "import sys\n"
        "import flwr.app, flwr.clientapp, flwr.serverapp\n"
        "for name in ('supercore.task_identity', 'supercore.run', 'proto.node_pb2'):\n"
        "    sys.modules[f'flwr.{name}'] = None\n"
        "from tidegate.flower import AdmissionControl, ClientGate\n"
        "from flwr.serverapp.strategy import FedAvg\n"
        "AdmissionControl(FedAvg(), 'tide', budget=1, prices=1)\n"
        "ClientGate(lambda context: [1], 1)\n"
    )
    subprocess.run([sys.executable, "-c", code], cwd=tmp_path, check=True, timeout=120)


@pytest.mark.process
def test_private_parts_are_imported_in_one_module_only() -> None:
    public = {"flwr.app", "flwr.clientapp", "flwr.serverapp", "flwr.serverapp.strategy"}
    code = (
        "import ast, pathlib, tidegate.flower as package\n"
        "for path in pathlib.Path(package.__file__).parent.glob('*.py'):\n"
        "    if path.name == 'flower_internals.py': continue\n"
        "    for node in ast.walk(ast.parse(path.read_text())):\n"
        "        if isinstance(node, ast.ImportFrom) and (node.module or '').startswith('flwr'):\n"
        "            print(node.module)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert set(done.stdout.split()) <= public
    assert flower_internals.__name__ == "tidegate.flower.flower_internals"
