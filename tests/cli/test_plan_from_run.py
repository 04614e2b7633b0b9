"""Replaying a run's prices: the same terms give the same run, others what they would have given."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from recorded_run import ROUNDS, recorded_run

from tidegate.cli import main
from tidegate.runs.own_prices import price_table
from tidegate.runs.reader import read_run


def told(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    capsys.readouterr()
    with pytest.raises(SystemExit) as stopped:
        main(["plan", "--from", *arguments, "--json"])
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


class OwnPrices:
    """A round's price, times a factor of each client's own."""

    def mean(self, num_rounds: int) -> float:
        return 10.0

    def at(self, round_number: int, clients: Sequence[str]) -> Mapping[str, float]:
        return {one: (1.0 + int(one[-1]) ** 2) * (1 + round_number % 3) for one in clients}


@pytest.mark.parametrize("policy", ["tide", "acdpp"])
@pytest.mark.parametrize("until", [ROUNDS, 4])
def test_clients_meet_their_own_prices_again(
    policy: str, until: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    recorded_run(tmp_path, policy=policy, prices=OwnPrices(), until=until)
    if until < ROUNDS:  # half a line of a server that was killed, which the next one decides again
        with (tmp_path / "prices.jsonl").open("a") as file:
            file.write('{"round": 6, "prices": {"partition-')
        recorded_run(tmp_path, policy=policy, prices=OwnPrices())
    found = told([str(tmp_path), "--policy", policy], capsys)
    (again,) = found["replayed"]
    recorded = found["recorded"]
    assert recorded.pop("policy") == f"{again.pop('policy')}, recorded"
    assert again == pytest.approx(recorded)
    rows = [json.loads(line) for line in (tmp_path / "prices.jsonl").read_text().splitlines()[:1]]
    assert rows[0]["prices"] == OwnPrices().at(1, sorted(rows[0]["prices"]))


def test_what_a_client_did_not_pay_is_as_far_from_the_average_as_it_usually_was(
    tmp_path: Path,
) -> None:
    recorded_run(tmp_path)
    view = read_run(tmp_path)
    average = [row.price for row in view.rounds]
    lines = [
        {"round": 2, "prices": {"partition-0": average[1] / 2, "partition-1": 2 * average[1]}},
        {"round": 3, "prices": {"partition-1": 4 * average[2]}},
        {"round": 99, "prices": {"gone": 1.0}},
    ]
    (tmp_path / "prices.jsonl").write_text("\n".join(map(json.dumps, lines)) + "\n")
    table = price_table(view)
    assert table is not None
    assert table[0].tolist() == [average[0]] * 4  # all paid the same
    assert table[1] == pytest.approx([average[1] / 2, 2 * average[1], average[1], average[1]])
    assert table[2] == pytest.approx([average[2] / 2, 4 * average[2], average[2], average[2]])
    (tmp_path / "prices.jsonl").unlink()
    assert price_table(view) is None


def test_another_budget_and_larger_buffers_are_replayed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    recorded_run(tmp_path)
    rows = []
    for budget, memory in (("11", "1"), ("11", "2"), ("44", "1")):
        options = ["--policy", "tide", "--budget", budget, "--memory", memory]
        (row,) = told([str(tmp_path), *options], capsys)["replayed"]
        rows.append(row)
    assert [(row["budget"], row["slots"]) for row in rows] == [(11, 38), (11, 76), (44, 38)]
    assert rows[2]["effective_per_round"] > rows[0]["effective_per_round"]
    strict = told([str(tmp_path), "--policy", "tide", "--spend-ahead", "0"], capsys)
    assert strict["replayed"][0]["overspend"] <= 0


def test_what_cannot_be_is_refused_in_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    recorded_run(tmp_path)
    for options, reason in (
        (["--policy", "tied"], "tide"),
        (["--budget", "-1"], "--budget must be a number above 0, got -1"),
        (["--budget", "inf"], "must be a number above 0"),
        (["--memory", "0"], "must be above 0"),
        (["--price", "5", "--rounds", "9"], "--price, --rounds: a run has its own with --from"),
        (["--memory", "1e30"], "no buffer may be larger than 100,000,000; got 1e+30"),
    ):
        capsys.readouterr()
        with pytest.raises(SystemExit) as stopped:
            main(["plan", "--from", str(tmp_path), *options])
        error = capsys.readouterr().err
        assert stopped.value.code == 2
        assert reason in error.splitlines()[-1]
        assert "Traceback" not in error
