"""Replaying a run's prices: the same terms give the same run, others what they would have given."""

import json
from pathlib import Path
from typing import Any

import pytest
from recorded_run import BUDGET, ROUNDS, recorded_run

from tidegate.cli import main


def told(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    capsys.readouterr()
    with pytest.raises(SystemExit) as stopped:
        main(["whatif", *arguments, "--json"])
    out, error = capsys.readouterr()
    assert not stopped.value.code, error
    found: dict[str, Any] = json.loads(out)
    return found


@pytest.mark.parametrize("policy", ["tide", "acdpp", "constant_admission"])
def test_the_same_terms_give_the_same_run(
    policy: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    recorded_run(tmp_path, policy=policy)
    found = told([str(tmp_path), "--policy", policy], capsys)
    (again,) = found["replayed"]
    recorded = found["recorded"]
    assert recorded.pop("policy") == f"{again.pop('policy')}, recorded"
    assert again == pytest.approx(recorded)
    assert found["rounds"] == ROUNDS


def test_other_budgets_and_buffers_are_all_combinations(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    recorded_run(tmp_path)
    options = ["--budget", "11", "--budget", "44", "--memory", "1", "--memory", "2"]
    found = told([str(tmp_path), "--policy", "tide", *options], capsys)
    rows = [(row["budget"], row["slots"]) for row in found["replayed"]]
    assert rows == [(11, 38), (11, 76), (44, 38), (44, 76)]
    gains = [row["effective_per_round"] for row in found["replayed"]]
    assert gains[2] > gains[0]
    strict = told([str(tmp_path), "--policy", "tide", "--strict-spending"], capsys)
    assert strict["replayed"][0]["overspend"] <= 0


def test_a_run_that_is_under_way_is_replayed_as_far_as_it_is(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    recorded_run(tmp_path, until=4)
    found = told([str(tmp_path)], capsys)
    assert found["rounds"] == 5
    assert [row["policy"] for row in found["replayed"]] == ["tide", "constant_admission", "acdpp"]
    assert {row["budget"] for row in found["replayed"]} == {BUDGET}
    again, recorded = found["replayed"][0], found["recorded"]
    assert again.pop("policy") + ", recorded" == recorded.pop("policy")
    assert again == pytest.approx(recorded)  # planned for all rounds, as the run was


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        (["--policy", "tied"], "tide"),
        (["--budget", "-1"], "--budget must be a number above 0, got -1"),
        (["--budget", "inf"], "must be a number above 0"),
        (["--memory", "0"], "must be above 0"),
        (["--memory", "inf"], "no buffer may be larger than 100,000,000; got inf"),
        (["--memory", "1e30"], "no buffer may be larger than 100,000,000; got 1e+30"),
    ],
)
def test_what_cannot_be_is_refused_in_one_line(
    options: list[str], reason: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    recorded_run(tmp_path)
    with pytest.raises(SystemExit) as stopped:
        main(["whatif", str(tmp_path), *options])
    error = capsys.readouterr().err
    assert stopped.value.code == 2
    assert reason in error.splitlines()[-1]
    assert "Traceback" not in error
