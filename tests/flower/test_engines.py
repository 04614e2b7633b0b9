"""Apps on all three engines, and real processes that are killed."""

import io
import json
import os
import signal
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from books import client_files, discrepancies, rows
from deployment import Deployment, deployed, kill, simulated, wait_for
from real_data import DATA, needs_mnist

from tidegate.cli import main
from tidegate.flower import run_in_process
from tidegate.flower.app import run_app
from tidegate.policies.presets import make_policy
from tidegate.prices import UniformPrice
from tidegate.problem import Problem
from tidegate.simulation.rounds import simulate

ROOT = Path(__file__).parents[2]
QUICKSTART = ROOT / "examples" / "quickstart"
FAULTY = ROOT / "tests" / "helpers" / "faulty_app"
ROUNDS = 4
CLIENTS = 3


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deployment]:
    """One deployment for all tests of this file: TLS, authentication, three SuperNodes."""
    with deployed(tmp_path_factory.mktemp("fleet"), CLIENTS) as deployment:
        yield deployment


def model(folder: Path) -> list[Any]:
    (path,) = folder.glob("model-*.npz")
    with np.load(path) as archive:
        index = json.loads(archive["index"].tobytes())["model"]
        parts = [archive[f"part_{one['part']}"].tobytes() for one in index]
    return [
        np.load(io.BytesIO(part)) for part, one in zip(parts, index, strict=True) if one["shape"]
    ]


def quickstart(folder: Path) -> tuple[Path, dict[str, Any]]:
    """The example, and what it is told beside its configuration."""
    return QUICKSTART, {"data": str(DATA)}


def newcomers(folder: Path) -> tuple[Path, dict[str, Any]]:
    """What ``tidegate new`` writes."""
    with pytest.raises(SystemExit):
        main(["new", str(folder / "shore")])
    return folder / "shore", {}


@pytest.mark.parametrize(
    "app", [pytest.param(quickstart, marks=needs_mnist), newcomers], ids=["quickstart", "new"]
)
def test_one_app_on_three_engines(
    app: Callable[[Path], tuple[Path, dict[str, Any]]], fleet: Deployment, tmp_path: Path
) -> None:
    place, options = app(tmp_path)
    run = place.name
    here, ray, real = (tmp_path / name for name in ("here", "ray", "real"))

    def config(folder: Path) -> dict[str, Any]:
        own = {"folder": str(folder / "run"), "tidegate-folder": str(folder / "buffers")}
        return {**options, **own, "num-server-rounds": ROUNDS, "run": run}

    run_app(place, num_clients=CLIENTS, changes=config(here))
    with simulated(tmp_path / "link") as simulation:
        nodes = "--federation-config", f"num-supernodes={CLIENTS}"
        run_id = simulation.run(place, config(ray), *nodes)
        assert simulation.finished(run_id) == "finished:completed", simulation.log(run_id)
    deployed_config = config(real)
    del deployed_config["tidegate-folder"]  # each node's own configuration says it
    run_id = fleet.run(place, deployed_config)
    assert fleet.finished(run_id) == "finished:completed", fleet.log(run_id)

    files = {
        "here": client_files(run, here / "buffers"),
        "ray": client_files(run, ray / "buffers"),
        "real": client_files(run, *buffers(fleet)),
    }
    assert len(files["real"]) == CLIENTS
    assert files["here"] == files["ray"] == files["real"]  # all orders and receipts
    for folder, name in ((here, "here"), (ray, "ray"), (real, "real")):
        assert rows(folder / "run") == rows(here / "run")
        assert len(rows(folder / "run")) == ROUNDS
        assert discrepancies(folder / "run", files[name]) == []
        for mine, other in zip(model(folder / "run"), model(here / "run"), strict=True):
            np.testing.assert_allclose(mine, other, atol=1e-5)


def buffers(fleet: Deployment) -> list[Path]:
    return [fleet.buffers(number) for number in range(CLIENTS)]


def faulty_config(folder: Path, run: str) -> dict[str, Any]:
    folder.mkdir(exist_ok=True)
    return {"folder": str(folder / "run"), "signals": str(folder), "run": run}


def uninterrupted(folder: Path, rounds: int, policy: str = "acdpp") -> list[dict[str, Any]]:
    """The same app in this process, undisturbed."""
    settings = tomllib.loads((FAULTY / "pyproject.toml").read_text())
    config = {
        **settings["tool"]["flwr"]["app"]["config"],
        **faulty_config(folder, "whole"),
        "num-server-rounds": rounds,
        "policy": policy,
        "tidegate-folder": str(folder / "buffers"),
    }
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(FAULTY))
        from faulty.client_app import app as client_app
        from faulty.server_app import app as server_app

        run_in_process(server_app, client_app, num_clients=CLIENTS, run_config=config)
    return rows(folder / "run")


def test_tide_admits_the_same_on_counts_alone_in_process_and_on_a_deployment(
    fleet: Deployment, tmp_path: Path
) -> None:
    rounds = 8
    problem = Problem(
        buffer_capacities=[10] * CLIENTS, budget=16.5, mean_price=5.5, num_rounds=rounds
    )
    simulated_run = simulate(make_policy("tide", problem), problem, UniformPrice(1, 10), seed=1)
    here = uninterrupted(tmp_path / "here", rounds, "tide")
    config = {**faulty_config(tmp_path / "real", "whole"), "policy": "tide"}
    run_id = fleet.run(FAULTY, {**config, "num-server-rounds": rounds})
    assert fleet.finished(run_id) == "finished:completed", fleet.log(run_id)
    assert rows(tmp_path / "real" / "run") == here
    assert [row["admitted"] for row in here] == simulated_run.columns["admitted"].tolist()
    assert [row["spent"] for row in here] == pytest.approx(simulated_run.columns["spent"])
    files = client_files("whole", *buffers(fleet))
    assert files == client_files("whole", tmp_path / "here" / "buffers")  # orders and receipts
    assert discrepancies(tmp_path / "real" / "run", files) == []
    sent = [json.loads(order) for order, _ in files["partition-0"]["answers"]]
    assert all(order["thresholds"] for order in sent)
    assert {row["training_size"] for row in here[-3:]} == {30}


def test_a_killed_server_app_resumes_with_the_same_decisions(
    fleet: Deployment, tmp_path: Path
) -> None:
    config = faulty_config(tmp_path / "killed", "server-kill")
    fleet.run(FAULTY, {**config, "pause-server": 2})
    signal_file = tmp_path / "killed" / "server"
    wait_for(lambda: signal_file.exists() or None, "the server's pause after round 2")
    assert len(rows(tmp_path / "killed" / "run")) == 2
    os.kill(int(signal_file.read_text()), signal.SIGKILL)
    run_id = fleet.run(FAULTY, config)
    assert fleet.finished(run_id) == "finished:completed", fleet.log(run_id)
    assert rows(tmp_path / "killed" / "run") == uninterrupted(tmp_path / "whole", 5)
    assert "resuming run server-kill after round 2" in fleet.log(run_id)
    files = client_files("server-kill", *buffers(fleet))
    assert discrepancies(tmp_path / "killed" / "run", files) == []


def test_a_killed_supernode_is_missed_comes_back_and_pays_once(
    fleet: Deployment, tmp_path: Path
) -> None:
    run, name = tmp_path / "run", "node-kill"
    pause = {"pause-client": 1, "pause-round": 2, "await-nodes": CLIENTS}
    run_id = fleet.run(FAULTY, {**faulty_config(tmp_path, name), **pause})
    signal_file = tmp_path / "client"
    wait_for(lambda: signal_file.exists() or None, "the client's pause in round 2")
    committed = client_files(name, *buffers(fleet))["partition-1"]
    assert committed["last_round"] == 2
    kill(fleet.nodes[1])  # after its commit, before its reply
    client_process = Path("/proc") / signal_file.read_text()
    wait_for(lambda: not client_process.exists() or None, "the end of its ClientApp, too")
    wait_for(lambda: len(rows(run)) >= 2 or None, "the end of round 2 without it")
    assert rows(run)[1]["answered"] == 2
    fleet.restart_node(1, CLIENTS)
    assert fleet.finished(run_id) == "finished:completed", fleet.log(run_id)
    played, files = rows(run), client_files(name, *buffers(fleet))
    assert len(played) == 5
    assert (played[-1]["answered"], played[-1]["exposure"]) == (3, 0.0)
    assert files["partition-1"]["answers"][:2] == committed["answers"]  # its buffer came back
    assert discrepancies(run, files) == []
