"""One client that lies, breaks or is unknown: the others go on, and pay no more for it."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.serverapp.strategy import FedAvg, QFedAvg, Strategy
from gated_apps import MODEL, gated_app

from tidegate.flower import AdmissionControl, FoldedFedAvg, LocalGrid
from tidegate.flower.records import asks_who
from tidegate.prices import Prices
from tidegate.runs.server_log import how_stopped

FIRST_NODE = 2
"""Of partition 0."""
Change = Callable[[RecordDict], None]


class Changed(LocalGrid):
    """Three clients, whose trained models and metrics are changed on their way."""

    def __init__(self, liar: Change, others: Change = lambda content: None) -> None:
        super().__init__(gated_app(), [{"partition-id": number} for number in range(3)])
        self._liar, self._others = liar, others

    def _answer(self, message: Message) -> Message:
        reply = super()._answer(message)
        if reply.has_content() and "arrays" in reply.content and not asks_who(message.content):
            is_liar = message.metadata.dst_node_id == FIRST_NODE
            (self._liar if is_liar else self._others)(reply.content)
        return reply


def control(
    strategy: Strategy, prices: Prices = 2.0, folder: Path | None = None
) -> AdmissionControl:
    return AdmissionControl(
        strategy, "constant_admission", budget=40.0, prices=prices, folder=folder
    )


def put_loss(value: float) -> Change:
    def change(content: RecordDict) -> None:
        content["metrics"] = MetricRecord({**content.metric_records["metrics"], "loss": value})

    return change


def as_type(kind: str) -> Change:
    def change(content: RecordDict) -> None:
        content["arrays"] = cast(content.array_records["arrays"], kind)

    return change


def cast(arrays: ArrayRecord, kind: str) -> ArrayRecord:
    return ArrayRecord({name: Array(array.numpy().astype(kind)) for name, array in arrays.items()})


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -1.0])
def test_a_loss_that_is_no_loss_does_not_stop_learning(value: float) -> None:
    qfedavg = QFedAvg(client_learning_rate=0.1, train_loss_key="loss", fraction_evaluate=0.0)
    wrapped = control(qfedavg)
    result = wrapped.start(Changed(put_loss(value)), MODEL, num_rounds=4)
    assert not any(row.pause for row in wrapped.rounds)
    assert any(array.numpy().any() for array in result.arrays.values())


def test_a_loss_that_is_not_finite_leaves_the_figure_of_the_fleet_finite() -> None:
    grid = Changed(put_loss(float("nan")))
    result = control(FedAvg(fraction_evaluate=0.0)).start(grid, MODEL, num_rounds=4)
    losses = [record["loss"] for record in result.train_metrics_clientapp.values()]
    assert np.isfinite(losses).all()


@pytest.mark.parametrize("make", [FedAvg, FoldedFedAvg])
def test_a_sender_of_wider_numbers_does_not_widen_the_model(make: type[FedAvg]) -> None:
    grid = Changed(as_type("float64"), others=as_type("float16"))
    wrapped = control(make(fraction_evaluate=0.0))
    result = wrapped.start(grid, cast(MODEL, "float16"), num_rounds=3)
    assert {array.dtype for array in result.arrays.values()} == {"float16"}


def test_the_text_of_an_exception_writes_no_line_of_its_own(tmp_path: Path) -> None:
    def fail(message: Message, context: Context) -> None:
        if context.node_config["partition-id"] == 0:
            raise RuntimeError("lost\n2026-11-19 10:00:00,000 ERROR the server stops: bribed")

    wrapped = control(FedAvg(fraction_evaluate=0.0), folder=tmp_path / "run")
    configs: list[dict[str, Any]] = [{"partition-id": number} for number in range(3)]
    wrapped.start(LocalGrid(gated_app(fail), configs), MODEL, num_rounds=2)
    lines = (tmp_path / "run" / "server.log").read_text().splitlines()
    assert any("bribed" in line for line in lines)
    assert not any(line.startswith("2026-11-19 10:00:00,000 ERROR") for line in lines)
    assert not how_stopped(tmp_path / "run")
