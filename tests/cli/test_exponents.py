"""--gamma and --phi are arguments of the policies that have them."""

import json
from typing import Any

import pytest

from tidegate import EXPERIMENTS, simulate
from tidegate.cli import main
from tidegate.policies.acdpp import acdpp
from tidegate.policies.drift_plus_penalty import drift_plus_penalty

GIVEN = ["--rounds", "60", "--gamma", "0.9", "--phi", "0.2", "--json"]
PROBLEM = EXPERIMENTS["mnist"].problem(60)


def told(command: list[str], capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    with pytest.raises(SystemExit) as stopped:
        main([*command, *GIVEN])
    assert not stopped.value.code
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


@pytest.mark.parametrize(
    ("name", "policy"),
    [
        ("acdpp", acdpp(PROBLEM, penalty_exponent=0.9, contraction_exponent=0.2)),
        ("drift_plus_penalty", drift_plus_penalty(PROBLEM, penalty_exponent=0.9)),
    ],
)
def test_exponents_reach_the_policy(
    name: str, policy: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    (row,) = told(["simulate", "--as-in-paper", "--policy", name, "--seeds", "1"], capsys)[
        "policies"
    ]
    run = simulate(policy, PROBLEM, EXPERIMENTS["mnist"].price, seed=0)
    assert row["spent_per_round"] == pytest.approx(run.columns["spent"].mean())
