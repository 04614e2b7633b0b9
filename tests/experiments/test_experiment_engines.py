"""An experiment's app on all three engines: the same admissions and the same model."""

import json
import multiprocessing
import tomllib
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from datasets import ClassLabel, Dataset, DatasetDict, Features, Image
from deployment import deployed

from tidegate.experiments.client_app import app as client_app
from tidegate.experiments.job import Job
from tidegate.experiments.on_ray import run_on_ray
from tidegate.experiments.results import ROWS
from tidegate.experiments.server_app import app as server_app
from tidegate.flower import run_in_process
from tidegate.flower.model_file import read_model

ROOT = Path(__file__).parents[2]
CLIENTS = 2


def config_in(folder: Path, data: Path) -> dict[str, Any]:
    return {
        "data": str(data),
        "model": "lenet",
        "partition": "iid",
        "rounds": 3,
        "clients": CLIENTS,
        "capacities": "6,8",
        "budget": 16.5,
        "local-steps": 3,
        "seed": 5,
        "run": "same",
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


def test_an_experiment_is_the_same_on_three_engines(tmp_path: Path) -> None:
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
    config = {**defaults, **config_in(here, data)}
    run_in_process(server_app, client_app, num_clients=CLIENTS, run_config=config)
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as other:
        config = {**defaults, **config_in(ray, data)}
        other.submit(run_on_ray, config, num_clients=CLIENTS).result()
    (tmp_path / "fleet").mkdir()
    with deployed(tmp_path / "fleet", CLIENTS) as fleet:
        config = config_in(real, data)
        del config["tidegate-folder"]  # each node's own configuration says it
        run_id = fleet.run(app, config)
        assert fleet.finished(run_id) == "finished:completed", fleet.log(run_id)

    expected = lines(here / "rows" / ROWS)
    assert [line["round_number"] for line in expected] == [1, 2, 3]
    assert sum(line["admitted"] for line in expected) > 0
    for folder in (ray, real):
        assert lines(folder / "run" / "rounds.jsonl") == lines(here / "run" / "rounds.jsonl")
        for mine, other_model in zip(model(folder / "run"), model(here / "run"), strict=True):
            np.testing.assert_allclose(mine, other_model, atol=1e-5)
        losses = [line["loss"] for line in lines(folder / "rows" / ROWS)]
        assert losses == pytest.approx([line["loss"] for line in expected])
