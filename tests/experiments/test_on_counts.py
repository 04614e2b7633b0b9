"""A linear model without a fleet: the rows of the Flower app, but for rounding."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from one_process import in_one_process
from small_data import write_small

from experiments.tool.config import ExperimentConfig
from experiments.tool.results import ROWS
from experiments.tool.runner import plan_runs, run_experiment

pytestmark = pytest.mark.long

POLICIES = (
    {"name": "costless_oracle"},
    {"name": "constant_admission", "match_spending": True},
    {"name": "hybrid"},
    {"name": "acdpp", "headroom": 4},
    {"name": "tide"},
    {"name": "tide", "ranking": "margin", "candidates": 6, "backlog": 8},
    {"name": "tide", "ranking": "random", "candidates": 3, "backlog": 0},
    {"name": "tide", "group": True},
    {"name": "tide", "ranking": "margin", "random_share": 0.5, "group": True},
)


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("data") / "small"
    write_small(folder)
    return str(folder)


def experiment(small: str, **changes: Any) -> ExperimentConfig:
    values: dict[str, Any] = {
        "title": "small",
        "data": small,
        "model": "logistic",
        "learning_rate": 0.1,
        "momentum": 0.5,
        "local_steps": 3,
        "capacities": (3, 4, 5, 6, 3, 4, 5, 6, 3, 4, 5),  # partition-10 comes before partition-2
        "partition": "iid",
        "budget": 26.0,
        "rounds": 6,
        "seeds": 1,
        "judge_every": 2,
        "policies": POLICIES,
        **changes,
    }
    return ExperimentConfig.model_validate(values)


def rows(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / ROWS).read_text("utf-8").splitlines()]


WEIGHTS = (1.0, 0.0, 2.5, 1.0, 1.0, 0.5, 1.0, 3.0, 1.0, 1.0, 4.0)


@pytest.mark.parametrize(
    "changes",
    [{}, {"pool": 7, "importance": WEIGHTS}, {"wrong_labels": 0.2, "long_tail": 2.0, "rounds": 4}],
)
def test_a_run_on_counts_is_the_run_of_the_app(
    small: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, changes: dict[str, Any]
) -> None:
    in_one_process(monkeypatch)
    here, counts = (
        plan_runs(experiment(small, **changes), tmp_path / engine) for engine in ("here", "counts")
    )
    assert run_experiment(here, workers=1) == len(POLICIES)
    assert run_experiment(counts, workers=1, engine="counts") == len(POLICIES)
    for app, fast in zip(here, counts, strict=True):
        assert app.config == fast.config
        expected, found = rows(app.folder), rows(fast.folder)
        assert [list(row) for row in found] == [list(row) for row in expected]
        for name in expected[0]:
            one, other = ([row[name] for row in part] for part in (found, expected))
            np.testing.assert_allclose(
                np.array(one, float), np.array(other, float), rtol=1e-4, atol=1e-9, err_msg=name
            )
        assert [row["accuracy"] is None for row in found] == [True, False] * (len(found) // 2)


def test_a_pool_is_read_again_in_another_order(small: str) -> None:
    """As in the released scripts; until all were read, it is the order without a pool."""
    plan = plan_runs(experiment(small, pool=7, policies=[{"name": "tide"}]), Path())
    once = plan_runs(experiment(small, policies=[{"name": "tide"}]), Path())
    order = plan[0].job.reading_order(2, 20).tolist()
    assert order[:7] == once[0].job.reading_order(2, 20).tolist()[:7]
    passes = [order[first : first + 7] for first in range(0, len(order), 7)]
    assert len(passes) > 3
    assert {tuple(sorted(one)) for one in passes} == {tuple(sorted(order[:7]))}
    assert len({tuple(one) for one in passes}) == len(passes)
