"""Apps on all three engines, and real processes that are killed."""

import importlib.util
import io
import json
import os
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from books import client_files, discrepancies, rows
from check_size import at_size
from deployment import kill, simulated, wait_for
from fleet import CLIENTS, Fleet
from real_data import DATA, needs_mnist
from undisturbed import FAULTY, undisturbed

from tidegate.cli import main
from tidegate.flower.app import run_app
from tidegate.policies import ControlOptions
from tidegate.policies.presets import make_policy
from tidegate.prices import UniformPrice
from tidegate.problem import Problem
from tidegate.simulation.rounds import simulate

pytestmark = pytest.mark.deployment

QUICKSTART = Path(__file__).parents[2] / "examples" / "quickstart"
RAY = importlib.util.find_spec("ray") is not None
"""The environment with the oldest Flower has none."""
NOTHING_AHEAD = ControlOptions(spend_ahead=0.0)
"""As on a fleet by default."""


def play_on_all_engines(
    app: Path, options: dict[str, Any], rounds: int, fleet: Fleet, folder: Path
) -> Path:
    """Play an app in this process, on Ray and on a deployment, and compare all of it.

    Returns:
        Where it was played in this process.
    """
    here, ray, real = (folder / name for name in ("here", "ray", "real"))
    run = app.name

    def config(place: Path) -> dict[str, Any]:
        own = {"folder": str(place / "run"), "tidegate-folder": str(place / "buffers")}
        return {**options, **own, "num-server-rounds": rounds, "run": run}

    deployed_config = config(real)
    del deployed_config["tidegate-folder"]  # each node's own configuration says it
    deployed = fleet.run(app, deployed_config)  # mostly waits, while the others compute
    run_app(app, num_clients=CLIENTS, changes=config(here))
    files = {here: client_files(run, here / "buffers")}
    if RAY:
        with simulated(folder / "link") as simulation:
            nodes = "--federation-config", f"num-supernodes={CLIENTS}"
            run_id = simulation.run(app, config(ray), *nodes)
            assert simulation.finished(run_id) == "finished:completed", simulation.log(run_id)
        files[ray] = client_files(run, ray / "buffers")
    assert fleet.finished(deployed) == "finished:completed", fleet.log(deployed)
    files[real] = client_files(run, *fleet.all_buffers)

    assert len(files[real]) == CLIENTS
    for place, found in files.items():
        assert found == files[here]  # all orders and receipts
        assert rows(place / "run") == rows(here / "run")
        assert len(rows(place / "run")) == rounds
        assert discrepancies(place / "run", found) == []
        for mine, other in zip(model(place / "run"), model(here / "run"), strict=True):
            np.testing.assert_allclose(mine, other, atol=1e-5)
    return here


def model(folder: Path) -> list[Any]:
    (path,) = folder.glob("model-*.npz")
    with np.load(path) as archive:
        index = json.loads(archive["index"].tobytes())["model"]
        parts = [archive[f"part_{one['part']}"].tobytes() for one in index]
    return [
        np.load(io.BytesIO(part)) for part, one in zip(parts, index, strict=True) if one["shape"]
    ]


@pytest.mark.contract
@pytest.mark.share(at_size(240, 600))  # Ray alone takes half a minute of work
def test_what_new_writes_admits_the_same_by_counts_and_on_three_engines(
    fleet: Fleet, tmp_path: Path
) -> None:
    rounds, seed = at_size(2, 8), 10  # by whose second price 16 samples make room for others
    with pytest.raises(SystemExit):
        main(["new", str(tmp_path / "shore")])
    chosen = {"seed": seed, "price": "uniform:1,10", "budget": 55.0}
    here = play_on_all_engines(tmp_path / "shore", chosen, rounds, fleet, tmp_path)
    played = rows(here / "run")
    problem = Problem(
        buffer_capacities=[10] * CLIENTS, budget=55, mean_price=5.5, num_rounds=rounds
    )
    by_counts = simulate(
        make_policy("tide", problem, NOTHING_AHEAD), problem, UniformPrice(1, 10), seed
    )
    assert [row["admitted"] for row in played] == by_counts.columns["admitted"].tolist()
    assert [row["spent"] for row in played] == pytest.approx(by_counts.columns["spent"])
    assert sum(row["admitted"] for row in played) > sum(problem.buffer_capacities)
    sent = client_files("shore", here / "buffers")["partition-0"]["answers"]
    assert all(json.loads(order)["thresholds"] for order, _ in sent)


@needs_mnist
@pytest.mark.full
@pytest.mark.data
def test_the_quickstart_is_the_same_on_three_engines(fleet: Fleet, tmp_path: Path) -> None:
    play_on_all_engines(QUICKSTART, {"data": str(DATA)}, 4, fleet, tmp_path)


def faulty_config(folder: Path, run: str) -> dict[str, Any]:
    folder.mkdir(exist_ok=True)
    return {"folder": str(folder / "run"), "signals": str(folder), "run": run}


@pytest.mark.full
def test_tide_admits_the_same_on_counts_alone_in_process_and_on_a_deployment(
    fleet: Fleet, tmp_path: Path
) -> None:
    rounds = 8
    problem = Problem(
        buffer_capacities=[10] * CLIENTS, budget=16.5, mean_price=5.5, num_rounds=rounds
    )
    simulated_run = simulate(
        make_policy("tide", problem, NOTHING_AHEAD), problem, UniformPrice(1, 10), seed=1
    )
    here = undisturbed(tmp_path / "whole", rounds, "tide")
    config = {**faulty_config(tmp_path / "real", "whole"), "policy": "tide"}
    run_id = fleet.run(FAULTY, {**config, "num-server-rounds": rounds})
    assert fleet.finished(run_id) == "finished:completed", fleet.log(run_id)
    assert rows(tmp_path / "real" / "run") == here.rows
    assert [row["admitted"] for row in here.rows] == simulated_run.columns["admitted"].tolist()
    assert [row["spent"] for row in here.rows] == pytest.approx(simulated_run.columns["spent"])
    files = client_files("whole", *fleet.all_buffers)
    assert files == here.files  # orders and receipts
    assert discrepancies(tmp_path / "real" / "run", files) == []
    assert {row["training_size"] for row in here.rows[-3:]} == {30}


@pytest.mark.full
def test_a_killed_server_app_resumes_with_the_same_decisions(fleet: Fleet, tmp_path: Path) -> None:
    config = faulty_config(tmp_path / "killed", "server-kill")
    fleet.run(FAULTY, {**config, "pause-server": 2})
    signal_file = tmp_path / "killed" / "server"
    wait_for(lambda: signal_file.exists() or None, "the server's pause after round 2")
    assert len(rows(tmp_path / "killed" / "run")) == 2
    os.kill(int(signal_file.read_text()), signal.SIGKILL)
    run_id = fleet.run(FAULTY, config)
    assert fleet.finished(run_id) == "finished:completed", fleet.log(run_id)
    assert rows(tmp_path / "killed" / "run") == undisturbed(tmp_path / "whole", 5, "acdpp").rows
    assert "resuming run server-kill after round 2" in fleet.log(run_id)
    files = client_files("server-kill", *fleet.all_buffers)
    assert discrepancies(tmp_path / "killed" / "run", files) == []


@pytest.mark.full
def test_a_killed_supernode_is_missed_comes_back_and_pays_once(
    fleet: Fleet, tmp_path: Path
) -> None:
    run, name = tmp_path / "run", "node-kill"
    pause = {"pause-client": 1, "pause-round": 2, "await-nodes": CLIENTS}
    run_id = fleet.run(FAULTY, {**faulty_config(tmp_path, name), **pause})
    signal_file = tmp_path / "client"
    wait_for(lambda: signal_file.exists() or None, "the client's pause in round 2")
    committed = client_files(name, *fleet.all_buffers)["partition-1"]
    assert committed["last_round"] == 2
    kill(fleet.nodes[1])  # after its commit, before its reply
    client_process = Path("/proc") / signal_file.read_text()
    wait_for(lambda: not client_process.exists() or None, "the end of its ClientApp, too")
    wait_for(lambda: len(rows(run)) >= 2 or None, "the end of round 2 without it")
    assert rows(run)[1]["answered"] == 2
    fleet.restart_node(1, CLIENTS)
    assert fleet.finished(run_id) == "finished:completed", fleet.log(run_id)
    played, files = rows(run), client_files(name, *fleet.all_buffers)
    assert len(played) == 5
    assert (played[-1]["answered"], played[-1]["exposure"]) == (3, 0.0)
    assert files["partition-1"]["answers"][:2] == committed["answers"]  # its buffer came back
    assert discrepancies(run, files) == []


@pytest.mark.full
def test_a_node_killed_between_choice_and_payment_pays_for_what_it_chose(
    fleet: Fleet, tmp_path: Path
) -> None:
    run, name = tmp_path / "run", "choice-kill"
    (tmp_path / "stop-before-payment-1").touch()
    options = {"candidates": 6, "await-nodes": CLIENTS}
    run_id = fleet.run(FAULTY, {**faulty_config(tmp_path, name), **options})
    signal_file = tmp_path / "client"
    wait_for(lambda: signal_file.exists() or None, "the client's first payment")
    chosen = client_files(name, *fleet.all_buffers)["partition-1"]
    assert (chosen["last_round"], chosen["chosen_round"]) == (0, 1)
    first = [key for key, state in chosen["kept"] if state == "chosen"]
    assert first
    assert not (tmp_path / "paid-1").exists()
    (tmp_path / "stop-before-payment-1").unlink()
    kill(fleet.nodes[1])
    client_process = Path("/proc") / signal_file.read_text()
    wait_for(lambda: not client_process.exists() or None, "the end of its ClientApp, too")
    wait_for(lambda: len(rows(run)) >= 1 or None, "the end of round 1 without it")
    fleet.restart_node(1, CLIENTS)
    assert fleet.finished(run_id) == "finished:completed", fleet.log(run_id)
    paid = (tmp_path / "paid-1").read_text().split()
    assert paid[: len(first)] == first
    assert len(set(paid)) == len(paid)
    files = client_files(name, *fleet.all_buffers)
    assert files["partition-1"]["admitted"] == len(paid)
    assert discrepancies(run, files) == []
