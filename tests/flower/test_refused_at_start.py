"""A mistake in the app of every node stops a run before it plays a round, new or resumed."""

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, Context, Error, Message, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp.strategy import FedAvg

from tidegate.client.streams import Indexed
from tidegate.errors import ConfigurationError
from tidegate.flower import AdmissionControl, ClientGate, LocalGrid
from tidegate.flower.flower_internals import NodeInfo
from tidegate.flower.prompt_grid import PromptGrid
from tidegate.flower.records import asks_who
from tidegate.runs.reader import read_run

POINTS = np.random.default_rng(0).normal(size=(300, 2))
MODEL = ArrayRecord({"mean": Array(np.zeros(2))})
ROUNDS = 6


class Stopped(BaseException):
    """Somebody stops the server."""


def points(context: Context) -> Indexed:
    return POINTS


def missing(context: Context) -> Indexed:
    raise FileNotFoundError("points.csv")


def full_disk(context: Context) -> Indexed:
    raise OSError(28, "No space left on device")


def app(
    opens: Callable[[Context], Indexed] = points,
    capacity: int | Callable[[Context], int] = 20,
    *,
    gated: bool = True,
) -> ClientApp:
    gate = ClientGate(opens, capacity)
    made = ClientApp(mods=[gate] if gated else [])

    @made.train()
    def train(message: Message, context: Context) -> Message:
        mean = np.mean(gate.samples(context), axis=0)
        content = RecordDict({"arrays": ArrayRecord({"mean": Array(mean)})})
        return Message(content, reply_to=message)

    return made


class Grid(LocalGrid):
    """Three nodes; the server is stopped when it would send the orders of a round."""

    def __init__(self, client_app: ClientApp, stops_in: int = 0) -> None:
        super().__init__(client_app, [{"partition-id": number} for number in range(3)])
        self._left = stops_in

    def send_and_receive(
        self, messages: Iterable[Message], *, timeout: float | None = None
    ) -> list[Message]:
        batch = list(messages)
        if batch and not asks_who(batch[0].content):
            self._left -= 1
            if not self._left:
                raise Stopped
        return super().send_and_receive(batch, timeout=timeout)


def control(folder: Path) -> AdmissionControl:
    return AdmissionControl(
        FedAvg(fraction_evaluate=0.0), "tide", budget=22.0, prices="uniform:1,10", folder=folder
    )


def stopped_in_round_three(folder: Path) -> None:
    with pytest.raises(Stopped):
        control(folder).start(Grid(app(), stops_in=3), MODEL, ROUNDS)


def larger_at_two(context: Context) -> int:
    return 20 if context.node_config["partition-id"] == 0 else 30


MISTAKES: dict[str, tuple[dict[str, Any], str]] = {
    "another capacity": (
        {"capacity": 30},
        "with capacity 20, .* with capacity 30; restore these settings",
    ),
    "no room": (
        {"capacity": lambda context: 0},
        "the result of buffer_capacity must be a whole number of at least 1 .*got 0",
    ),
    "no gate": ({"gated": False}, "put a ClientGate first into the ClientApp's mods"),
    "a missing file": ({"opens": missing}, "open_stream raised FileNotFoundError: points.csv"),
    "a full disk": ({"opens": full_disk}, "open_stream raised OSError: .* No space left"),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_resumed_run_stops_before_a_round_and_goes_on_after_the_correction(
    mistake: str, tmp_path: Path
) -> None:
    stopped_in_round_three(tmp_path)
    made, reason = MISTAKES[mistake]
    with pytest.raises(ConfigurationError, match=reason) as refused:
        control(tmp_path).start(Grid(app(**made)), MODEL, ROUNDS)
    assert "the server refused every online node (3), node 2 because" in str(refused.value)
    assert "start the run again" in str(refused.value)
    assert len(read_run(tmp_path).rounds) == 2
    resumed = control(tmp_path)
    resumed.start(Grid(app()), MODEL, ROUNDS)
    assert [row.answered for row in resumed.rounds] == [3] * ROUNDS


@pytest.mark.parametrize("mistake", sorted(MISTAKES.keys() - {"another capacity"}))
def test_a_new_run_stops_with_the_same_words(mistake: str, tmp_path: Path) -> None:
    made, reason = MISTAKES[mistake]
    with pytest.raises(ConfigurationError, match=f"no client can take part.*{reason}"):
        control(tmp_path).start(Grid(app(**made)), MODEL, ROUNDS)


def test_a_fleet_of_which_one_node_is_fine_goes_on(tmp_path: Path) -> None:
    stopped_in_round_three(tmp_path)
    resumed = control(tmp_path)
    resumed.start(Grid(app(capacity=larger_at_two)), MODEL, ROUNDS)
    assert [row.answered for row in resumed.rounds] == [3, 3, 1, 1, 1, 1]


def test_a_node_that_cannot_be_reached_may_come_back(tmp_path: Path) -> None:
    """The others are refused, and the run goes on for the one that is away."""

    class Away(Grid):
        asked = 0

        def _answer(self, message: Message) -> Message:
            if message.metadata.dst_node_id == 2 and asks_who(message.content):
                self.asked += 1
                if self.asked < 3:
                    return Message(Error(code=5, reason="node unavailable"), reply_to=message)
            return super()._answer(message)

    stopped_in_round_three(tmp_path)
    resumed = control(tmp_path)
    resumed.start(Away(app(capacity=larger_at_two)), MODEL, ROUNDS)
    assert [row.answered for row in resumed.rounds] == [3, 3, 0, 0, 1, 1]


class Deployed(PromptGrid):
    """The same nodes as those of a deployment, to which others may come while the run waits."""

    is_in_process = False

    def __init__(self, client_app: ClientApp, monkeypatch: pytest.MonkeyPatch) -> None:
        super().__init__(Grid(client_app))
        self.pauses: list[float] = []
        self.until: dict[int, int] = {}
        """How many pauses a node stays away."""
        monkeypatch.setattr("tidegate.flower.nodes.time.sleep", self.pauses.append)

    def get_nodes(self) -> list[NodeInfo]:
        return [one for one in super().get_nodes() if self._is_here(one.node_id)]

    def _is_here(self, node_id: int) -> bool:
        return len(self.pauses) >= self.until.get(node_id, 0)


def test_a_failure_of_all_nodes_that_passes_is_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def mounted_later(context: Context) -> Indexed:
        return full_disk(context) if len(grid.pauses) < 2 else POINTS

    grid = Deployed(app(mounted_later), monkeypatch)
    strategy = control(tmp_path)
    strategy.start(grid, MODEL, ROUNDS)
    assert [row.answered for row in strategy.rounds] == [3] * ROUNDS
    assert grid.pauses == [1.0, 2.0]
    told = "every online node is refused for now; the run waits for one and continues"
    assert caplog.text.count(told) == 2
    assert "node 2 is left out: it replied without an introduction: SupplierError: o" in caplog.text


def test_a_failure_that_does_not_pass_stops_the_run_when_a_round_would_be_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    grid, strategy = Deployed(app(missing), monkeypatch), control(tmp_path)
    with pytest.raises(ConfigurationError, match=r"node 2 because .* points\.csv\. No round"):
        strategy.start(grid, MODEL, ROUNDS, timeout=20)
    assert grid.pauses == [1.0, 2.0, 4.0, 8.0]
    assert strategy.rounds == []


@pytest.mark.parametrize("mistake", ["no room", "no gate"])
def test_what_cannot_get_better_stops_a_deployment_at_once(
    mistake: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made, reason = MISTAKES[mistake]
    grid = Deployed(app(**made), monkeypatch)
    told = f"{reason}.*other nodes will join later, raise the strategy's min_available_nodes"
    with pytest.raises(ConfigurationError, match=told):
        control(tmp_path).start(grid, MODEL, ROUNDS)
    assert grid.pauses == []


@pytest.mark.parametrize(
    ("strategy", "told"),
    [
        (FedAvg(fraction_evaluate=0.0), "FedAvg waits for min_available_nodes = 2 nodes"),
        (FedAvg(min_train_nodes=4, min_available_nodes=1), "min_train_nodes = 4 nodes"),
        (
            FedAvg(min_evaluate_nodes=3, min_train_nodes=1, min_available_nodes=1),
            "min_evaluate_nodes = 3 nodes",
        ),
    ],
)
def test_a_strategy_that_would_wait_for_ever_in_this_process_is_refused(
    strategy: FedAvg, told: str
) -> None:
    controlled = AdmissionControl(strategy, "tide", budget=9.0, prices=1.0)
    with pytest.raises(ConfigurationError, match=f"{told}, .* has only 1: give LocalGrid"):
        controlled.start(LocalGrid(app(), [{"partition-id": 0}]), MODEL, ROUNDS)


@pytest.mark.parametrize(
    ("budget", "ahead", "warned"),
    [
        (0.001, 0.0, True),
        (0.9, 0.0, True),
        (1.0, 0.0, False),
        (0.5, 9.0, False),
        (0.1, None, False),
    ],
)
def test_a_budget_that_buys_no_sample_in_the_whole_run_is_told_once(
    budget: float, ahead: float | None, warned: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """Six rounds at a mean price of 5.5: 0.9 a round is 5.4 in all."""
    strategy = AdmissionControl(
        FedAvg(fraction_evaluate=0.0),
        "tide",
        budget=budget,
        prices="uniform:1,10",
        spend_ahead=ahead,
    )
    strategy.start(Grid(app()), MODEL, ROUNDS)
    told = f"a budget of {budget:.4g} a round is {budget * ROUNDS:.4g} in all 6 rounds"
    assert caplog.text.count("clients will buy hardly any samples") == warned
    assert (f"{told}, and a sample costs 5.5 on average" in caplog.text) == warned
