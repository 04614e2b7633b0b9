"""The scripts under experiments/: a part of each table, computed again."""

from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
from check_size import at_size
from csv_rows import read
from experiment_scripts import FOLDER, load
from real_data import DATA, needs_mnist

from experiments.tool.prepare import SOURCES

NEAR = {"gap_closed": 0.05, "gain": 0.1, "step": 0.2, "accuracy": 0.1, "excess_risk": 0.01}
"""What a few predictions that fall the other way change, by a part of a column's name."""
TEXTS = ("policy", "variant", "compared_with")


def script(name: str, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The script of an experiment that has the experiment's name."""
    return load(FOLDER / name / f"{name}.py", monkeypatch)


@pytest.fixture(scope="module")
def mnist(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("data") / "mnist"
    SOURCES["mnist"](DATA, None).save_to_disk(folder)
    return str(folder)


@pytest.mark.long
def test_sensitivity(monkeypatch: pytest.MonkeyPatch) -> None:
    measured = script("sensitivity", monkeypatch).measured
    rows = read(FOLDER / "sensitivity" / "expected.csv")
    chosen = [("penalty_weight", 10.0), ("retention_horizon", 20.0), ("target_admission", 20.0)]
    chosen = chosen[: at_size(1, 3)]
    for row in rows:
        case = row["constant"], float(row["value"])
        if case not in chosen:
            continue
        found = [measured((*case, seed, 1000)) for seed in range(10)]
        for name in ("effective_per_round", "spent_per_round", "mean_stored", "peak_stored"):
            assert float(row[name]) == pytest.approx(
                np.mean([one[name] for one in found]), rel=1e-4
            )
    assert len([row for row in rows if (row["constant"], float(row["value"])) in chosen]) == len(
        chosen
    )


@pytest.mark.process
@pytest.mark.full
@needs_mnist
@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("bound", {"rounds": 3, "seeds": 1, "steps": 20}),
        ("gap", {"rounds": 5, "seeds": 1, "workers": 2}),
    ],
)
def test_a_small_version_gives_the_small_table(
    name: str,
    options: dict[str, int],
    mnist: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    script(name, monkeypatch).main(mnist, tmp_path, **options)
    check_table(tmp_path / "expected.csv", FOLDER / name / "small.csv")


@pytest.mark.process
@pytest.mark.full
@needs_mnist
def test_a_small_limit_gives_the_small_table(
    mnist: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script("limit", monkeypatch).main("mnist", tmp_path, data=mnist, rounds=5, seeds=1, workers=1)
    check_table(tmp_path / "expected-mnist.csv", FOLDER / "limit" / "small.csv")


def check_table(found: Path, wanted: Path) -> None:
    mine, theirs = read(found), read(wanted)
    assert len(mine) == len(theirs)
    for row, expected in zip(mine, theirs, strict=True):
        for column, value in expected.items():
            if column in TEXTS or not value:
                assert row[column] == value
            elif column != "constants":
                near = next((found for end, found in NEAR.items() if end in column), 0.0)
                expected_value = pytest.approx(float(value), abs=near, rel=0.02)
                assert float(row[column]) == expected_value, column
