"""What cannot be meant is refused before the first round, by the name of its argument."""

import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from flwr.app import Context
from flwr.serverapp.strategy import FedAvg
from gated_apps import MODEL, gated_app

from tidegate.errors import ConfigurationError
from tidegate.flower import AdmissionControl, ClientGate, LocalGrid
from tidegate.flower.node_buffer import as_stream

NUMBER = "budget must be a number above 0, got "
PATH = "folder must be a path, such as 'run', got "
CAPACITY = "buffer_capacity must be a whole number of at least 1 and at most 100000000, got "


def start(rounds: Any = 2, **change: Any) -> AdmissionControl:
    given = {"policy": "tide", "budget": 55, "prices": 5, **change}
    control = AdmissionControl(FedAvg(fraction_evaluate=0.0), given.pop("policy"), **given)
    grid = LocalGrid(gated_app(), [{"partition-id": number} for number in range(2)])
    control.start(grid, MODEL, rounds)
    return control


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"budget": "55"}, NUMBER + "'55'"),
        ({"budget": None}, NUMBER + "None"),
        ({"budget": [55]}, NUMBER + "[55]"),
        ({"budget": True}, NUMBER + "True"),
        ({"policy": None}, "policy must be a function of a problem and options, got None; or a "),
        ({"policy": lambda: None}, "does not accept them: too many positional arguments"),
        ({"spend_ahead": "1"}, "spend_ahead must be 0 or more and at most 10000000 rounds' budget"),
        ({"rounds": "3"}, "num_rounds must be a whole number of at least 1, got '3'"),
        ({"rounds": 2.5}, "num_rounds must be a whole number of at least 1, got 2.5"),
        ({"rounds": None}, "num_rounds must be a whole number of at least 1, got None"),
        ({"folder": 5}, PATH + "5"),
        ({"folder": ""}, PATH + "''"),
        ({"prices": 0}, "prices must be more than 0 on average over 2 rounds"),
        ({"planning": {"headroom": 4}}, "planning must be a Planning, got {'headroom': 4}; such"),
        ({"trust": None}, "trust must be a ClientTrust, got None; such as ClientTrust("),
        ({"deployment": 600}, "deployment must be a Deployment, got 600; such as Deployment("),
        ({"sinks": [5]}, "5 has no decided()"),
        (
            {"sinks": ["promteheus"]},
            "offers 'promteheus' among its 'tidegate.sinks'; did you mean prometheus?",
        ),
        ({"sinks": "prometheus"}, "sinks must be a list, got 'prometheus'"),
        ({"sinks": [FedAvg]}, "FedAvg'> is a class; pass an instance"),
        ({"sinks": 5}, "sinks must be a list, got 5"),
    ],
)
def test_of_admission_control(
    change: dict[str, Any], told: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigurationError, match=re.escape(told)):
        start(**change)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("budget", [55, 55.0, np.float32(55), np.int64(55)])
def test_a_budget_may_be_any_kind_of_number(budget: Any, tmp_path: Path) -> None:
    assert len(start(budget=budget, folder=tmp_path).rounds) == 2


@pytest.mark.parametrize(
    ("place", "told"),
    [
        ("file", "file' is a file; give a folder"),
        (
            "file/below",
            "below' cannot be created (Not a directory); choose one where the server may",
        ),
        (
            "/proc/x",
            "folder='/proc/x' cannot be created (No such file or directory); choose one where",
        ),
    ],
)
def test_of_a_folder_that_cannot_be_made(place: str, told: str, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigurationError, match=re.escape(told)) as refused:
        start(folder=tmp_path / place)
    assert str(refused.value).startswith("folder=")


def data(context: Context) -> list[int]:
    return [1, 2, 3]


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"buffer_capacity": "10"}, CAPACITY + "'10'"),
        ({"buffer_capacity": None}, CAPACITY + "None"),
        ({"buffer_capacity": [10]}, CAPACITY + "[10]"),
        ({"buffer_capacity": 2.5}, CAPACITY + "2.5"),
        ({"buffer_capacity": True}, CAPACITY + "True"),
        ({"buffer_capacity": 0}, CAPACITY + "0; a client that stores nothing"),
        ({"buffer_capacity": lambda: 10}, "buffer_capacity must be a function of a context, got "),
        ({"open_stream": np.zeros(3)}, "a function of a context, got an object of ndarray; such"),
        ({"open_stream": [1, 2]}, "open_stream must be a function of a context, got [1, 2]; such"),
        ({"open_stream": lambda: [1]}, "open_stream must be a function of a context, got "),
        ({"acquire": 5}, "acquire must be a function of a sample and its key, got 5"),
        ({"acquire": lambda sample: sample}, "(sample), which does not accept them: too many"),
        ({"acquire": lambda a, b, c: a}, "missing a required argument: 'c'"),
    ],
)
def test_of_a_gate(change: dict[str, Any], told: str) -> None:
    with pytest.raises(ConfigurationError, match=re.escape(told)):
        ClientGate(**{"open_stream": data, "buffer_capacity": 10, **change})


def test_of_a_stream_that_lacks_a_method() -> None:
    with pytest.raises(ConfigurationError, match="SimpleNamespace, which has no seek; a stream"):
        as_stream(SimpleNamespace(take=list, cursor="0"))
