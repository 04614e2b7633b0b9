"""``tidegate optimum``: what is possible at all."""

import json
from pathlib import Path

import pytest

from tidegate.cli import main

KEYS = {
    "effective_per_round",
    "distinct_per_round",
    "spent_per_round",
    "multiplier",
    "thresholds",
    "duality_gap",
}


def optimum(capsys: pytest.CaptureFixture[str], arguments: str) -> str:
    with pytest.raises(SystemExit) as stopped:
        main(["optimum", *arguments.split()])
    assert not stopped.value.code
    return capsys.readouterr().out


def test_the_papers_mnist_setting_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    told = json.loads(optimum(capsys, "--json"))
    assert set(told) >= KEYS
    assert told["effective_per_round"] == pytest.approx(18.64, abs=5e-3)
    assert told["spent_per_round"] == pytest.approx(55.0)
    assert told["thresholds"][0] == pytest.approx(1.21, abs=5e-3)
    assert told["duality_gap"] < 1e-6
    assert told["setting"]["total_capacity"] == 100


@pytest.mark.parametrize("arguments", ["", "--budget 65 --price markov:2,9,0.9,0.8"])
def test_the_examples_of_the_help_work(capsys: pytest.CaptureFixture[str], arguments: str) -> None:
    printed = optimum(capsys, arguments)
    assert "effective samples a round" in printed
    assert "Shadow price of the budget" in printed


def test_the_limit_is_that_of_the_slots_that_a_round_reaches(
    capsys: pytest.CaptureFixture[str],
) -> None:
    flags = "--capacities 10x100 --budget 55 --fraction-train 0.1 --json"
    told = json.loads(optimum(capsys, flags))
    assert told["effective_per_round"] == pytest.approx(18.64, abs=5e-3)
    with pytest.raises(SystemExit):
        main(["plan", *flags.split(), "--rounds", "5", "--seeds", "1", "--policy", "tide"])
    assert json.loads(capsys.readouterr().out)["possible"]["limit"] == told["effective_per_round"]


def test_a_budget_that_does_not_bind_fills_every_slot(capsys: pytest.CaptureFixture[str]) -> None:
    told = json.loads(optimum(capsys, "--budget 9999 --json"))
    assert told["effective_per_round"] == 100.0
    assert told["multiplier"] == 0.0


def test_a_budget_that_is_too_small_is_refused_before_any_rule_is_looked_for(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def never(*_: object) -> None:
        raise AssertionError("a rule was looked for")

    monkeypatch.setattr("tidegate.theory.optimum.plan_slots", never)
    with pytest.raises(SystemExit) as stopped:
        main(["optimum", "--budget", "0.001"])
    assert stopped.value.code == 2
    assert "raise the budget to at least 0.010680" in capsys.readouterr().err


def test_a_number_is_a_price(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    in_words = optimum(capsys, "--price constant:5 --json")
    in_toml = tmp_path / "problem.toml"
    in_toml.write_text("price = 5\n", "utf-8")
    for arguments in ("--price 5", f"--problem {in_toml}"):
        told = json.loads(optimum(capsys, f"{arguments} --json"))
        assert told["thresholds"] == json.loads(in_words)["thresholds"]
