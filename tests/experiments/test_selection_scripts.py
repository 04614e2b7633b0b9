"""The tables and the picture of experiments/selection, from results that were never run."""

import sys
from pathlib import Path
from types import ModuleType

import pytest
from csv_rows import read
from experiment_scripts import FOLDER, load
from made_results import make_results

RESULTS = {
    "tide": [[0.5, 0.6, 0.7, 0.8], [0.4, 0.5, 0.6, 0.7]],
    "tide-margin": [[0.6, 0.8, 0.85, 0.9], [0.5, 0.6, 0.65, 0.7]],
    "tide-loss": [[0.1, 0.2, 0.3, 0.4], [0.1, 0.2, 0.3, 0.4]],
}


def run(module: ModuleType, monkeypatch: pytest.MonkeyPatch, *words: object) -> None:
    monkeypatch.setattr(sys, "argv", ["script", *map(str, words)])
    module.main()


def test_gains_are_paired_with_samples_as_they_come(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, out = make_results(tmp_path / "results", RESULTS), tmp_path / "table.csv"
    table = load(FOLDER / "selection" / "table.py", monkeypatch)
    run(table, monkeypatch, folder, "--out", out)
    found = {row["ranking"]: row for row in read(out)}
    assert found["random"]["best_accuracy"] == "75.00"
    assert found["random"]["gain_over_random"] == ""
    assert found["margin"]["gain_over_random"] == "5.00"  # 10 and 0 points
    assert found["loss"]["gain_over_random"] == "-35.00"
    assert {row["labels"] for row in found.values()} == {"40"}


def test_labels_are_counted_up_to_the_accuracy_of_samples_as_they_come(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, out = make_results(tmp_path / "results", RESULTS), tmp_path / "labels.csv"
    labels = load(FOLDER / "selection" / "labels.py", monkeypatch)
    run(labels, monkeypatch, folder, "--out", out)
    found = {row["ranking"]: row["labels_needed_percent"] for row in read(out)}
    assert found == {"margin": "75.0", "loss": "100.0"}  # half of them, and all


def test_the_picture_is_drawn_from_the_published_table(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    picture = load(FOLDER / "selection" / "picture.py", monkeypatch)
    table = FOLDER / "selection" / "expected.csv"
    run(picture, monkeypatch, table, tmp_path / "selection.png")
    assert (tmp_path / "selection.png").stat().st_size > 10_000
