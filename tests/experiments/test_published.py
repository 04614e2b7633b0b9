"""The published tables of experiments: what was spent and stored, again; and a small run, again."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from check_size import SIZE
from csv_rows import read
from one_process import in_one_process
from real_data import DATA, missing

from experiments.tool.commands import main
from experiments.tool.comparison import Comparison
from experiments.tool.config import ExperimentConfig
from experiments.tool.results import read_results
from experiments.tool.runner import about, matched_budget, plan_runs, run_experiment
from tidegate.problem import Problem
from tidegate.simulation.rounds import simulate

pytestmark = [
    pytest.mark.no_cover,  # long loops, covered elsewhere
    pytest.mark.xdist_group("test_published"),  # they share data sets that are made once
]

FOLDER = Path(__file__).parents[2] / "experiments"
PUBLISHED = sorted(file.parent.name for file in FOLDER.glob("*/config.toml"))
FEATURES = ("cifar10-features", "imagenette-features")
LONG_TO_COUNT = (*FEATURES, "mnist-lenet", "mnist-logistic", "mnist-long")
"""A hundred rounds and more on ten seeds and more."""
LONG_TO_LEARN = ("cifar10", "imagenette", *LONG_TO_COUNT)
"""They learn, or make their data sets, for minutes."""
K_PLANNED_ANEW = {
    "hapt-electricity": ("constant_admission", "hybrid", "acdpp"),
    "imagenette": ("constant_admission", "hybrid"),
}
"""Policies whose published runs were made when K was planned for the fitted budget; they hold for
the budget that they name."""
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


@pytest.fixture(scope="session")
def workshop(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("workshop")


def make(name: str, *options: str) -> None:
    """A data set of the present folder, from its original files."""
    original = name.removesuffix("-features")
    if reason := missing(original):
        pytest.skip(reason)
    if name != original:
        options = (*options, "--features")
    made = {"electricity": "electricity.csv"}.get(name, name)
    if not (Path("data") / made).exists():
        with pytest.raises(SystemExit) as stopped:
            main(["data", original, "--from", str(DATA), *options])
        assert not stopped.value.code


def at_full_size(long: tuple[str, ...]) -> list[Any]:
    """All of them; those that take long at full size only."""
    return [pytest.param(one, marks=[pytest.mark.full] * (one in long)) for one in PUBLISHED]


@pytest.mark.data
@pytest.mark.parametrize("name", at_full_size(LONG_TO_COUNT))
def test_money_and_memory_are_as_published(
    name: str, workshop: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Admissions do not depend on what is learned, so counts alone can tell."""
    monkeypatch.chdir(workshop)
    experiment = ExperimentConfig.read(FOLDER / name / "config.toml")
    if "electricity" in experiment.price:
        make("electricity")
    published = {row["policy"]: row for row in read(FOLDER / name / "expected.csv")}
    assert list(published) == [choice.label for choice in experiment.policies]
    for choice in experiment.policies:
        row = published[choice.label]
        before = choice.label in K_PLANNED_ANEW.get(name, ())
        budget = float(row["budget"]) if before else matched_budget(experiment, choice)
        assert int(row["seeds"]) == experiment.seeds
        assert float(row["budget"]) == pytest.approx(budget)
        found: dict[str, list[float]] = {}
        for seed in experiment.all_seeds:
            problem = as_the_fleet_has_it(experiment.problem(seed, budget))
            horizon = None if before else choice.fixed_horizon(experiment.problem(seed))
            policy = choice.make(problem, horizon)
            columns = simulate(policy, problem, experiment.prices(seed), seed).columns
            for column, value in (
                ("spent_per_round", columns["spent"].mean()),
                ("peak_stored", columns["training_size"].max()),
                ("effective_per_round", columns["effective_samples"][-1] / experiment.rounds),
            ):
                found.setdefault(column, []).append(float(value))
        # Tide's thresholds are prices that it has seen: where the present one is among them, the
        # last bit of a sum of money, which a fleet adds up client by client, can decide a round.
        near = 5e-3 if choice.name == "tide" else 1e-4
        for column, values in found.items():
            assert float(row[column]) == pytest.approx(np.mean(values), rel=near), column


def as_the_fleet_has_it(problem: Problem) -> Problem:
    """Clients in the order of their names, in which partition-10 comes before partition-2."""
    capacities = problem.buffer_capacities
    order = sorted(range(len(capacities)), key=lambda number: f"partition-{number}")
    return replace(problem, buffer_capacities=tuple(capacities[number] for number in order))


@pytest.mark.data
@pytest.mark.process
@pytest.mark.parametrize("name", at_full_size(LONG_TO_LEARN))
def test_a_small_run_learns_as_published(
    name: str, workshop: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if SIZE != "full":
        in_one_process(monkeypatch)
    monkeypatch.chdir(workshop)
    experiment = ExperimentConfig.read(FOLDER / name / "config.toml", SMALL)
    make(Path(experiment.data).name, *(["--size", "32"] if "imagenette" in name else []))
    if "electricity" in experiment.price:
        make("electricity")
    results = workshop / "runs" / name
    runs = plan_runs(experiment, results)
    run_experiment(runs, workers=2)
    about(experiment, runs).write(results)
    told, found = read_results(results)
    small = {row["policy"]: row for row in read(FOLDER / name / "small.csv")}
    assert len(small) == len(SMALL["policies"])  # type: ignore[arg-type]
    for row in Comparison(found, told).rows():
        expected = small[str(row["policy"])]
        for column in ("best_accuracy", "last_accuracy"):
            assert row[column] == pytest.approx(float(expected[column]), abs=1.0)
        assert row["last_loss"] == pytest.approx(float(expected["last_loss"]), rel=0.02)
