"""``tidegate plan --as-in-paper``: the paper's game, and its guarantees beside what is measured."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
from check_size import at_size

from tidegate.cli import main

THEORY = (Path(__file__).parents[2] / "docs" / "theory.md").read_text("utf-8")
ONE_CLIENT = "--capacities 100 --budget 55 --policy acdpp"


def plan(capsys: pytest.CaptureFixture[str], flags: str) -> str:
    with pytest.raises(SystemExit) as stopped:
        main(["plan", "--as-in-paper", *flags.split()])
    printed, error = capsys.readouterr()
    assert not stopped.value.code, error
    return printed


def row(capsys: pytest.CaptureFixture[str], flags: str) -> dict[str, Any]:
    values: dict[str, Any] = json.loads(plan(capsys, f"{flags} --json"))
    return values


def test_every_repaired_bound_is_above_what_is_measured(
    capsys: pytest.CaptureFixture[str],
) -> None:
    guarantees = row(capsys, "--rounds 100 --seeds 3")["guarantees"]
    assert len(guarantees) == 5
    for quantity in guarantees.values():
        assert quantity["measured"] < quantity["repaired"] <= quantity["printed"]


def test_exponents_and_the_retention_horizon_change_the_bounds(
    capsys: pytest.CaptureFixture[str],
) -> None:
    flags = "--rounds 60 --seeds 2 --policy acdpp"
    regrets = {
        row(capsys, f"{flags} {change}")["guarantees"]["regret"]["repaired"]
        for change in ("", "--gamma 0.3", "--phi 0.3", "--retention-horizon 4")
    }
    assert len(regrets) == 4


def test_limits_of_the_problem_do_not_count_in_the_papers_game(
    capsys: pytest.CaptureFixture[str],
) -> None:
    flags = "--rounds 60 --seeds 2 --policy acdpp"
    limited = row(capsys, f"{flags} --spend-ahead 0 --hard-capacity")
    assert limited == row(capsys, flags)
    assert limited["problem"]["spend_ahead"] is None
    (acdpp,) = limited["policies"]
    assert acdpp["peak_overflow"] > 0


def test_the_table_says_how_loose_the_bounds_are(capsys: pytest.CaptureFixture[str]) -> None:
    printed = plan(capsys, f"{ONE_CLIENT} --rounds 100")
    assert "Guarantees for ACDPP after 100 rounds" in printed
    assert re.search(r"regret +4,465,811 +81,140 +399 ±5", printed)
    assert "203 times the measured regret and 9.51 times the measured cost violation" in printed
    assert "The printed bound on the cost violation exceeds the whole budget, 5,500." in printed


@pytest.mark.no_cover
@pytest.mark.long
@pytest.mark.parametrize("rounds", at_size([100, 1000], [100, 1000, 10_000]))
def test_the_table_of_the_theory_page(capsys: pytest.CaptureFixture[str], rounds: int) -> None:
    guarantees = row(capsys, f"{ONE_CLIENT} --rounds {rounds}")["guarantees"]
    for name in ("regret", "cost_violation"):
        quantity = guarantees[name]
        low, high = quantity["interval"]
        cells = f"{quantity['printed']:,.0f} | {quantity['repaired']:,.0f}"
        measured = f"{quantity['measured']:,.0f} ± {(high - low) / 2:,.0f}"
        assert f"| {rounds:,} | {name.replace('_', ' ')} | {cells} | {measured} |" in THEORY


@pytest.mark.parametrize(
    ("flags", "condition"),
    [
        ("--policy tide", "ACDPP is among the policies"),
        ("--policy acdpp --price markov:1,10,0.9,0.9", "prices are independent"),
        ("--policy acdpp --price-per-client", "there is one price for all"),
        ("--policy acdpp --fraction-train 0.5", "all clients take part in every round"),
        ("--policy acdpp --delay 3", "samples arrive at once"),
        ("--policy acdpp --preset released_settings", "the preset is as_printed"),
    ],
)
def test_where_the_guarantees_do_not_hold_the_plan_says_why(
    capsys: pytest.CaptureFixture[str], flags: str, condition: str
) -> None:
    printed = plan(capsys, f"--rounds 20 --seeds 1 {flags}")
    assert f"No guarantees: they hold if {condition}" in " ".join(printed.split())
    assert "Guarantees for ACDPP" not in printed
