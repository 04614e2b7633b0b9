"""An operator retires a client while the server runs, between two starts, and around a crash."""

import logging
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from flwr.app import Context, Message
from flwr.serverapp.strategy import FedAvg
from gated_apps import MODEL, gated_app

from tidegate.admission.debt import certificate_holds
from tidegate.flower import AdmissionControl, LocalGrid
from tidegate.flower.checkpoint import Checkpoint
from tidegate.prices import PricePath, UniformPrice
from tidegate.runs.folder import RETIRED
from tidegate.runs.reader import read_run
from tidegate.runs.retirements import ask, asked
from tidegate.runs.sinks import Moment

ROUNDS = 8
GONE = "partition-2"


class Killed(BaseException):
    """The server is gone: nothing after this point happened."""


class Kept:
    """A sink that remembers."""

    def __init__(self) -> None:
        self.moments: list[Moment] = []

    def decided(self, round_number: int, price: float) -> None: ...

    def settled(self, moment: Moment) -> None:
        self.moments.append(moment)

    def measured(self, *told: object) -> None: ...

    def close(self, *, failed: bool) -> None: ...


def control(folder: Path, **named: Any) -> AdmissionControl:
    return AdmissionControl(
        FedAvg(fraction_evaluate=named.pop("fraction_evaluate", 0.0)),
        "tide",
        budget=22.0,
        prices=PricePath(UniformPrice(1, 10), seed=1),
        folder=folder,
        run="r",
        **named,
    )


def grid(
    folder: Path, on_train: Callable[[Message, Context], None] = lambda message, context: None
) -> LocalGrid:
    nodes: list[dict[str, Any]] = [
        {"partition-id": number, "tidegate-folder": str(folder / "buffers")} for number in range(4)
    ]
    return LocalGrid(gated_app(on_train), nodes)


def asking(control: AdmissionControl, folder: Path, now: int) -> Callable[..., None]:
    """An operator who asks while a round is under way."""

    def on_train(message: Message, context: Context) -> None:
        if len(control.rounds) == now - 1 and not asked(folder):
            ask(folder, [GONE], retired=True)

    return on_train


def test_a_server_that_runs_takes_it_out_at_its_next_round(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    kept = Kept()
    one = control(tmp_path / "run", sinks=[kept])
    one.start(grid(tmp_path, asking(one, tmp_path / "run", 3)), MODEL, ROUNDS)
    assert [(row.fleet, row.orders, row.retired) for row in one.rounds] == [
        *[(4, 4, 0)] * 3,
        *[(3, 3, 1)] * (ROUNDS - 3),
    ]
    assert {moment.away for moment in kept.moments} == {0}
    # Its node is online all the time, and is not asked again.
    about = [one.getMessage() for one in caplog.records if GONE in one.getMessage().split()]
    booked = "0 that it may have paid without a reply is booked as spent"
    assert about == [f"partition-2 is retired from round 4 on; {booked}"]
    view = read_run(tmp_path / "run")
    assert ([one.name for one in view.retired], view.away) == ([GONE], [])


def test_a_node_that_comes_back_is_refused_in_one_line_and_let_in_again_on_request(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    folder = tmp_path / "run"
    stopped(tmp_path, control(folder), before_round=3)
    ask(folder, [GONE], retired=True)
    stopped(tmp_path, control(folder), before_round=5)
    caplog.clear()
    stopped(tmp_path, control(folder), before_round=7)
    refusals = [one.getMessage() for one in caplog.records if "left out" in one.getMessage()]
    assert len(refusals) == 1
    assert (
        "partition-2 was retired in round 4; to let it take part again, run tidegate retire"
        in refusals[0]
    )
    ask(folder, [GONE], retired=False)
    last = control(folder)
    last.start(grid(tmp_path), MODEL, ROUNDS)
    assert [row.retired for row in last.rounds] == [0, 0, 0, 1, 1, 1, 1, 0]
    assert (last.rounds[-1].fleet, last.rounds[-1].answered) == (4, 4)
    assert read_run(folder).retired == []


def stopped(tmp_path: Path, one: AdmissionControl, before_round: int) -> None:
    """Play up to a round, and die."""

    def dies(message: Message, context: Context) -> None:
        if len(one.rounds) >= before_round - 1:
            raise Killed

    with pytest.raises(Killed):
        one.start(grid(tmp_path, dies), MODEL, ROUNDS)


@pytest.mark.long
@pytest.mark.parametrize("method", ["save_control", "save_round", "_save_model"])
@pytest.mark.parametrize("call", [3, 4, 5])
def test_a_request_survives_a_server_that_dies_anywhere_around_it(
    tmp_path: Path, method: str, call: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same rows as a server that was left alone; asked in the second round."""
    folder = tmp_path / "run"
    whole = control(tmp_path / "whole")
    alone = grid(tmp_path / "alone", asking(whole, tmp_path / "whole", 2))
    expected = whole.start(alone, MODEL, ROUNDS)
    original, calls = getattr(Checkpoint, method), 0

    def dies(self: Checkpoint, *arguments: Any) -> None:
        nonlocal calls
        calls += 1
        if calls == call:
            raise Killed
        original(self, *arguments)

    first = control(folder)
    monkeypatch.setattr(Checkpoint, method, dies)
    with pytest.raises(Killed):
        first.start(grid(tmp_path, asking(first, folder, 2)), MODEL, ROUNDS)
    monkeypatch.undo()
    second = control(folder)  # if the first died before the operator asked, he asks now
    result = second.start(grid(tmp_path, asking(second, folder, 2)), MODEL, ROUNDS)
    assert second.rounds == whole.rounds
    for mine, theirs in zip(result.arrays.values(), expected.arrays.values(), strict=True):
        assert mine.data == theirs.data


def test_money_of_an_order_that_is_never_answered_is_spent(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    one = control(folder)

    def breaks(message: Message, context: Context) -> None:
        """It has bought, and dies before it answers; from then on its disk is gone."""
        if len(one.rounds) >= 3 and context.node_config["partition-id"] == 2:
            ask(folder, [GONE], retired=True)
            raise RuntimeError("no disk")

    one.start(grid(tmp_path, breaks), MODEL, ROUNDS)
    exposure = one.rounds[3].exposure
    assert exposure > 0
    assert [row.exposure for row in one.rounds[4:]] == [0.0] * 4
    columns = [[getattr(row, name) for row in one.rounds] for name in NAMES]
    assert certificate_holds(*columns)
    in_books = math.fsum(client.total_spent for client in read_run(folder).clients)
    assert in_books == pytest.approx(math.fsum(row.spent for row in one.rounds))


NAMES = "overspend", "cost_debt", "spent"


def test_a_retired_node_is_not_asked_to_evaluate(tmp_path: Path) -> None:
    one = control(tmp_path / "run", fraction_evaluate=1.0)
    there = grid(tmp_path, asking(one, tmp_path / "run", 2))
    sent: list[int] = []
    configure = one.configure_evaluate

    def counted(*given: Any) -> list[Message]:
        messages = configure(*given)
        sent.append(len(messages))
        return messages

    one.configure_evaluate = counted  # type: ignore[assignment, method-assign]
    one.start(there, MODEL, 4)
    assert sent == [4, 4, 3, 3]


def test_half_a_request_says_nothing_and_the_last_one_counts(tmp_path: Path) -> None:
    ask(tmp_path, ["a", "b"], retired=True)
    with (tmp_path / RETIRED).open("ab") as file:
        file.write(b'{"client": "c", "reti')
    ask(tmp_path, ["b"], retired=False)
    with (tmp_path / RETIRED).open("ab") as file:
        file.write(b'7\n{"client": 3, "retired": true}\n{"client": "d"}\n\xff\n')
    assert asked(tmp_path) == {"a": True, "b": False}


def test_a_new_run_knows_nothing_of_requests_to_an_older_one(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    folder.mkdir()
    ask(folder, [GONE], retired=True)
    one = control(folder)
    one.start(grid(tmp_path), MODEL, 2)
    assert {row.fleet for row in one.rounds} == {4}
    assert asked(folder) == {}
