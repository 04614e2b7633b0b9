"""Where a node keeps its samples, and for how long in memory."""

import copy
import gc
from pathlib import Path
from typing import Any

import pytest
from client_parts import uses_of
from flwr.app import Context, Message, RecordDict
from flwr.serverapp.strategy import FedAvg
from gated_apps import MODEL, dataset, echo_app, gated_app

from tidegate.client.device_file import store_path
from tidegate.client.store import Store
from tidegate.errors import ConfigurationError
from tidegate.flower import AdmissionControl, ClientGate, LocalGrid
from tidegate.flower.node_buffer import _FILES, buffer_folder
from tidegate.flower.records import attach, expect
from tidegate.wire import Address, Introduction, Order, Receipt

NODES: list[dict[str, Any]] = [{"partition-id": number} for number in range(3)]


def context(node_config: dict[str, Any] | None = None, **run_config: Any) -> Context:
    return Context(1, 2, node_config or {}, RecordDict(), run_config)


def test_a_folder_is_the_nodes_then_the_runs_then_the_users(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    of_run: dict[str, Any] = {"tidegate-folder": "/of/run"}
    assert buffer_folder(context({"tidegate-folder": "/of/node"}, **of_run)) == Path("/of/node")
    assert buffer_folder(context(**of_run)) == Path("/of/run")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert buffer_folder(context({"tidegate-folder": "~/here"})) == tmp_path / "here"
    monkeypatch.setenv("XDG_STATE_HOME", "/state")
    assert buffer_folder(context()) == Path("/state/tidegate")
    for unset in ("", "relative"):  # which its specification says to ignore
        monkeypatch.setenv("XDG_STATE_HOME", unset)
        assert buffer_folder(context()) == tmp_path / ".local/state/tidegate"


def test_a_node_without_a_home_is_told_what_to_set(monkeypatch: pytest.MonkeyPatch) -> None:
    def homeless() -> Path:
        raise RuntimeError("no home directory")

    monkeypatch.setenv("XDG_STATE_HOME", "")
    monkeypatch.setattr(Path, "home", homeless)
    with pytest.raises(ConfigurationError, match="--node-config 'tidegate-folder="):
        buffer_folder(context())


def test_memory_is_refused_where_nodes_are_copies(caplog: pytest.LogCaptureFixture) -> None:
    """As under Ray, whose actors get a copy of a node's context with every message."""

    class Copies(LocalGrid):
        def _answer(self, message: Message) -> Message:
            kept = self._contexts
            self._contexts = copy.deepcopy(kept)
            try:
                return super()._answer(message)
            finally:
                self._contexts = kept

    strategy = AdmissionControl(FedAvg(fraction_evaluate=0.0), "tide", budget=9.0, prices=1.0)
    with pytest.raises(ValueError, match="no client can take part"):
        strategy.start(Copies(gated_app(), NODES), MODEL, num_rounds=2)
    assert "Set tidegate-folder to a folder, or leave it out" in caplog.text


def test_buffers_in_memory_are_freed_with_the_grid_of_their_run() -> None:
    gate = ClientGate(dataset, 8)
    before = set(_FILES)
    grid = LocalGrid(echo_app(gate), NODES)
    strategy = AdmissionControl(FedAvg(fraction_evaluate=0.0), "tide", budget=9.0, prices=1.0)
    strategy.start(grid, MODEL, num_rounds=2)
    assert len(gate._buffers._open) == 3
    del grid, strategy
    gc.collect()
    assert not gate._buffers._open
    assert before >= {*_FILES}


@pytest.mark.parametrize("folder", [":memory:", "files"])
def test_an_order_that_is_delivered_twice_is_applied_once(folder: str, tmp_path: Path) -> None:
    bought: list[str] = []

    def acquire(sample: Any, key: str) -> Any:
        bought.append(key)
        return sample

    where = folder if folder == ":memory:" else str(tmp_path)
    grid = LocalGrid(gated_app(acquire=acquire), NODES[:1], {"tidegate-folder": where})

    def ask(*records: Any) -> Message:
        content = RecordDict({"arrays": MODEL})
        attach(content, *records)
        (reply,) = grid.send_and_receive([Message(content, 2, "train")])
        return reply

    hello = expect(ask(Address(run="r", client="a")).content, Introduction)
    address = Address(run="r", client="a", buffer_id=hello.buffer_id)
    order = Order(run="r", round_number=1, price=2.0, retention_horizon=5, count=3)
    first, second = (ask(address, order) for _ in range(2))
    assert expect(first.content, Receipt) == expect(second.content, Receipt)
    assert expect(first.content, Receipt).spent == 6.0
    assert len(bought) == len(set(bought)) == 3
    if folder == "files":
        store = Store(store_path(tmp_path, "r", "a"), "r", "a", hello.buffer_capacity)
        assert uses_of(store) == [1, 1, 1]
        store.close()
