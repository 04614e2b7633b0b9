"""The published tables of experiments: what was spent and stored, again; and a small run, again."""

from pathlib import Path

import numpy as np
import pytest
from csv_rows import read
from real_data import DATA, needs_mnist

from tidegate.experiments.config import Experiment
from tidegate.experiments.prepare import SOURCES
from tidegate.experiments.results import read_results
from tidegate.experiments.runner import about, matched_budget, plan_runs, run_experiment
from tidegate.report.comparison import Comparison
from tidegate.simulation import simulate

FOLDER = Path(__file__).parents[2] / "experiments"
PUBLISHED = sorted(file.parent.name for file in FOLDER.glob("*/config.toml"))
SMALL = {
    "rounds": 4,
    "seeds": 1,
    "test_inputs": 500,
    "judge_every": 1,
    "policies": [
        {"name": "constant_admission"},
        {"name": "acdpp", "headroom": 4},
        {"name": "tide"},
    ],
}


@pytest.mark.parametrize("name", PUBLISHED)
def test_money_and_memory_are_as_published(name: str) -> None:
    """Admissions do not depend on what is learned, so counts alone can tell."""
    experiment = Experiment.read(FOLDER / name / "config.toml")
    published = {row["policy"]: row for row in read(FOLDER / name / "expected.csv")}
    assert list(published) == [choice.label for choice in experiment.policies]
    for choice in experiment.policies:
        budget = matched_budget(experiment, choice)
        row = published[choice.label]
        assert float(row["budget"]) == pytest.approx(budget)
        found: dict[str, list[float]] = {}
        for seed in experiment.all_seeds:
            problem = experiment.problem(seed, budget)
            columns = simulate(choice.make(problem), problem, experiment.prices(seed), seed).columns
            for column, value in (
                ("spent_per_round", columns["spent"].mean()),
                ("peak_stored", columns["training_size"].max()),
                ("effective_per_round", columns["effective_samples"][-1] / experiment.rounds),
            ):
                found.setdefault(column, []).append(float(value))
        for column, values in found.items():
            assert float(row[column]) == pytest.approx(np.mean(values), rel=1e-4), column


@needs_mnist
@pytest.mark.parametrize("name", PUBLISHED)
def test_a_small_run_learns_as_published(name: str, tmp_path: Path) -> None:
    SOURCES["mnist"](DATA, None).save_to_disk(tmp_path / "data")
    changes = {**SMALL, "data": str(tmp_path / "data")}
    experiment = Experiment.read(FOLDER / name / "config.toml", changes)
    runs = plan_runs(experiment, tmp_path / "runs")
    run_experiment(runs, workers=2)
    about(experiment, runs).write(tmp_path / "runs")
    told, results = read_results(tmp_path / "runs")
    small = {row["policy"]: row for row in read(FOLDER / name / "small.csv")}
    for row in Comparison(results, told).rows():
        expected = small[str(row["policy"])]
        for column in ("best_accuracy", "last_accuracy"):
            assert row[column] == pytest.approx(float(expected[column]), abs=1.0)
        assert row["last_loss"] == pytest.approx(float(expected["last_loss"]), rel=0.02)
