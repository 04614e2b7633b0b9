"""Clients whose updates lie or break: what they can do to a run, and what they cannot."""

import io
import json
import pickle
import struct
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp.strategy import FedAvg, FedMedian, FedTrimmedAvg, Krum, Strategy
from gated_apps import MODEL, gated_app

from tidegate.flower import AdmissionControl, LocalGrid
from tidegate.flower.nodes import LONGEST_PAUSE
from tidegate.flower.records import TEXT, asks_who, key_of
from tidegate.prices import PricePath, UniformPrice
from tidegate.wire import Introduction, Receipt

LIAR = 2
"""The node of partition 0."""
ROUNDS = 6
Lie = Callable[[RecordDict], None]


class Hostile(LocalGrid):
    """One node changes what it replies to an order."""

    def __init__(self, lie: Lie, clients: int = 4, app: ClientApp | None = None) -> None:
        configs = [{"partition-id": number} for number in range(clients)]
        super().__init__(app or gated_app(), configs)
        self._lie = lie

    def _answer(self, message: Message) -> Message:
        reply = super()._answer(message)
        mine = message.metadata.dst_node_id == LIAR and not asks_who(message.content)
        if mine and reply.has_content() and "arrays" in reply.content:
            self._lie(reply.content)
        return reply


def control(strategy: Strategy | None = None) -> AdmissionControl:
    return AdmissionControl(
        strategy or FedAvg(fraction_evaluate=0.0),
        "constant_admission",
        budget=40.0,
        prices=PricePath(UniformPrice(1, 10), seed=1),
        run="r",
    )


def played(lie: Lie, strategy: Strategy | None = None) -> tuple[AdmissionControl, dict[str, Any]]:
    strategy_used = control(strategy)
    result = strategy_used.start(Hostile(lie), MODEL, num_rounds=ROUNDS)
    return strategy_used, {name: array.numpy() for name, array in result.arrays.items()}


def put(name: str, values: Any) -> Lie:
    def lie(content: RecordDict) -> None:
        arrays = {key: array.numpy() for key, array in content.array_records["arrays"].items()}
        content["arrays"] = ArrayRecord(
            {key: Array(array) for key, array in {**arrays, name: values}.items()}
        )

    return lie


def put_bytes(data: bytes, stype: str = "numpy.ndarray") -> Lie:
    def lie(content: RecordDict) -> None:
        arrays = dict(content.array_records["arrays"].items())
        arrays["w"] = Array(dtype="float64", shape=(3,), stype=stype, data=data)
        content["arrays"] = ArrayRecord(arrays)

    return lie


def leave_out(content: RecordDict) -> None:
    content["arrays"] = ArrayRecord({"w": content.array_records["arrays"]["w"]})


def rename(content: RecordDict) -> None:
    content["weights"] = content.array_records["arrays"]
    del content["arrays"]


def send_two(content: RecordDict) -> None:
    content["more"] = content.array_records["arrays"]


def metric(name: str, value: Any) -> Lie:
    def lie(content: RecordDict) -> None:
        content["metrics"] = MetricRecord({**content.metric_records["metrics"], name: value})

    return lie


def more_metrics(content: RecordDict) -> None:
    content["metrics-2"] = MetricRecord({"loss": 1.0})


def announced(count: int) -> bytes:
    """An array of so many numbers, by its head; there is nothing behind it."""
    head = f"{{'descr': '<f8', 'fortran_order': False, 'shape': ({count},), }}".encode()
    head += b" " * (-(len(head) + 11) % 64) + b"\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(head)) + head


def archive() -> bytes:
    file = io.BytesIO()
    np.savez(file, w=np.zeros(3))
    return file.getvalue()


def no_model(content: RecordDict) -> None:
    del content["arrays"]


@cache
def played_without_its_model() -> tuple[AdmissionControl, dict[str, Any]]:
    return played(no_model)


REFUSED: dict[str, Lie] = {
    "not a number": put("w", np.array([1.0, np.nan, 2.0])),
    "infinite": put("b", np.array([np.inf])),
    "another shape": put("w", np.zeros(4)),
    "a scalar": put("w", np.array(1.0)),
    "another array": put("extra", np.zeros(3)),
    "too few arrays": leave_out,
    "another record": rename,
    "two records": send_two,
    "no bytes": put_bytes(b""),
    "broken bytes": put_bytes(b"\x93NUMPY\x01\x00nonsense"),
    "a tera of numbers announced": put_bytes(announced(10**12)),
    "more than memory announced": put_bytes(announced(10**17)),
    "an archive": put_bytes(archive()),
    "another format": put_bytes(b"", stype="torch"),
    "bytes of another length": put("w", np.zeros(4, dtype=np.uint8)),
    "texts": put("w", np.array(["a", "b", "c"])),
    "dates": put("w", np.zeros(3, dtype="datetime64[s]")),
    "records": put("w", np.zeros(3, dtype=[("a", "f8"), ("b", "f8")])),
    "complex numbers": put("w", np.zeros(3, dtype=complex)),
    "another metric": metric("accuracy", 1.0),
    "a list in place of a metric": metric("loss", [1.0, 2.0]),
    "more metrics": more_metrics,
}


@pytest.mark.parametrize("lie", REFUSED.values(), ids=REFUSED)
def test_an_update_that_breaks_is_left_out_and_its_money_booked(
    lie: Lie, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level("WARNING"):
        strategy, model = played(lie)
    assert "partition-0 is left out of the average: its " in caplog.text
    without, expected = played_without_its_model()
    assert strategy.rounds == without.rounds  # all money, all samples
    assert all(row.answered == 4 for row in strategy.rounds)
    for name, values in expected.items():
        np.testing.assert_array_equal(model[name], values)


def test_a_weight_of_its_own_is_not_believed() -> None:
    _, honest = played(lambda content: None)
    for claimed in (10**9, -5, float("nan"), [1, 2, 3]):
        _, model = played(metric("num-examples", claimed))
        for name, values in honest.items():
            np.testing.assert_array_equal(model[name], values)


class Payload:
    """What a pickle would execute."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return Path.touch, (self._path,)


def test_a_pickle_is_never_opened(tmp_path: Path) -> None:
    proof = tmp_path / "executed"
    file = io.BytesIO()
    np.save(file, np.array([Payload(proof)] * 3, dtype=object), allow_pickle=True)
    for data in (file.getvalue(), pickle.dumps(Payload(proof))):
        strategy, _ = played(put_bytes(data))
        assert len(strategy.rounds) == ROUNDS
        assert not proof.exists()
    pickle.loads(pickle.dumps(Payload(proof)))  # noqa: S301 - it is a payload indeed
    assert proof.exists()


def poison(content: RecordDict) -> None:
    put("w", np.full(3, 1e6))(content)


@pytest.mark.parametrize(
    "robust",
    [
        FedMedian(fraction_evaluate=0.0),
        FedTrimmedAvg(fraction_evaluate=0.0, beta=0.25),
        Krum(fraction_evaluate=0.0, num_malicious_nodes=1),
    ],
    ids=lambda strategy: type(strategy).__name__,
)
def test_a_robust_strategy_outvotes_one_well_formed_lie(robust: Strategy) -> None:
    _, model = played(poison, robust)
    assert np.abs(model["w"]).max() < 5
    _, average = played(poison)
    assert np.abs(average["w"]).max() > 1e5  # what an average makes of it


def claim(**changes: Any) -> Lie:
    def lie(content: RecordDict) -> None:
        record = content[key_of(Receipt)]
        assert isinstance(record, ConfigRecord)
        told = {**json.loads(str(record[TEXT])), **changes}
        content[key_of(Receipt)] = ConfigRecord({TEXT: json.dumps(told)})

    return lie


def test_in_an_average_a_lie_weighs_no_more_than_what_it_paid_for() -> None:
    """A buffer that is fuller than what was bought is not believed."""

    def lie(content: RecordDict) -> None:
        put("w", np.full(3, 1000.0))(content)

    strategy = control()
    result = strategy.start(Hostile(lie), MODEL, num_rounds=1)
    (row,) = strategy.rounds
    paid_for = strategy._running().ledger.account("partition-0").admitted
    share = result.arrays["w"].numpy().max() / 1000.0
    assert share == pytest.approx(paid_for / row.training_size, abs=0.01)


def text(value: str) -> Lie:
    def lie(content: RecordDict) -> None:
        content[key_of(Receipt)] = ConfigRecord({TEXT: value})

    return lie


@pytest.mark.parametrize(
    "lie",
    [
        claim(run="another"),
        claim(round_number=10**6),
        claim(admitted=-1),
        claim(bought=10**18, admitted=10**18, occupancy=10**18),
        claim(occupancy=10**6),
        claim(occupancy=8),
        claim(spent=1e14),
        claim(spent=float("inf")),
        claim(spent=0.0),
        claim(refunded=1e6),
        claim(holding=[9] * 5),
        claim(uses=0),
        claim(read=10**6),
        claim(health={"no name": 1}),
        claim(health={"told": float("nan")}),
        text(""),
        text("[" * 50_000),
        text('{"version": ' + "9" * 5_000 + "}"),
        text('"' + "x" * 10**6 + '"'),
    ],
)
def test_a_receipt_that_lies_costs_its_client_the_round_and_nobody_else_anything(
    lie: Lie,
) -> None:
    strategy, model = played(lie)
    assert len(strategy.rounds) == ROUNDS
    assert all(3 <= row.answered <= 4 for row in strategy.rounds)
    assert strategy.rounds[0].answered == 3
    assert all(np.isfinite(values).all() for values in model.values())
    ledger = strategy._running().ledger
    spent = sum(ledger.account(client).paid for client in ledger.clients)
    assert sum(row.spent for row in strategy.rounds) == pytest.approx(spent)


@pytest.mark.parametrize("lie", [send_two, more_metrics, rename, leave_out])
def test_of_two_replies_the_one_with_the_models_form_is_taken(lie: Lie) -> None:
    strategy = control()
    result = strategy.start(Hostile(lie, clients=2), MODEL, num_rounds=ROUNDS)
    assert set(result.arrays) == set(MODEL)
    assert np.abs(result.arrays["w"].numpy()).max() > 0


def empty(content: RecordDict) -> None:
    content["arrays"] = ArrayRecord({})


@pytest.mark.parametrize("lie", [empty, leave_out, put("w", np.full(3, 1.7e308))])
def test_one_reply_alone_cannot_replace_the_model_by_something_else(lie: Lie) -> None:
    """Two of the largest numbers there are have no average."""
    grid = Hostile(lie, clients=1)
    strategy = control(FedAvg(fraction_evaluate=0.0, min_train_nodes=1, min_available_nodes=1))
    result = strategy.start(grid, MODEL, num_rounds=2)
    assert set(result.arrays) == set(MODEL)
    assert all(np.isfinite(array.numpy()).all() for array in result.arrays.values())


class Evaluating(LocalGrid):
    """One node reports other metrics than all others."""

    odd: Mapping[str, Any] = MappingProxyType({"surprise": 1.0})

    def _answer(self, message: Message) -> Message:
        if message.metadata.message_type != "evaluate":
            return super()._answer(message)
        odd = self.odd if message.metadata.dst_node_id == LIAR else {}
        metrics = MetricRecord({"accuracy": 0.5, "num-examples": 4, **odd})
        return Message(RecordDict({"metrics": metrics}), reply_to=message)


@pytest.mark.parametrize(
    "odd",
    [
        {"num-examples": -8},
        {"num-examples": [1, 2]},
        {"num-examples": float("nan")},
        {"accuracy": [1.0, 2.0]},
        {"accuracy": float("nan")},
    ],
)
def test_metrics_that_break_an_evaluation_are_left_out(odd: dict[str, Any]) -> None:
    grid = Evaluating(gated_app(), [{"partition-id": number} for number in range(3)])
    grid.odd = odd
    result = control(FedAvg()).start(grid, MODEL, num_rounds=2)
    assert result.evaluate_metrics_clientapp[2]["accuracy"] == 0.5


class Mute(LocalGrid):
    """One node never says who it is."""

    asked: int = 0

    def push_messages(self, messages: Any) -> list[str]:
        batch = list(messages)
        ids = super().push_messages(batch)
        for message, message_id in zip(batch, ids, strict=True):
            if asks_who(message.content) and message.metadata.dst_node_id == LIAR:
                self.asked += 1
                del self._replies[message_id]
        return ids


def test_a_node_that_never_answers_is_asked_less_and_less_often() -> None:
    """Everybody waits for its answer, up to a minute each time."""
    grid = Mute(gated_app(), [{"partition-id": number} for number in range(3)])
    strategy = control()
    strategy.start(grid, MODEL, num_rounds=200)
    # After rounds 1, 2, 4, 8, 16, 32, 64, and then every 64.
    assert grid.asked == 1 + LONGEST_PAUSE + (200 - 2**LONGEST_PAUSE) // 2**LONGEST_PAUSE
    assert strategy.rounds[-1].answered == 2


class Renaming(LocalGrid):
    """One node introduces itself with whatever it likes."""

    told: dict[str, Any]

    def _answer(self, message: Message) -> Message:
        reply = super()._answer(message)
        if asks_who(message.content) and message.metadata.dst_node_id == LIAR:
            record = reply.content[key_of(Introduction)]
            assert isinstance(record, ConfigRecord)
            told = {**json.loads(str(record[TEXT])), **self.told}
            reply.content[key_of(Introduction)] = ConfigRecord({TEXT: json.dumps(told)})
        return reply


@pytest.mark.parametrize(
    "told",
    [
        {"run": "another"},
        {"buffer_capacity": 0},
        {"buffer_capacity": 10**30},
        {"buffer_capacity": 10**9},
        {"buffer_id": ""},
        {"void_round": -1},
        {"client": "x" * 201},
    ],
)
def test_an_introduction_that_lies_leaves_one_node_out(told: dict[str, Any]) -> None:
    grid = Renaming(gated_app(), [{"partition-id": number} for number in range(3)])
    grid.told = told
    strategy = control()
    strategy.start(grid, MODEL, num_rounds=3)
    assert len(strategy.rounds) == 3
    assert [row.answered for row in strategy.rounds] == [2, 2, 2]


class Renamed(Renaming):
    """One node has a new name whenever it is asked."""

    def _answer(self, message: Message) -> Message:
        self.told = {"client": f"client-{message.metadata.message_id}"}
        return super()._answer(message)  # it fails, and is asked again in every round


def test_a_node_has_one_name() -> None:
    grid = Renamed(gated_app(), [{"partition-id": number} for number in range(3)])
    strategy = control()
    strategy.start(grid, MODEL, num_rounds=8)
    assert len(strategy._running().ledger.clients) == 3
