"""--gamma and --phi are arguments of the policies that have them."""

import json
from typing import Any

import pytest

from tidegate import EXPERIMENTS, simulate, try_horizons
from tidegate.cli import main
from tidegate.cli.setting import Setting
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


def test_each_policy_gets_the_exponents_that_it_has() -> None:
    setting = Setting.resolve("mnist", None, {"gamma": 0.9, "phi": 0.2})
    both = {"penalty_exponent": 0.9, "contraction_exponent": 0.2}
    assert setting.constants("acdpp") == both
    assert setting.constants("drift_plus_penalty") == {"penalty_exponent": 0.9}
    assert setting.constants("tide") == {}


def test_the_offline_choice_of_k_has_them_too(capsys: pytest.CaptureFixture[str]) -> None:
    flags = ["plan", "--as-in-paper", "--offline", "--policy", "acdpp", "--seeds", "1"]
    candidates = told(flags, capsys)["offline"]["candidates"]
    tried = try_horizons(
        PROBLEM,
        EXPERIMENTS["mnist"].price,
        horizons=range(1, len(candidates) + 1),
        penalty_exponent=0.9,
        contraction_exponent=0.2,
    )
    bounds = [one.bound_per_round for one in tried]
    assert [one["bound_per_round"] for one in candidates] == pytest.approx(bounds)
