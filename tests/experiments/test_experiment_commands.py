"""``python -m experiments``: its commands ``data``, ``run`` and ``compare``."""

import json
from pathlib import Path

import numpy as np
import pytest
from check_size import SIZE
from datasets import ClassLabel, Dataset, DatasetDict, Features, Image
from made_results import make_results
from one_process import in_one_process
from real_data import DATA, needs_mnist

from experiments.tool.commands import main
from experiments.tool.config import ExperimentConfig

ROOT = Path(__file__).parents[2]


def experiments(capsys: pytest.CaptureFixture[str], *arguments: object) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as stopped:
        main([str(one) for one in arguments])
    printed, error = capsys.readouterr()
    return int(stopped.value.code or 0), printed, error


EXPERIMENT = """
title = "small"
data = "small"
model = "logistic"
learning_rate = 0.1
local_steps = 2
capacities = [5, 5]
budget = 11.0
partition = "iid"
rounds = 3
seeds = 1
[[policies]]
name = "constant_admission"
[[policies]]
name = "tide"
"""


@pytest.mark.share(120)  # a process that loads torch
@pytest.mark.process
def test_an_experiment_is_run_resumed_and_compared(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    images = np.random.default_rng(0).integers(0, 255, (80, 4, 4)).astype(np.uint8)
    features = Features({"image": Image(), "label": ClassLabel(names=["a", "b"])})
    rows = Dataset.from_dict({"image": list(images), "label": np.arange(80) % 2}, features=features)
    DatasetDict({"train": rows, "test": rows}).save_to_disk("small")
    Path("mine.toml").write_text(EXPERIMENT)
    code, printed, error = experiments(capsys, "run", "mine.toml", "--workers", 1)
    assert code == 0, error
    assert (
        "2 runs done, 0 were finished before; next: python -m experiments compare runs/mine"
        in printed
    )
    code, printed, _ = experiments(capsys, "run", "mine.toml")
    assert "0 runs done, 2 were finished before" in printed
    if SIZE != "full":  # one run of the command with a process of its own is enough
        in_one_process(monkeypatch)
    code, printed, _ = experiments(
        capsys, "run", "mine.toml", "--set", "learning_rate=0.2", "--out", "other"
    )
    assert "2 runs done" in printed
    code, _, error = experiments(capsys, "run", "mine.toml", "--set", "learning_rate=0.2")
    assert code == 2
    assert "holds a finished run with learning_rate = 0.1, but this one has 0.2; give" in error
    wanted = "run", "mine.toml", "--set", "seeds=2", "--set", "budget=1000.0", "--out", "rich"
    _, _, error = experiments(capsys, *wanted)
    assert "note: the budget, 1000 a round, pays for fresh samples in all 10 slots" in error
    assert "tide, seed 1: 3 rounds" in error  # no bar in a log, but a line for each run
    (Path("rich") / "tide" / "seed-1" / "rounds.jsonl").unlink()
    _, _, error = experiments(capsys, "compare", "rich")
    assert "1 of 4 runs are not finished" in error
    code, printed, error = experiments(capsys, "compare", "runs/mine", "--out", "figures")
    assert code == 0, error
    assert "constant_admission" in printed
    assert {path.name for path in Path("figures").iterdir()} == {
        "summary.csv", "rounds.csv", "accuracy.png", "resources.png",
    }  # fmt: skip


def test_a_comparison_for_machines(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    make_results(tmp_path, {"tide": [[0.2, 0.8]], "acdpp": [[0.3, 0.6]]})
    code, printed, _ = experiments(capsys, "compare", tmp_path, "--target", 0.7, "--json")
    assert code == 0
    told = json.loads(printed)
    assert (told["baseline"], told["limit"]) == ("tide", 20.0)
    _, printed, _ = experiments(capsys, "compare", tmp_path, "--against", "acdpp", "--json")
    other = json.loads(printed)
    assert other["baseline"] == "acdpp"
    assert other["policies"][0]["best_accuracy_gain"] == pytest.approx(20.0)
    code, _, error = experiments(capsys, "compare", tmp_path, "--against", "acdp")
    assert code == 2
    assert "has no finished run of 'acdp'; did you mean acdpp?" in " ".join(error.split())
    assert [row["reached_70"] for row in told["policies"]] == [1, 0]


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("data", "mnst"), "unknown data set 'mnst'; choose from mnist, fashion_mnist, cifar10"),
        (("data", "mnist", "--from", "nowhere"), "nowhere is not a folder"),
        (("data", "electricity", "--from", "."), "found no elec.csv.xz in"),
        (
            ("compare", "."),
            "has no finished run; start some with `python -m experiments run FILE.toml`",
        ),
        (("run", "nowhere.toml"), "nowhere.toml"),
        (("compare", ".", "--target", "85"), "85.0 is not in the range 0<=x<=1"),
        (("run", "bad.toml"), "bad.toml is not TOML"),
        (
            ("run", "mine.toml", "--set", "price=trace:prices.csv:eur"),
            "has 2 prices, but seed 0 needs",
        ),
    ],
)
def test_mistakes_are_named_in_one_line(
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    arguments: tuple[str, ...],
    told: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("bad.toml").write_text("budget = = 3")
    Path("mine.toml").write_text(EXPERIMENT)
    Path("prices.csv").write_text("eur\n1.5\n2.5\n")
    code, _, error = experiments(capsys, *arguments)
    assert code != 0
    assert told in " ".join(error.split())
    assert "Traceback" not in error


@pytest.mark.full
@needs_mnist
def test_the_real_mnist_is_made(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    code, printed, error = experiments(capsys, "data", "mnist", "--from", DATA, "--to", tmp_path)
    assert code == 0, error
    assert "60,000 train, 10,000 test" in printed


@pytest.mark.parametrize(
    "file",
    sorted((ROOT / "experiments").glob("*/*.toml")),
    ids=lambda file: f"{file.parent.name}/{file.stem}",
)
def test_every_published_experiment_can_be_read(file: Path) -> None:
    policies = ExperimentConfig.read(file).policies
    compared = {choice.name for choice in policies} | {choice.ranking for choice in policies}
    assert compared & {"tide", "acdpp"}
    assert compared & {"constant_admission", "margin"}
