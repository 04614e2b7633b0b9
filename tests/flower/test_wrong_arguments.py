"""What is unusual and can be meant is taken."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from flwr.app import Context
from flwr.serverapp.strategy import FedAvg
from gated_apps import MODEL, gated_app

from tidegate.errors import ConfigurationError
from tidegate.flower import AdmissionControl, LocalGrid
from tidegate.flower.node_buffer import as_stream


@pytest.mark.parametrize("budget", [55, 55.0, np.float32(55), np.int64(55)])
def test_a_budget_may_be_any_kind_of_number(budget: Any, tmp_path: Path) -> None:
    strategy = FedAvg(fraction_evaluate=0.0)
    control = AdmissionControl(strategy, "tide", budget=budget, prices=5, folder=tmp_path)
    control.start(LocalGrid(gated_app(), [{"partition-id": 0}, {"partition-id": 1}]), MODEL, 2)
    assert len(control.rounds) == 2


def data(context: Context) -> list[int]:
    return [1, 2, 3]


def test_of_a_stream_that_lacks_a_method() -> None:
    with pytest.raises(ConfigurationError, match="SimpleNamespace, which has no seek; a stream"):
        as_stream(SimpleNamespace(take=list, cursor="0"))
