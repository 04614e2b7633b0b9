"""AdmissionControl in this process: what it sends, settles, averages and survives."""

import json
import math
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from flwr.app import ArrayRecord, ConfigRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp.strategy import (
    DifferentialPrivacyServerSideFixedClipping,
    FedAvg,
    Result,
    Strategy,
)
from gated_apps import MODEL, capacity, echo_app, gated_app

from tidegate.client.gate import Gate
from tidegate.client.store import BooksMovedError
from tidegate.client.streams import IndexedStream
from tidegate.client.streams.stream import Overflow
from tidegate.client.supplier import Outcome, Request
from tidegate.errors import ConfigurationError
from tidegate.flower import (
    AdmissionControl,
    ClientGate,
    ClientTrust,
    Deployment,
    LocalGrid,
    Planning,
)
from tidegate.flower.flower_internals import NodeInfo
from tidegate.flower.nodes import Nodes
from tidegate.flower.records import TEXT, asks_who, expect, key_of
from tidegate.flower.wrapped_strategies import reached
from tidegate.policies import ControlOptions, JointPolicy
from tidegate.policies.acdpp import acdpp
from tidegate.prices import PricePath, UniformPrice
from tidegate.problem import Problem
from tidegate.runs.reader import read_run
from tidegate.server.controller import Controller
from tidegate.server.fleet import Terms
from tidegate.wire import Address, Introduction, Order, Receipt

NODES: list[Mapping[str, Any]] = [
    {"partition-id": number, "num-partitions": 3} for number in range(3)
]


def control(strategy: Strategy | None = None, **changes: Any) -> AdmissionControl:
    values: dict[str, Any] = {
        "budget": 16.5,
        "prices": PricePath(UniformPrice(1, 10), seed=1),
        "run": "r",
        **changes,
    }
    inner = FedAvg(fraction_evaluate=0.0) if strategy is None else strategy
    return AdmissionControl(inner, values.pop("policy", "acdpp"), **values)


class RecordingGrid(LocalGrid):
    """Keeps what was sent and answered; can lose and delay replies."""

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self.sent: list[Message] = []
        self.lost: Callable[[Message], bool] = lambda message: False
        self.late: Callable[[Message], bool] = lambda message: False
        self.delayed: dict[str, Message] = {}
        self.delayed_content = RecordDict()
        self.offline: set[int] = set()

    def get_node_ids(self) -> list[int]:
        return [node_id for node_id in super().get_node_ids() if node_id not in self.offline]

    def push_messages(self, messages: Iterable[Message]) -> list[str]:
        batch = list(messages)
        self.sent += batch
        return super().push_messages(batch)

    def send_and_receive(
        self, messages: Iterable[Message], *, timeout: float | None = None
    ) -> list[Message]:
        batch = list(messages)
        ids = self.push_messages(batch)
        self._replies.update(self.delayed)
        self.delayed = {}
        for message, message_id in zip(batch, ids, strict=True):
            if self.lost(message):
                del self._replies[message_id]
            elif self.late(message):  # it can be had from the next round on
                self.delayed[message_id] = self._replies.pop(message_id)
        return self.pull_messages(ids)

    @property
    def orders(self) -> list[Order]:
        return [expect(message.content, Order) for message in self.training]

    @property
    def training(self) -> list[Message]:
        return [one for one in self.sent if key_of(Order) in one.content]


def recording(app: ClientApp | None = None, nodes: Sequence[Mapping[str, Any]] = NODES) -> Any:
    return RecordingGrid(app or gated_app(), nodes)


def fit(strategy: AdmissionControl, grid: LocalGrid, rounds: int = 5, **named: Any) -> Result:
    return strategy.start(grid, MODEL, num_rounds=rounds, **named)


def weights(result: Result) -> dict[str, Any]:
    return {name: array.numpy() for name, array in result.arrays.items()}


def node(message: Message) -> int:
    return int(message.metadata.dst_node_id)


def round_of(message: Message) -> int:
    if key_of(Order) not in message.content:
        return 0
    return expect(message.content, Order).round_number


@pytest.mark.contract
def test_a_run_learns_spends_and_keeps_books() -> None:
    grid, strategy = recording(), control()
    result = fit(strategy, grid, rounds=40)
    w, b = (weights(result)[name] for name in ("w", "b"))
    np.testing.assert_allclose(w, [1.0, -2.0, 0.5], atol=0.05)
    np.testing.assert_allclose(b, [3.0], atol=0.05)
    assert [row.round_number for row in strategy.rounds] == list(range(1, 41))
    spent = sum(order.price * order.count for order in grid.orders)
    assert sum(row.spent for row in strategy.rounds) == pytest.approx(spent)
    last = strategy.rounds[-1]
    assert last.overspend <= last.cost_debt + 1e-9
    assert last.training_size <= sum(capacity(context) for context in grid._contexts.values())


@pytest.mark.contract
def test_every_message_has_its_own_order_a_time_to_live_and_shared_arrays() -> None:
    grid = recording()
    fit(control(), grid, rounds=2, timeout=77)
    first = grid.training[:3]
    assert {expect(message.content, Address).client for message in first} == {
        "partition-0",
        "partition-1",
        "partition-2",
    }
    assert {message.metadata.ttl for message in grid.training} == {77}
    assert len({id(message.content["arrays"]) for message in first}) == 1
    grid = recording()
    fit(control(deployment=Deployment(time_to_live=5.0)), grid, rounds=2, timeout=77)
    assert {message.metadata.ttl for message in grid.training} == {5.0}


class SlowIntroductions(RecordingGrid):
    """A node that does not answer makes the server wait before its orders are sent."""

    waited = 0.0

    def send_and_receive(
        self, messages: Iterable[Message], *, timeout: float | None = None
    ) -> list[Message]:
        batch = list(messages)
        if any(asks_who(message.content) for message in batch):
            self.waited += 100.0
        return super().send_and_receive(batch, timeout=timeout)


def test_orders_live_from_when_they_are_sent_however_long_introductions_took(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    grid, clock = SlowIntroductions(gated_app(), NODES), time.time
    monkeypatch.setattr(time, "time", lambda: clock() + grid.waited)
    fit(control(deployment=Deployment(time_to_live=60.0)), grid, rounds=2)
    assert grid.waited == 100.0
    assert all(time.time() < one.metadata.created_at + 60.0 for one in grid.training)


@pytest.mark.contract
def test_the_average_weighs_each_client_by_importance_times_samples() -> None:
    seen: list[dict[int, Any]] = []

    class Watching(FedAvg):
        def aggregate_train(self, server_round: int, replies: Iterable[Message]) -> Any:
            replies = list(replies)
            seen.append(
                {
                    node_id: next(iter(reply.content.metric_records.values()))["num-examples"]
                    for reply in replies
                    if (node_id := reply.metadata.src_node_id)
                }
            )
            assert all(key_of(Receipt) not in reply.content for reply in replies)
            return super().aggregate_train(server_round, replies)

    grid = recording()
    importance = {"partition-1": 2.5}
    trust = ClientTrust(importance=importance)
    fit(control(Watching(fraction_evaluate=0.0), trust=trust), grid, rounds=1)
    counts = {node(message): expect(message.content, Order).count for message in grid.training}
    named = {node(message): expect(message.content, Address).client for message in grid.training}
    expected = {
        number: count * importance.get(named[number], 1.0) for number, count in counts.items()
    }
    assert seen == [expected]


def test_replies_are_settled_and_averaged_in_the_order_of_names() -> None:
    class Shuffled(RecordingGrid):
        def pull_messages(self, message_ids: Iterable[str]) -> list[Message]:
            return super().pull_messages(message_ids)[::-1]

    many: list[Mapping[str, Any]] = [{"partition-id": number} for number in range(9)]
    one, other = control(budget=99.0), control(budget=99.0)
    straight = weights(fit(one, recording(nodes=many), rounds=20))
    shuffled = weights(fit(other, Shuffled(gated_app(), many), rounds=20))
    for name in straight:
        np.testing.assert_array_equal(straight[name], shuffled[name])
    assert one.rounds == other.rounds  # money, too, is added up in this order


@pytest.mark.contract
def test_a_client_that_fails_is_a_failure_and_the_round_goes_on() -> None:
    def fail(message: Message, context: Context) -> None:
        now = message.content.config_records["config"]["server-round"]
        if context.node_config["partition-id"] == 1 and now == 2:
            raise RuntimeError("out of power")

    strategy = control()
    fit(strategy, recording(gated_app(fail)), rounds=4)
    assert [row.answered for row in strategy.rounds] == [3, 2, 3, 3]
    # It had applied the order before it failed: paid in round 3, when its next receipt came.
    assert strategy.rounds[1].exposure > 0
    assert strategy.rounds[2].exposure == 0
    assert_books_agree(strategy)


def assert_books_agree(strategy: AdmissionControl) -> None:
    ledger = strategy._running().ledger
    booked = sum(ledger.account(client).paid for client in ledger.clients)
    assert sum(row.spent for row in strategy.rounds) == pytest.approx(booked)


@pytest.mark.contract
def test_a_late_reply_is_settled_and_kept_out_of_the_average() -> None:
    grid, strategy = recording(), control()
    grid.late = lambda message: round_of(message) == 1 and node(message) == 2
    late = fit(strategy, grid, rounds=5)
    assert [row.answered for row in strategy.rounds] == [2, 3, 3, 3, 3]
    assert strategy.rounds[0].exposure > 0
    assert strategy.rounds[1].exposure == 0
    assert_books_agree(strategy)
    grid, other = recording(), control()
    grid.lost = lambda message: round_of(message) == 1 and node(message) == 2
    lost = fit(other, grid, rounds=5)
    for name, value in weights(lost).items():  # as if it had never come
        np.testing.assert_array_equal(value, weights(late)[name])


def test_a_late_reply_that_expired_is_not_asked_for_again() -> None:
    grid, strategy = recording(), control(deployment=Deployment(time_to_live=1e-9))
    grid.late = lambda message: round_of(message) == 2
    fit(strategy, grid, rounds=5)
    assert [row.answered for row in strategy.rounds] == [3, 0, 3, 3, 3]
    assert_books_agree(strategy)


@pytest.mark.contract
def test_evaluation_of_nothing_does_not_divide_by_zero() -> None:
    app = gated_app()

    @app.evaluate()
    def evaluate(message: Message, context: Context) -> Message:
        count = 0 if context.node_config["partition-id"] != 2 else 4
        metrics = MetricRecord({"accuracy": 0.5, "num-examples": count})
        return Message(RecordDict({"metrics": metrics}), reply_to=message)

    result = fit(control(FedAvg()), recording(app), rounds=1)
    assert result.evaluate_metrics_clientapp[1]["accuracy"] == 0.5
    result = fit(control(FedAvg(), run="s"), recording(app, NODES[:2]), rounds=1)
    assert not result.evaluate_metrics_clientapp


def test_a_node_that_comes_back_under_another_id_is_the_same_client() -> None:
    class Restarting(RecordingGrid):
        def restart(self, node_id: int) -> None:
            self._contexts[node_id + 100] = self._contexts.pop(node_id)

    grid, strategy = Restarting(gated_app(), NODES), control()

    def evaluate(now: int, arrays: ArrayRecord) -> None:
        if now == 2:
            grid.restart(3)

    fit(strategy, grid, rounds=5, evaluate_fn=evaluate)
    other = control()
    fit(other, recording(), rounds=5)
    assert strategy.rounds == other.rounds


@pytest.mark.contract
def test_the_plan_is_for_the_part_of_the_fleet_that_the_strategy_trains() -> None:
    seen: list[float] = []

    def watched(problem: Problem, options: ControlOptions) -> JointPolicy[Any]:
        seen.append(problem.mean_fraction_train)
        return acdpp(problem, options)

    half = FedAvg(fraction_train=0.5, fraction_evaluate=0.0, min_train_nodes=2)
    clipped = DifferentialPrivacyServerSideFixedClipping(half, 0.1, 10.0, 2)
    few = FedAvg(fraction_train=1e-5, fraction_evaluate=0.0, min_train_nodes=2)
    everyone = FedAvg(fraction_evaluate=0.0)
    for strategy, part in ((everyone, None), (half, None), (clipped, None), (few, None),
                           (half, 0.7)):  # fmt: skip
        planning = Planning(fraction_train=part)
        fit(control(strategy, policy=watched, planning=planning), recording(), rounds=1)
    # Of three nodes: all, two at least, two at least, two at least, and two as was said.
    assert seen == pytest.approx([1.0, 2 / 3, 2 / 3, 2 / 3, 2 / 3])


def test_a_strategy_that_trains_nobody_is_refused() -> None:
    with pytest.raises(ConfigurationError, match=r"FedAvg has fraction_train = 0\.0, so no node"):
        control(FedAvg(fraction_train=0.0))


def test_a_strategy_that_does_not_say_whom_it_trains_is_planned_for_all_nodes() -> None:
    silent = FedAvg(fraction_train=0.1, fraction_evaluate=0.0, min_train_nodes=3)
    del silent.fraction_train
    assert reached(silent) == (1.0, 1)


@pytest.mark.parametrize(("headroom", "is_hard"), [(1.0, True), (4.0, False)])
def test_capacity_is_a_hard_limit_unless_there_is_memory_for_peaks(
    headroom: float, is_hard: bool
) -> None:
    seen: list[ControlOptions] = []

    def watched(problem: Problem, options: ControlOptions) -> JointPolicy[Any]:
        seen.append(options)
        return acdpp(problem, options)

    planning = Planning(headroom=headroom, retention_horizon=2)
    fit(control(policy=watched, planning=planning), recording(), rounds=1)
    assert {(one.hard_capacity, one.retention_horizon) for one in seen} == {(is_hard, 2)}


def test_a_node_without_a_name_is_told_how_to_get_one(caplog: pytest.LogCaptureFixture) -> None:
    with (
        caplog.at_level("WARNING", logger="tidegate"),
        pytest.raises(ValueError, match="no client"),
    ):
        fit(control(), recording(nodes=[{}, {}]), rounds=1)
    assert "this node has no name: register its SuperNode with --name" in caplog.text


def test_a_node_may_name_itself() -> None:
    strategy = control()
    fit(strategy, recording(nodes=[{**one, "tidegate-client": f"site-{one['partition-id']}"}
                                   for one in NODES]), rounds=1)  # fmt: skip
    assert strategy._running().fleet == ["site-0", "site-1", "site-2"]


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"client": "partition-9"}, "registered as 'partition-2', but calls itself 'partition-9'"),
        ({"run": "another"}, "it replied as Introduction(run='another'"),
        ({"buffer_capacity": 0}, "buffer_capacity must be at least 1, got 0"),
    ],
)
def test_a_node_that_introduces_itself_as_another_is_left_out(
    change: dict[str, Any], reason: str, caplog: pytest.LogCaptureFixture
) -> None:
    class Lying(RecordingGrid):
        def get_nodes(self) -> list[NodeInfo]:
            names = {2: "partition-0", 3: "partition-1", 4: "partition-2"}
            return [NodeInfo(node_id=one, name=names[one]) for one in self.get_node_ids()]

        def _answer(self, message: Message) -> Message:
            reply = super()._answer(message)
            if node(message) == 4 and asks_who(message.content):
                told = {**expect(reply.content, Introduction).to_record(), **change}
                reply.content[key_of(Introduction)] = ConfigRecord({TEXT: json.dumps(told)})
            return reply

    strategy = control()
    with caplog.at_level("WARNING", logger="tidegate"):
        fit(strategy, Lying(gated_app(), NODES), rounds=1)
    assert strategy._running().fleet == ["partition-0", "partition-1"]
    assert reason in caplog.text


def test_a_registered_node_wins_its_name_from_a_stranger(
    caplog: pytest.LogCaptureFixture,
) -> None:
    class Fleet(RecordingGrid):
        def get_nodes(self) -> list[NodeInfo]:
            names = {3: "partition-0", 4: "partition-2"}  # 2 is not registered, and says the same
            return [NodeInfo(node_id=one, name=names.get(one, "")) for one in self.get_node_ids()]

    grid, strategy = Fleet(gated_app(), [NODES[0], NODES[0], NODES[2]]), control()
    grid.offline = {3}

    def evaluate(now: int, arrays: ArrayRecord) -> None:
        if now == 2:
            grid.offline.clear()

    with caplog.at_level("WARNING", logger="tidegate"):
        fit(strategy, grid, rounds=4, evaluate_fn=evaluate)
    assert strategy._nodes.clients["partition-0"] == 3
    assert "node 2 is left out: another node is already 'partition-0'" in caplog.text


def test_clients_of_no_importance_do_not_divide_by_zero() -> None:
    importance = {f"partition-{number}": 0.0 for number in range(3)}
    result = fit(control(trust=ClientTrust(importance=importance)), recording(), rounds=3)
    for name, array in MODEL.items():
        np.testing.assert_array_equal(weights(result)[name], array.numpy())


def test_a_client_overtaken_by_another_process_gives_that_ones_receipt(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    original = Gate.apply

    def overtaken(self: Gate, *order: Any) -> Receipt:
        receipt = original(self, *order)  # the other process, which had the same order
        if receipt.round_number not in overtaken_in:
            overtaken_in.add(receipt.round_number)
            raise BooksMovedError("the books have moved")
        return receipt

    overtaken_in = set[int]()
    monkeypatch.setattr(Gate, "apply", overtaken)
    strategy = control()
    fit(strategy, recording(), rounds=3)
    assert [row.answered for row in strategy.rounds] == [3, 3, 3]


def test_a_strategy_can_be_started_again() -> None:
    strategy = control(run=None)
    first = fit(strategy, recording(), rounds=3)
    rows = strategy.rounds
    again = fit(strategy, recording(), rounds=3)
    assert strategy.rounds == rows
    for name, value in weights(first).items():
        np.testing.assert_array_equal(value, weights(again)[name])


def test_a_buffer_that_is_lost_in_mid_run_is_noticed_before_anything_is_bought(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    nodes = [{**one, "tidegate-folder": str(tmp_path)} for one in NODES]
    bought: list[str] = []

    def acquire(sample: Any, key: str) -> Any:
        bought.append(key)
        return sample

    grid, strategy = recording(gated_app(acquire=acquire), nodes=nodes), control()

    def evaluate(now: int, arrays: ArrayRecord) -> None:
        if now == 3:
            for path in tmp_path.glob("r-partition-1-*"):
                path.unlink()

    with caplog.at_level("WARNING"):
        fit(strategy, grid, rounds=7, evaluate_fn=evaluate)
    assert "partition-1 has lost its buffer: the order is for" in caplog.text
    assert "partition-1 has lost its buffer, with the receipts up to round 3" in caplog.text
    assert [row.answered for row in strategy.rounds] == [3, 3, 3, 2, 3, 3, 3]
    account = strategy._running().ledger.account("partition-1")
    assert account.lost.buffers == 1
    assert account.lost.admitted > 0
    assert account.newest.admitted > 0
    assert len(set(bought)) == len(bought)  # the new buffer begins after what the lost one had
    assert_books_agree(strategy)


@pytest.mark.parametrize(
    ("group", "values", "reason"),
    [
        (Planning, {"headroom": 0.5}, r"headroom must be 1 or more, got 0\.5"),
        (Planning, {"headroom": float("inf")}, "headroom must be 1 or more, got inf"),
        (Planning, {"fraction_train": 1.5}, r"fraction_train must be above 0 and .*, got 1\.5"),
        (ClientTrust, {"importance": {"a": -3.0}}, "importance of 'a' must be 0 or more, got -3"),
        (ClientTrust, {"importance": {"a": float("nan")}}, "must be 0 or more, got nan"),
        (ClientTrust, {"largest_buffer": 0}, "largest_buffer must be a whole .* 1, got 0"),
        (Deployment, {"time_to_live": 0}, "time_to_live must be a positive .*, got 0"),
        (Deployment, {"time_to_live": math.inf}, "seconds, got inf; leave it out to wait as long"),
        (ClientTrust, {"sums_only": "no"}, "sums_only must be True or False, got 'no'"),
        (ClientTrust, {"importance": ["a"]}, r"importance must be a Mapping, got \['a'\]; such as"),
        (Planning, {"endless": 0}, "endless must be True or False, got 0"),
        (Planning, {"learning": {"smoothness": 2.0}}, "learning must be a LearningConstants, got"),
    ],
)
def test_values_out_of_range_are_refused_at_once(
    group: type[Any], values: dict[str, Any], reason: str
) -> None:
    with pytest.raises(ConfigurationError, match=reason):
        group(**values)


@pytest.mark.parametrize("policy", ["tide", "acdpp"])
def test_a_budget_is_never_spent_ahead_unless_that_is_asked_for(policy: str) -> None:
    leads = []
    for ahead in ({}, {"spend_ahead": 2.0}, {"spend_ahead": None}):
        strategy = control(policy=policy, **ahead)
        fit(strategy, recording(), rounds=20)
        leads.append(max(row.overspend + row.exposure for row in strategy.rounds) / 16.5)
    nothing, some, unlimited = leads
    assert nothing <= 0
    assert 0 < some <= 2
    assert unlimited > some


@pytest.mark.parametrize("samples", [0, 2, 4])
def test_a_stream_that_runs_dry_is_told_once(
    samples: int, caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    gate = ClientGate(lambda context: [1.0] * samples, buffer_capacity=9)
    strategy = control(policy="constant_admission", budget=55.0, folder=tmp_path / "run")
    with caplog.at_level("WARNING", logger="tidegate"):
        fit(strategy, recording(echo_app(gate)), rounds=4)
    assert [row.exhausted for row in strategy.rounds][-2:] == [3, 3]
    expected = ("empty", "short") if samples < 4 else ("short",)  # 2 were held for their K rounds
    assert [one.troubles for one in read_run(tmp_path / "run").clients] == [expected] * 3
    assert caplog.text.count("partition-0 bought fewer samples than ordered") == 1
    assert caplog.text.count("partition-0 has run dry") == 1


class FullStream(IndexedStream):
    """A stream without room for more messages."""

    def overflow(self) -> Overflow:
        return Overflow(full=True, dropped=3)


class SilentSupplier:
    """A supplier that never replies."""

    def ask(self, requests: Sequence[Request]) -> None:
        raise OSError("nobody is there")

    def collect(self, keys: Sequence[str]) -> Iterable[Outcome]:
        raise OSError("nobody is there")

    def cancel(self, keys: Sequence[str]) -> Iterable[Outcome]:
        raise OSError("nobody is there")

    def complete(self, sample: Any, answer: Any) -> Any:
        return sample


def test_clients_whose_supplier_or_stream_fails_are_known_by_name(tmp_path: Path) -> None:
    def number(context: Context) -> int:
        return int(context.node_config["partition-id"])

    gate = ClientGate(
        lambda context: (FullStream if number(context) == 1 else IndexedStream)(range(100)),
        buffer_capacity=9,
        supplier=lambda context: SilentSupplier() if number(context) == 2 else None,
    )
    fit(
        control(policy="constant_admission", budget=55.0, folder=tmp_path),
        recording(echo_app(gate)),
        4,
    )
    view = read_run(tmp_path)
    troubles = {one.name.rpartition("-")[2]: one.troubles for one in view.clients}
    assert troubles == {"0": (), "1": ("spools",), "2": ("suppliers",)}
    last = view.rounds[-1]
    assert (last.health["failing_suppliers"], last.health["full_spools"]) == (1, 1)
    assert last.empty_clients == 0


@pytest.mark.contract
@pytest.mark.parametrize(
    ("ours", "reason"),
    [
        (None, "this message has no order, so it has no samples"),
        (MODEL, "tidegate-order is not a ConfigRecord with a text named 'json'"),
        (ConfigRecord({TEXT: 1}), "tidegate-order is not a ConfigRecord with a text named 'json'"),
        (ConfigRecord({"x": "y"}), "tidegate-order is not a ConfigRecord with a text named 'json'"),
        (ConfigRecord({TEXT: "{"}), "tidegate-order is not JSON"),
        (ConfigRecord({TEXT: "[]"}), "a record is a mapping, got []"),
        (ConfigRecord({TEXT: '{"version": 9}'}), "version 9 is not supported"),
    ],
)
def test_a_message_without_a_proper_order_is_refused_by_the_gate(ours: Any, reason: str) -> None:
    content = RecordDict({"arrays": MODEL})
    if ours is not None:
        content[key_of(Order)] = ours
    (reply,) = recording().send_and_receive([Message(content, 2, "train")])
    assert reason in reply.error.reason


def test_files_and_memory_give_the_same_run(tmp_path: Path) -> None:
    nodes = [{**one, "tidegate-folder": str(tmp_path)} for one in NODES]
    in_files, in_memory = control(), control()
    one, other = fit(in_files, recording(nodes=nodes)), fit(in_memory, recording())
    assert in_files.rounds == in_memory.rounds
    for name, value in weights(one).items():
        np.testing.assert_array_equal(value, weights(other)[name])
    assert len(list(tmp_path.glob("*.sqlite"))) == 3


def test_a_fleet_in_this_process_without_anybody_ends_and_says_so(
    caplog: pytest.LogCaptureFixture,
) -> None:
    grid, strategy = recording(), control()
    grid.offline = set(grid.get_node_ids())
    with caplog.at_level("WARNING", logger="tidegate"):
        fit(strategy, grid, rounds=3)
    assert strategy.rounds == []
    assert caplog.text.count("was skipped: no client is online, and none has been yet") == 3
    assert "no client took part in this run and no round was run" in caplog.text


def test_rounds_begin_when_the_first_client_comes() -> None:
    grid, strategy = recording(), control()
    grid.offline = set(grid.get_node_ids())

    def later(server_round: int, arrays: ArrayRecord) -> None:
        if server_round == 2:
            grid.offline = set()

    fit(strategy, grid, rounds=5, evaluate_fn=later)
    assert [row.round_number for row in strategy.rounds] == [1, 2, 3]
    assert {order.round_number for order in grid.orders} == {1, 2, 3}


class EmptyGrid:
    """A deployment to which one node comes after a while."""

    def __init__(self) -> None:
        self.online: list[Any] = []

    def get_nodes(self) -> list[Any]:
        return self.online


@pytest.mark.parametrize(("comes_after", "found"), [(3, True), (99, False)])
def test_a_deployment_without_anybody_waits_as_long_as_a_round_may_take(
    comes_after: int, found: bool, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    grid, nodes, pauses = EmptyGrid(), Nodes(), list[float]()
    node = NodeInfo(node_id=7)

    def sleep(seconds: float) -> None:
        pauses.append(seconds)
        if len(pauses) == comes_after:
            grid.online, nodes.clients = [node], {"a": 7}

    monkeypatch.setattr("tidegate.flower.nodes.time.sleep", sleep)
    waited: Any = nodes.wait_for_anybody
    prices = PricePath(UniformPrice(1, 10), seed=1)
    terms = Terms(policy=acdpp, policy_name="acdpp", budget=1.0, prices=prices, num_rounds=3)
    with caplog.at_level("WARNING", logger="tidegate"):
        assert waited(grid, Controller(terms, "r"), 200.0) is found
    assert pauses == ([1.0, 2.0, 4.0] if found else [1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 60.0, 60.0])
    assert "the run waits for one and continues by itself" in caplog.text
