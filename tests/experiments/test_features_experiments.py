"""The experiments with frozen features, in small: features of pictures made here, a few rounds."""

from pathlib import Path

import numpy as np
import pytest
from datasets import ClassLabel, Dataset, DatasetDict, Features, Image
from one_process import in_one_process

from experiments.tool.comparison import Comparison
from experiments.tool.config import ExperimentConfig
from experiments.tool.features import FEWEST_HELD_OUT, with_features
from experiments.tool.results import read_results
from experiments.tool.runner import about, plan_runs, run_experiment

pytestmark = pytest.mark.long

FOLDER = Path(__file__).parents[2] / "experiments"
CONFIGS = sorted(FOLDER.glob("*-features/*.toml"))
IMAGES = 3000
ROUNDS = 6


@pytest.fixture(scope="module")
def features(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Ten classes of 12x12 pictures: stripes, each class in a direction and colour of its own."""
    draw = np.random.default_rng(0)
    down, across = np.mgrid[:12, :12]

    def rows(count: int) -> Dataset:
        labels = np.arange(count) % 10
        angles = np.pi * labels / 10
        waves = np.sin(
            np.cos(angles)[:, None, None] * down
            + np.sin(angles)[:, None, None] * across
            + draw.uniform(0, 2 * np.pi, (count, 1, 1))
        )
        pixels = 128 + 60 * waves[..., None] + draw.normal(0, 25, (count, 12, 12, 3))
        names = Features({"image": Image(), "label": ClassLabel(names=list("abcdefghij"))})
        images = list(pixels.clip(0, 255).astype(np.uint8))
        return Dataset.from_dict({"image": images, "label": labels}, features=names)

    folder = tmp_path_factory.mktemp("data") / "stripes-features"
    made = with_features(DatasetDict({"train": rows(IMAGES), "test": rows(200)}))
    assert len(made["train"]) == IMAGES - max(IMAGES // 25, FEWEST_HELD_OUT)
    made.save_to_disk(str(folder))
    return str(folder)


@pytest.mark.parametrize("file", CONFIGS, ids=lambda file: f"{file.parent.name}/{file.stem}")
def test_an_experiment_with_features_learns_in_small(
    file: Path, features: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    in_one_process(monkeypatch)
    changes = {"data": features, "rounds": ROUNDS, "seeds": 1, "judge_every": 1}
    policies = [
        choice.model_copy(update={"match_spending": False})  # six rounds leave no such budget
        for choice in ExperimentConfig.read(file).policies
    ]
    experiment = ExperimentConfig.read(file, changes | {"policies": policies})
    runs = plan_runs(experiment, tmp_path)
    run_experiment(runs, workers=1, engine="counts")
    about(experiment, runs).write(tmp_path)
    told, found = read_results(tmp_path)
    assert list(found) == [choice.label for choice in experiment.policies]
    for row in Comparison(found, told).rows():
        assert float(str(row["best_accuracy"])) > 30, row["policy"]  # chance has 10
        assert row["ran_dry"] == 0


def test_there_are_experiments_with_features() -> None:
    assert [file.parent.name for file in CONFIGS].count("imagenette-features") == 3
    assert "cifar10-features" in {file.parent.name for file in CONFIGS}
