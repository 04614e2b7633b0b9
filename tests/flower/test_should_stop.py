"""``should_stop`` of Flower 1.43, and every later argument of ``Strategy.start``."""

import math
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp.strategy import FedAvg, Result, Strategy
from gated_apps import MODEL, gated_app
from later_flower import give_should_stop, has, start

from tidegate.client.supplier import Delivered, Outcome, Request
from tidegate.errors import ConfigurationError
from tidegate.flower import AdmissionControl, ClientGate, LocalGrid
from tidegate.report.alarms import Alarm, alarms
from tidegate.report.live import summary
from tidegate.report.run_state import run_state
from tidegate.runs.reader import read_run
from tidegate.runs.server_log import last_lines

pytestmark = pytest.mark.contract

ROUNDS, STOP, CLIENTS, DELAY = 9, 4, 3, 2


def control(folder: Path | None = None, **named: Any) -> AdmissionControl:
    values = {"budget": 16.5, "prices": 1.5, "run": "r", **named}
    return AdmissionControl(FedAvg(fraction_evaluate=0.0), "tide", folder=folder, **values)


def local_grid(app: ClientApp) -> LocalGrid:
    return LocalGrid(app, [{"partition-id": number} for number in range(CLIENTS)])


@dataclass
class Annotator:
    """Labels every sample ``DELAY`` rounds after it was asked for, and keeps the bill."""

    now: int = 0
    bill: dict[str, float] = field(default_factory=dict)
    due: dict[str, int] = field(default_factory=dict)

    def ask(self, requests: Sequence[Request]) -> None:
        for request in requests:
            self.bill.setdefault(request.key, request.price)
            self.due.setdefault(request.key, self.now + DELAY)

    def collect(self, keys: Sequence[str]) -> Iterator[Outcome]:
        return (Delivered(key, None) for key in keys if self.due[key] <= self.now)

    def cancel(self, keys: Sequence[str]) -> Iterator[Outcome]:
        return iter(())

    def complete(self, sample: Any, answer: None) -> Any:
        return sample


class World:
    """A fleet whose labels come late; it outlives the servers that use it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.annotators = [Annotator() for _ in range(CLIENTS)]

    def app(self) -> ClientApp:
        gate = ClientGate(
            lambda context: [float(number) for number in range(500)],
            buffer_capacity=6,
            supplier=lambda context: self.annotators[self.number(context)],
        )
        app = ClientApp(mods=[gate])

        @app.train()
        def train(message: Message, context: Context) -> Message:
            weight = message.content.array_records["arrays"]["w"].numpy()
            mean = np.full(1, np.mean(gate.samples(context)))
            arrays = ArrayRecord({"w": Array(weight + 0.5 * (mean - weight))})
            return Message(RecordDict({"arrays": arrays}), reply_to=message)

        return app

    @staticmethod
    def number(context: Context) -> int:
        return int(context.node_config["partition-id"])

    def play(self, **named: Any) -> tuple[AdmissionControl, Result]:
        def evaluate(server_round: int, arrays: ArrayRecord) -> MetricRecord:
            for annotator in self.annotators:
                annotator.now = server_round
            return MetricRecord({"weight": float(arrays["w"].numpy()[0])})

        strategy = control(self.folder / "run")
        model = ArrayRecord({"w": Array(np.zeros(1))})
        result = strategy.start(
            local_grid(self.app()), model, num_rounds=ROUNDS, evaluate_fn=evaluate, **named
        )
        return strategy, result

    @property
    def billed(self) -> float:
        return math.fsum(price for one in self.annotators for price in one.bill.values())


def alarms_of(folder: Path, name: str) -> list[Alarm]:
    view, now = read_run(folder), time.time()
    return [
        one for one in alarms(view, summary(view, now), run_state(view, now)) if one.name == name
    ]


def test_a_run_that_stops_with_labels_under_way_keeps_its_books_and_can_be_continued(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    give_should_stop(monkeypatch)
    heard: list[tuple[int, list[int], float]] = []

    def should_stop(server_round: int, result: Result) -> bool:
        metrics = result.evaluate_metrics_serverapp
        heard.append((server_round, sorted(metrics), float(result.arrays["w"].numpy()[0])))
        assert metrics[server_round]["weight"] == heard[-1][2]  # the model of this round
        return server_round == STOP

    world = World(tmp_path / "stopped")
    stopped, result = world.play(should_stop=should_stop)
    assert [number for number, _, _ in heard] == [*range(1, STOP + 1)]
    assert len(stopped.rounds) == STOP
    assert float(result.arrays["w"].numpy()[0]) == heard[-1][2]
    assert stopped.rounds[-1].under_way > 0
    assert stopped.rounds[-1].exposure == 0
    assert math.fsum(row.spent for row in stopped.rounds) == pytest.approx(world.billed)
    log = "\n".join(last_lines(world.folder / "run", 10))
    under_way = stopped.rounds[-1].under_way
    assert f"after round {STOP}, with {under_way} samples paid for and under way" in log
    (alarm,) = alarms_of(world.folder / "run", "SERVER STOPPED")
    assert (alarm.level, alarm.what) == (
        "yellow",
        f"should_stop ended the run, after round {STOP}",
    )

    heard.clear()
    continued, _ = world.play(should_stop=should_stop)
    assert [number for number, _, _ in heard] == [*range(STOP + 1, ROUNDS + 1)]
    assert heard[-1][1] == [*range(STOP, ROUNDS + 1)]  # metrics keep their rounds' numbers
    assert math.fsum(row.spent for row in continued.rounds) == pytest.approx(world.billed)
    whole, _ = World(tmp_path / "whole").play()
    assert continued.rounds == whole.rounds
    assert not alarms_of(world.folder / "run", "SERVER STOPPED")


def test_without_a_reason_to_stop_all_rounds_are_played(monkeypatch: pytest.MonkeyPatch) -> None:
    give_should_stop(monkeypatch)
    for should_stop in (None, lambda server_round, result: False):
        strategy = control()
        strategy.start(local_grid(gated_app()), MODEL, num_rounds=3, should_stop=should_stop)
        assert len(strategy.rounds) == 3


def test_an_argument_that_flower_may_add_is_passed_on_as_it_is(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    passed: list[object] = []

    def newer(strategy: Strategy, *arguments: Any, patience: object = None, **named: Any) -> Result:
        passed.append(patience)
        return start(strategy, *arguments, **named)

    monkeypatch.setattr(Strategy, "start", newer)
    patience = object()
    control().start(local_grid(gated_app()), MODEL, num_rounds=1, patience=patience)
    assert passed == [patience]


@pytest.mark.parametrize(
    ("argument", "remedy"),
    [
        ("should_stop", "it came with Flower 1.43: install flwr>=1.43, or leave it out"),
        ("evaluate_function", "check its spelling, or install a newer flwr"),
    ],
)
def test_an_argument_that_this_flower_lacks_is_named_before_anybody_is_asked(
    argument: str, remedy: str
) -> None:
    if has(argument):
        pytest.skip(f"this Flower has {argument}")
    grid = local_grid(gated_app())
    named: dict[str, Any] = {argument: None}
    with pytest.raises(ConfigurationError) as refused:
        control().start(grid, MODEL, num_rounds=1, **named)
    assert f"start() has no argument {argument!r} in Flower 1." in str(refused.value)
    assert str(refused.value).endswith(remedy)
    assert not grid.answers.sent
