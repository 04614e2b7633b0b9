"""experiments/limit: what money buys at most, and the steps between its rows, on small data."""

import itertools
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
from experiment_scripts import FOLDER, load
from small_data import write_small

from experiments.tool.config import ExperimentConfig

ROUNDS = 3
POLICIES = (
    {"name": "constant_admission"},
    {"name": "tide"},
    {"name": "tide", "ranking": "margin", "candidates": 6, "backlog": 8},
    {"name": "costless_oracle"},
)


@pytest.fixture
def limit(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    return load(FOLDER / "limit" / "limit.py", monkeypatch)


@pytest.mark.parametrize("most", [2, 3, np.inf])
def test_no_other_purchase_has_more_samples(limit: ModuleType, most: float) -> None:
    draw = np.random.default_rng(0)
    for _ in range(20):
        prices, money = draw.uniform(1, 10, 3), draw.uniform(5, 15)
        choices = itertools.product(range(int(min(most, money)) + 1), repeat=len(prices))
        affordable = [sum(bought) for bought in choices if np.dot(bought, prices) <= money]
        assert limit.most_samples(prices, money, most) == max(affordable)


@pytest.mark.long
def test_each_row_takes_one_limit_away(limit: ModuleType, tmp_path: Path) -> None:
    write_small(tmp_path / "small")
    experiment = ExperimentConfig.model_validate(
        {
            "title": "small",
            "data": str(tmp_path / "small"),
            "model": "logistic",
            "learning_rate": 0.1,
            "local_steps": 3,
            "capacities": (30, 40),
            "partition": "iid",
            "budget": 60.0,
            "rounds": ROUNDS,
            "policies": POLICIES,
        }
    )
    found = limit.measured(experiment, 0)
    assert {*found, "all samples"} == {*limit.VARIANTS}
    for name in ("Tide", "Tide by margin"):  # three rounds have not filled memory
        assert 0 < found[name].samples < sum(experiment.capacities)
        assert found[f"{name}, all kept"].best == pytest.approx(found[name].best)
    kept, ended = (found[f"Tide by margin, {how}"] for how in ("all kept", "trained to the end"))
    assert kept.samples == ended.samples
    for how in ("at random", "by margin"):
        cheap, cheapest = found[f"cheapest rounds, {how}"], found[f"lowest price, {how}"]
        assert found["Tide"].samples <= cheap.samples <= cheapest.samples
    whole = limit.ceiling(experiment)
    assert whole.samples == 900
    assert whole.best >= 90  # four classes that are easy to tell apart
    table = [limit.row(*row, [{**found, "all samples": whole}]) for row in limit.VARIANTS.items()]
    told = {row["variant"]: row for row in table}
    step = float(told["Tide"]["best_accuracy"]) - float(told["constant admission"]["best_accuracy"])
    assert float(told["Tide"]["step"]) == pytest.approx(step, abs=0.011)
