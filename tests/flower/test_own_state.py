"""What a strategy carries from round to round survives a server that is killed."""

import logging
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import killed_server
import numpy as np
import pytest
from flwr.app import ArrayRecord, Message, MetricRecord
from flwr.serverapp.strategy import FedAdam, FedAvg, Strategy
from killed_server import STRATEGIES, Momentum, SavedMomentum, killed, serve

from tidegate.errors import ConfigurationError, RunDiffersError
from tidegate.flower import FoldedFedAvg


def model(result: Any) -> list[bytes]:
    return [array.data for array in result.arrays.values()]


@pytest.mark.process
@pytest.mark.long
@pytest.mark.parametrize("name", STRATEGIES)
def test_a_server_that_was_killed_ends_with_the_same_model(tmp_path: Path, name: str) -> None:
    expected = model(serve(tmp_path / "whole", STRATEGIES[name]()))
    killed(tmp_path / "killed", name)
    assert model(serve(tmp_path / "killed", STRATEGIES[name]())) == expected


class Everything(FedAvg):
    """Holds one of each kind that can be saved."""

    def __init__(self, kept: Any = None) -> None:
        super().__init__(fraction_evaluate=0.0)
        self.kept = kept
        self.given: Any = None

    def state(self) -> Any:
        return self.kept

    def restore(self, state: dict[str, Any]) -> None:
        self.given = state


KEPT: dict[str, Any] = {
    "arrays": [np.arange(6, dtype=np.float32).reshape(2, 3), np.array([True]), np.float16(0.1)],
    "numbers": [0.1, -(2**70), True, float("inf"), None],
    "tuples": (1, ("two", [3.0])),
    "text": "Äpfel",
    "array": {"dict": {"array": 3}, "none": {}},
}


def test_every_kind_comes_back_as_it_was(tmp_path: Path) -> None:
    serve(tmp_path, Everything(KEPT))
    again = Everything(KEPT)
    serve(tmp_path, again)
    arrays = again.given.pop("arrays")
    assert again.given == {name: value for name, value in KEPT.items() if name != "arrays"}
    for mine, theirs in zip(arrays, KEPT["arrays"], strict=True):
        assert type(mine) is type(theirs)
        assert (mine.dtype, mine.shape) == (theirs.dtype, theirs.shape)
        np.testing.assert_array_equal(mine, theirs)


@pytest.mark.parametrize(
    ("kept", "told"),
    [
        ({"a": [{1, 2}]}, r"state\(\)\['a'\]\[0\] of the strategy is a set"),
        ({"a": {3: 1.0}}, r"state\(\)\['a'\] of the strategy is a dict"),
        ({"a": np.array([object()])}, "is a ndarray"),
        ([1.0], r"Everything.state\(\) must return a dict, got a list"),
    ],
)
def test_what_cannot_be_saved_is_refused_before_the_first_round(
    tmp_path: Path, kept: Any, told: str
) -> None:
    with pytest.raises(ConfigurationError, match=told):
        serve(tmp_path, Everything(kept))


class HalfOnly(FedAvg):
    """Has one method of the two."""

    def state(self) -> dict[str, Any]:
        return {}


def test_one_method_without_the_other_is_refused(tmp_path: Path) -> None:
    told = r"HalfOnly defines state\(\) without restore\(\)"
    with pytest.raises(ConfigurationError, match=told):
        serve(tmp_path, HalfOnly())


def test_another_strategy_is_not_given_what_it_cannot_take(tmp_path: Path) -> None:
    serve(tmp_path, SavedMomentum())
    with pytest.raises(RunDiffersError, match="resume with the strategy that began the run"):
        serve(tmp_path, Momentum())


class SavedAdam(FedAdam):
    """One of Flower's strategies, with state of its own besides Flower's."""

    def __init__(self) -> None:
        super().__init__(fraction_evaluate=0.0)
        self.best = 0.0

    def state(self) -> dict[str, Any]:
        return {"best": self.best}

    def restore(self, state: dict[str, Any]) -> None:
        self.best = state["best"]


@pytest.mark.parametrize(
    ("strategy", "count"),
    [
        (FedAvg(fraction_evaluate=0.0), 0),
        (FedAdam(fraction_evaluate=0.0), 0),
        (FoldedFedAvg(fraction_evaluate=0.0), 0),
        (SavedMomentum(), 0),
        (SavedAdam(), 0),
        (Momentum(), 1),
    ],
    ids=lambda value: type(value).__name__,
)
def test_what_a_restart_forgets_is_told_once_before_the_first_round(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, strategy: Strategy, count: int
) -> None:
    caplog.set_level(logging.WARNING)
    serve(tmp_path, strategy)
    words = [record.getMessage() for record in caplog.records]
    forgets = "Momentum has no state() and restore(state): a restart keeps the model"
    assert sum(line.startswith(forgets) for line in words) == count
    assert sum("restart" in line for line in words) == count


def test_a_strategy_that_learns_to_say_what_it_keeps_is_told_that_nothing_was_kept(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    serve(tmp_path, Momentum())
    caplog.clear()
    serve(tmp_path, SavedMomentum())
    told = "SavedMomentum was resumed without its own state: the folder holds none"
    assert told in [record.getMessage() for record in caplog.records]


class Diverges(SavedMomentum):
    """Its third average is no model, after its state was changed."""

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        arrays, metrics = super().aggregate_train(server_round, replies)
        return (None if server_round == 3 else arrays), metrics


def test_what_led_to_a_refused_average_is_given_back(tmp_path: Path) -> None:
    one = Diverges()
    serve(tmp_path, one)
    assert one.steps == killed_server.ROUNDS - 1
