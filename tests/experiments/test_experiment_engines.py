"""An experiment's app on all three engines: the same admissions and the same model."""

import json
import multiprocessing
import tomllib
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any
from unittest.mock import create_autospec

import numpy as np
import pytest
from check_size import SIZE, at_size
from datasets import ClassLabel, Dataset, DatasetDict, Features, Image
from fleet import CLIENTS, Fleet
from flwr.clientapp import ClientApp
from flwr.serverapp import ServerApp
from flwr.simulation import run_simulation

from tidegate.experiments import on_ray
from tidegate.experiments.client_app import app as client_app
from tidegate.experiments.job import Job
from tidegate.experiments.results import ROWS
from tidegate.experiments.server_app import app as server_app
from tidegate.flower import run_in_process
from tidegate.flower.model_file import read_model

ROOT = Path(__file__).parents[2]
ROUNDS = at_size(1, 3)
RUN = "experiment"


def config_in(folder: Path, data: Path) -> dict[str, Any]:
    return {
        "data": str(data),
        "model": "lenet",
        "partition": "iid",
        "rounds": ROUNDS,
        "clients": CLIENTS,
        "capacities": "6,8,5",
        "budget": 16.5,
        "local-steps": 3,
        "seed": 5,
        "run": RUN,
        "results": str(folder / "rows"),
        "folder": str(folder / "run"),
        "tidegate-folder": str(folder / "buffers"),
    }


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def model(folder: Path) -> list[Any]:
    (path,) = folder.glob("model-*.npz")
    arrays, _ = read_model(path)
    return [array.numpy() for array in arrays.values()]


def play_on_ray(config: dict[str, Any]) -> None:
    """On Ray at full size; otherwise as on Ray, but with clients in this process."""
    if SIZE == "full":
        with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as other:
            other.submit(on_ray.run_on_ray, config, num_clients=CLIENTS).result()
        return

    def simulate(server: ServerApp, client: ClientApp, num_supernodes: int) -> None:
        run_in_process(server, client, num_clients=num_supernodes, run_config={})

    with pytest.MonkeyPatch.context() as patch:
        called = create_autospec(run_simulation, side_effect=simulate)
        patch.setattr(on_ray, "run_simulation", called)
        on_ray.run_on_ray(config, num_clients=CLIENTS)
        called.assert_called_once()


@pytest.mark.deployment
@pytest.mark.share(at_size(240, 600))  # each message loads torch in a new process
def test_an_experiment_is_the_same_on_three_engines(fleet: Fleet, tmp_path: Path) -> None:
    draw = np.random.default_rng(0)
    pixels, labels = draw.integers(0, 255, (300, 28, 28)).astype(np.uint8), np.arange(300) % 10
    features = Features({"image": Image(), "label": ClassLabel(names=list("0123456789"))})
    samples = Dataset.from_dict({"image": list(pixels), "label": labels}, features=features)
    data = tmp_path / "data"
    DatasetDict({"train": samples, "test": samples.select(range(50))}).save_to_disk(data)
    app = ROOT / "examples" / "experiment"
    settings = tomllib.loads((app / "pyproject.toml").read_text())
    defaults = settings["tool"]["flwr"]["app"]["config"]
    own = dict.fromkeys(("run", "folder", "tidegate-folder"), "")
    assert {**Job().to_config(), **own, "data": "mnist"} == defaults

    here, ray, real = (tmp_path / name for name in ("here", "ray", "real"))
    config = config_in(real, data)
    del config["tidegate-folder"]  # each node's own configuration says it
    run_id = fleet.run(app, config)  # mostly waits, while the others compute
    config = {**defaults, **config_in(here, data)}
    run_in_process(server_app, client_app, num_clients=CLIENTS, run_config=config)
    play_on_ray({**defaults, **config_in(ray, data)})
    assert fleet.finished(run_id) == "finished:completed", fleet.log(run_id)

    expected = lines(here / "rows" / ROWS)
    assert [line["round_number"] for line in expected] == [*range(1, ROUNDS + 1)]
    assert sum(line["admitted"] for line in expected) > 0
    for folder in (ray, real):
        assert lines(folder / "run" / "rounds.jsonl") == lines(here / "run" / "rounds.jsonl")
        for mine, other_model in zip(model(folder / "run"), model(here / "run"), strict=True):
            np.testing.assert_allclose(mine, other_model, atol=1e-5)
        losses = [line["loss"] for line in lines(folder / "rows" / ROWS)]
        assert losses == pytest.approx([line["loss"] for line in expected])
