"""What a strategy carries from round to round survives a server that is killed."""

import logging
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import killed_server
import numpy as np
import pytest
from flwr.app import ArrayRecord, ConfigRecord, Message, MetricRecord
from flwr.serverapp import Grid
from flwr.serverapp.strategy import FedAdam, FedAvg, Strategy
from killed_server import STRATEGIES, Momentum, SavedMomentum, killed, serve

from tidegate.errors import ConfigurationError, RunDiffersError
from tidegate.flower.own_state import unsaved


def model(result: Any) -> list[bytes]:
    return [array.data for array in result.arrays.values()]


@pytest.mark.process
@pytest.mark.long
@pytest.mark.parametrize("name", STRATEGIES)
def test_a_server_that_was_killed_ends_with_the_same_model(tmp_path: Path, name: str) -> None:
    expected = model(serve(tmp_path / "whole", STRATEGIES[name]()))
    killed(tmp_path / "killed", name)
    assert model(serve(tmp_path / "killed", STRATEGIES[name]())) == expected


@pytest.mark.process
@pytest.mark.long
def test_without_the_two_methods_it_begins_anew(tmp_path: Path) -> None:
    """So the test above can fail."""
    expected = model(serve(tmp_path / "whole", SavedMomentum()))
    killed(tmp_path / "killed", "SavedMomentum")
    forgets = SavedMomentum()
    forgets.load_state_dict = lambda state: None  # type: ignore[method-assign]
    assert model(serve(tmp_path / "killed", forgets)) != expected


class Everything(FedAvg):
    """Holds one of each kind that can be saved."""

    def __init__(self, kept: Any = None) -> None:
        super().__init__(fraction_evaluate=0.0)
        self.kept = kept
        self.given: Any = None

    def state_dict(self) -> Any:
        return self.kept

    def load_state_dict(self, state: dict[str, Any]) -> None:
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
        ({"a": [{1, 2}]}, r"state_dict\['a'\]\[0\] of the strategy is a set"),
        ({"a": {3: 1.0}}, r"state_dict\['a'\] of the strategy is a dict"),
        ({"a": np.array([object()])}, "is a ndarray"),
        ([1.0], r"Everything.state_dict\(\) must return a dict, got a list"),
    ],
)
def test_what_cannot_be_saved_is_refused_before_the_first_round(
    tmp_path: Path, kept: Any, told: str
) -> None:
    with pytest.raises(ConfigurationError, match=told):
        serve(tmp_path, Everything(kept))


class HalfOnly(FedAvg):
    """Has one method of the two."""

    def state_dict(self) -> dict[str, Any]:
        return {}


def test_one_method_without_the_other_is_refused(tmp_path: Path) -> None:
    told = r"HalfOnly defines state_dict\(\) without load_state_dict\(\)"
    with pytest.raises(ConfigurationError, match=told):
        serve(tmp_path, HalfOnly())


def test_another_strategy_is_not_given_what_it_cannot_take(tmp_path: Path) -> None:
    serve(tmp_path, SavedMomentum())
    with pytest.raises(RunDiffersError, match="resume with the strategy that began the run"):
        serve(tmp_path, Momentum())


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    told = [record.getMessage() for record in caplog.records]
    return [line for line in told if "state" in line]


def test_a_strategy_that_forgets_is_told_of_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    serve(tmp_path, Momentum())
    assert warnings(caplog) == [
        (
            "Momentum changes its attributes (before, steps, velocity), which a resumed run will "
            "not restore: add state_dict() and load_state_dict(), whose state is saved with the run"
        )
    ]
    caplog.clear()
    serve(tmp_path, SavedMomentum())
    assert warnings(caplog) == [
        "SavedMomentum was resumed without its own state: the folder holds none"
    ]


class OnlyChooses(FedAvg):
    """Changes nothing of its own."""

    def __init__(self) -> None:
        super().__init__(fraction_evaluate=0.0)
        self.rate = 0.1

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        config["rate"] = self.rate / server_round
        return super().configure_train(server_round, arrays, config, grid)


class Changes(FedAdam):
    """Changes one attribute in every way that is looked for."""

    def aggregate_evaluate(
        self, server_round: int, replies: Iterable[Message]
    ) -> MetricRecord | None:
        local = self.best  # type: ignore[has-type]
        self.best, (self.last, _) = local, (server_round, 0)
        self.by_round[server_round] = 1.0  # type: ignore[attr-defined]
        self.seen.append(server_round)  # type: ignore[attr-defined]
        self.inner.count += 1  # type: ignore[attr-defined]
        return super().aggregate_evaluate(server_round, replies)


@pytest.mark.parametrize(
    ("strategy", "names"),
    [
        (FedAvg(fraction_evaluate=0.0), []),
        (FedAdam(fraction_evaluate=0.0), []),
        (OnlyChooses(), []),
        (SavedMomentum(), []),
        (Changes(fraction_evaluate=0.0), ["best", "by_round", "inner", "last", "seen"]),
    ],
    ids=lambda value: type(value).__name__,
)
def test_only_what_a_users_strategy_changes_is_called_unsaved(
    strategy: Strategy, names: list[str]
) -> None:
    assert unsaved(strategy) == names


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
