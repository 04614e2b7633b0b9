"""Clients stand in the order in which people count them."""

import json
from pathlib import Path

import pytest
from flwr.serverapp.strategy import FedAvg
from gated_apps import MODEL, gated_app

from tidegate.cli import main
from tidegate.flower import AdmissionControl, LocalGrid
from tidegate.runs.reader import read_run


def test_clients_of_a_run_and_of_an_audit_are_counted_up(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    control = AdmissionControl(
        FedAvg(fraction_evaluate=0.0), "tide", budget=22.0, prices=1.0, folder=tmp_path / "run"
    )
    nodes = [{"partition-id": number} for number in range(12)]
    control.start(LocalGrid(gated_app(), nodes), MODEL, num_rounds=1)
    expected = [f"partition-{number}" for number in range(12)]
    assert [one.name for one in read_run(tmp_path / "run").clients] == expected
    capsys.readouterr()
    with pytest.raises(SystemExit):
        main(["audit", str(tmp_path / "run" / "buffers"), "--json"])
    told = json.loads(capsys.readouterr().out)
    assert [one["client"] for one in told["buffers"]] == expected
