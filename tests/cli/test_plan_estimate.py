"""``tidegate plan --estimate``: constants of the bound from a run whose server measured them."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from flwr.app import ArrayRecord, Context, MetricRecord
from flwr.serverapp.strategy import FedAvg
from gated_apps import MODEL, dataset, gated_app

from tidegate._internal.arrays import FloatArray
from tidegate.cli import main
from tidegate.flower import AdmissionControl, LocalGrid
from tidegate.theory.estimates import ModelEstimates

POINTS, TARGETS = (
    np.array(column)
    for column in zip(*dataset(Context(0, 0, {"partition-id": 0}, {}, {})), strict=True)  # type: ignore[arg-type]
)
INPUTS = np.column_stack([POINTS, np.ones(len(POINTS))])


def plan(capsys: pytest.CaptureFixture[str], flags: str) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as stopped:
        main(["plan", "--rounds", "20", "--seeds", "1", "--policy", "acdpp", *flags.split()])
    printed, error = capsys.readouterr()
    return int(stopped.value.code or 0), printed, " ".join(error.split())


def run(folder: Path, measures: Any) -> list[FloatArray]:
    """Play some rounds; the models that the server evaluated."""
    models: list[FloatArray] = []

    def evaluate(server_round: int, arrays: ArrayRecord) -> MetricRecord:
        models.append(np.concatenate(arrays.to_numpy_ndarrays()))
        return MetricRecord(measures(models))

    control = AdmissionControl(
        FedAvg(fraction_evaluate=0.0), "tide", budget=9.0, prices=1.0, folder=folder
    )
    grid = LocalGrid(gated_app(), [{"partition-id": number} for number in range(2)])
    control.start(grid, MODEL, num_rounds=4, evaluate_fn=evaluate)
    return models


def gradients_at(model: FloatArray) -> FloatArray:
    """Of half the squared error of each sample."""
    slopes: FloatArray = (INPUTS @ model - TARGETS)[:, None] * INPUTS
    return slopes


def estimates(models: list[FloatArray]) -> dict[str, float]:
    gradients, distance = gradients_at(models[-1]), float(np.linalg.norm(models[-1] - models[0]))
    losses = (INPUTS @ models[-1] - TARGETS) ** 2 / 2
    return vars(ModelEstimates.of(distance, (gradients**2).sum(1), gradients.mean(axis=0), losses))


def test_a_plan_takes_the_largest_that_a_run_measured(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    models = run(tmp_path / "run", estimates)
    assert len(models) == 5  # also before the first round
    code, printed, error = plan(capsys, f"--estimate {tmp_path / 'run'} --json")
    assert code == 0, error
    problem = json.loads(printed)["problem"]
    spreads = [gradients_at(model) - gradients_at(model).mean(axis=0) for model in models]
    noise = max(float(np.sqrt((spread**2).sum(axis=1).mean())) for spread in spreads)
    assert problem["gradient_noise"] == pytest.approx(noise)
    worst = max(float(np.max((INPUTS @ model - TARGETS) ** 2)) for model in models) / 2
    assert problem["loss_bound"] == pytest.approx(worst)
    reach = max(float(np.linalg.norm(model - models[0])) for model in models)
    assert problem["domain_diameter"] == pytest.approx(2 * reach)
    flags = (
        f"--domain-diameter {problem['domain_diameter']} --loss-bound {problem['loss_bound']} "
        f"--gradient-noise {problem['gradient_noise']}"
    )
    assert plan(capsys, f"{flags} --json")[1] == printed
    assert f"D = {2 * reach:.4g}, sigma = {noise:.4g} and B = {worst:.4g} of the bound are" in (
        " ".join(plan(capsys, f"--estimate {tmp_path / 'run'}")[1].split())
    )


def test_what_a_run_does_not_hold_is_named(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    run(tmp_path / "run", lambda models: {"distance": 1.0, "largest_loss": 2.0})
    code, _, error = plan(capsys, f"--estimate {tmp_path / 'run'}")
    assert code == 2
    assert "has no gradient_noise, gradient_bound among the metrics of its server; let" in error
    code, _, error = plan(capsys, f"--estimate {tmp_path}")
    assert code == 2
    assert "holds no run" in error


def test_a_run_that_diverged_is_refused(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    def diverged(models: list[FloatArray]) -> dict[str, float]:
        return estimates(models) | ({"largest_loss": float("nan")} if len(models) == 3 else {})

    run(tmp_path / "run", diverged)
    code, _, error = plan(capsys, f"--estimate {tmp_path / 'run'}")
    assert code == 2
    assert "largest_loss of round 2 of" in error
    assert "is not finite, because its model diverged" in error
