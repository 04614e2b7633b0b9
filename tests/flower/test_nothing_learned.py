"""A run that learns nothing does not end as if all were well."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from flwr.app import Context, Message, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp.strategy import FedAvg
from gated_apps import MODEL, dataset, gated_app

from tidegate.errors import ConfigurationError, NothingLearnedError
from tidegate.flower import AdmissionControl, ClientGate, Deployment, LocalGrid
from tidegate.flower.prompt_grid import PromptGrid
from tidegate.runs.reader import read_run
from tidegate.runs.server_log import LOG

ROUNDS, NODES = 6, [{"partition-id": number} for number in range(2)]


def control(folder: Path | None = None, give_up_after: Any = None) -> AdmissionControl:
    return AdmissionControl(
        FedAvg(fraction_evaluate=0.0),
        "tide",
        budget=22.0,
        prices=2.0,
        folder=folder,
        deployment=Deployment(give_up_after=give_up_after),
    )


def failing_from(round_number: int) -> ClientApp:
    def fail(message: Message, context: Context) -> None:
        if int(message.content.config_records["config"]["server-round"]) >= round_number:  # type: ignore[arg-type]
            raise OSError("no disk")

    return gated_app(fail)


class Engine(PromptGrid):
    """As one of Flower's, where nodes are elsewhere."""

    is_in_process = False


def test_it_gives_up_after_as_many_rounds_and_goes_on_when_the_reason_is_gone(
    tmp_path: Path,
) -> None:
    first = control(tmp_path, give_up_after=2)
    with pytest.raises(NothingLearnedError, match="in the last 2 rounds, up to round 4: the warn"):
        first.start(LocalGrid(failing_from(3), NODES), MODEL, ROUNDS)
    assert len(first.rounds) == len(read_run(tmp_path).rounds) == 4
    assert "the server stops: NothingLearnedError: no client's" in (tmp_path / LOG).read_text()
    second = control(tmp_path, give_up_after=2)
    second.start(LocalGrid(gated_app(), NODES), MODEL, ROUNDS)
    assert [row.answered for row in second.rounds] == [2, 2, 0, 0, 2, 2]


def test_a_run_that_learned_in_between_goes_on() -> None:
    strategy = control(give_up_after=5)
    strategy.start(LocalGrid(failing_from(3), NODES), MODEL, ROUNDS)
    assert len(strategy.rounds) == ROUNDS


@pytest.mark.parametrize(("fails_from", "raises"), [(1, True), (3, False)])
def test_on_flowers_engines_a_run_that_never_learned_fails_at_its_end(
    fails_from: int, raises: bool
) -> None:
    strategy, grid = control(), LocalGrid(failing_from(fails_from), NODES)
    if raises:
        with pytest.raises(NothingLearnedError, match="in the last 6 rounds, up to round 6"):
            strategy.start(Engine(grid), MODEL, ROUNDS)
    else:
        strategy.start(Engine(grid), MODEL, ROUNDS)
    assert len(strategy.rounds) == ROUNDS


class Never:
    """A supplier whose samples are still under way when the run ends."""

    def ask(self, requests: object) -> None:
        pass

    def collect(self, keys: object) -> Iterable[Any]:
        return ()

    cancel = collect

    def complete(self, sample: Any, answer: object) -> Any:
        return sample


def test_first_purchases_that_are_under_way_are_waited_for() -> None:
    app = ClientApp(mods=[ClientGate(dataset, 8, supplier=lambda context: Never())])
    app.train()(lambda message, context: Message(RecordDict(), reply_to=message))
    strategy = control(give_up_after=2)
    strategy.start(LocalGrid(app, NODES), MODEL, ROUNDS)
    assert strategy.rounds[-1].under_way > 0


def test_it_gives_up_after_a_whole_number_of_rounds() -> None:
    with pytest.raises(ConfigurationError, match="give_up_after must be a whole number of at lea"):
        Deployment(give_up_after=0)
