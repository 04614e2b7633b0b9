"""Which policy a plan recommends, and in which words."""

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest
from late_samples import LateFleet

from tidegate.cli import main
from tidegate.policies import ControlOptions
from tidegate.policies.presets import EXPERIMENTS
from tidegate.problem.delays import Delays


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[str, str]:
    """What ``tidegate`` prints, each of both outputs in one line."""
    with pytest.raises(SystemExit) as stopped:
        main(list(arguments))
    out, error = capsys.readouterr()
    assert not stopped.value.code, error
    return " ".join(out.split()), " ".join(error.split())


def plan(capsys: pytest.CaptureFixture[str], flags: str) -> str:
    return run(capsys, "plan", *flags.split())[0]


@pytest.fixture
def prices(tmp_path: Path) -> str:
    file = tmp_path / "prices.csv"
    cells = (f"{1 + 7 * number % 10}" for number in range(40))
    file.write_text("eur\n" + "\n".join(cells) + "\n", encoding="utf-8")
    return f"trace:{file}:eur"


@pytest.mark.long
def test_a_policy_that_does_not_fit_into_memory_is_not_recommended(
    capsys: pytest.CaptureFixture[str],
) -> None:
    flags = "--rounds 100 --seeds 3 --policy constant_admission --policy acdpp --as-in-paper"
    told = json.loads(plan(capsys, f"{flags} --json"))
    rows = {row["policy"]: row for row in told["policies"]}
    gained = {name: row["effective_per_round"] for name, row in rows.items()}
    assert gained["acdpp"] > 1.01 * gained["constant_admission"]
    assert rows["acdpp"]["peak_overflow"] > 1
    assert told["answer"]["policy"] == "constant_admission"
    said = plan(capsys, flags)
    assert re.search(r"acdpp would gain more, but stores up to 1\d\d samples where 100 fit\.", said)
    kept = plan(capsys, "--rounds 100 --seeds 3 --policy acdpp")
    assert "Use acdpp: about " in kept
    alone = plan(capsys, "--rounds 100 --seeds 3 --policy acdpp --as-in-paper")
    assert "None of these policies keeps to both the budget and the memory." in alone


def test_a_policy_that_spends_more_than_the_budget_is_not_recommended(
    capsys: pytest.CaptureFixture[str],
) -> None:
    recommended = set()
    for rounds in (10, 15, 20, 30, 40, 60):
        flags = f"--rounds {rounds} --seeds 1 --policy constant_admission --as-in-paper --json"
        told = json.loads(plan(capsys, flags))
        (row,) = told["policies"]
        over = row["spent_per_round"] > 1.01 * told["problem"]["budget"]
        assert (told["answer"] is None) == over
        recommended.add(not over)
    assert recommended == {True, False}


@pytest.mark.long
def test_of_policies_that_gain_the_same_the_simplest_is_recommended(
    capsys: pytest.CaptureFixture[str],
) -> None:
    said = plan(capsys, "--capacities 3x50 --budget 97 --price 4 --rounds 200 --seeds 2")
    assert "Use constant_admission: about 24.1 ±0.0 effective samples a round" in said
    assert "tide is within 1 %, and constant_admission is the simplest." in said


@pytest.mark.long
def test_a_delay_costs_the_rounds_before_the_first_sample_arrives(
    capsys: pytest.CaptureFixture[str],
) -> None:
    flags = "--capacities 40x12 --budget 60 --price 1.5 --rounds 60 --seeds 2 --hard-capacity"
    told = plan(capsys, f"{flags} --delay 5")
    assert "In 5 of 60 rounds no client holds a sample to train on." in told
    assert "Use constant_admission: about 34.4" in told  # its purchases fit, whatever its K
    late = plan(capsys, f"{flags} --delay 300")
    assert "No sample arrives before the run ends: a purchase takes 300 rounds" in late


def test_a_cap_below_k_plans_no_k(capsys: pytest.CaptureFixture[str]) -> None:
    flags = "--capacities 40x12 --budget 60 --price uniform:0.5,4 --rounds 60 --seeds 2"
    told = plan(capsys, f"{flags} --most-uses 8")
    assert "(K), which --most-uses 8 rules out. --retention-horizon 8 plans" in told
    assert "Keep a sample for" not in told


@pytest.mark.long
def test_a_first_fill_that_nobody_pays_for_is_not_recommended(
    capsys: pytest.CaptureFixture[str],
) -> None:
    flags = "--capacities 50x40 --budget 20 --price 2.5 --rounds 300 --seeds 1 --spend-ahead 0"
    told = plan(capsys, flags)
    assert "hybrid would gain more, but fills half of its memory before round 1 without" in told
    assert "The price is always 2.5, so no policy gains by waiting for a better one." in told


@pytest.mark.no_cover
@pytest.mark.long
def test_recorded_prices_are_one_path_and_seeds_change_nothing(
    capsys: pytest.CaptureFixture[str], prices: str
) -> None:
    told, error = run(capsys, "plan", "--price", prices, "--seeds", "5")
    assert "This is from one path of prices: no interval; other days will differ." in told
    assert "--seeds has no effect: a trace is one path of prices" in error
    told, error = run(capsys, "plan", "--price", prices)
    assert "--seeds" not in error
    _, error = run(capsys, "simulate", "--rounds", "20", "--seeds", "2", "--policy", "tide")
    assert "--seeds" not in error


def test_a_plan_tells_groups_of_clients_and_the_money_of_the_whole_run(
    capsys: pytest.CaptureFixture[str],
) -> None:
    fixed = ("--budget", "30", "--rounds", "60", "--seeds", "1", "--policy", "tide")
    told, _ = run(capsys, "plan", "--capacities", "5 x 2, 40 x 10", *fixed)
    assert "10 clients with 40 slots each, 2 with 5; 30 a round, 1,800 in all." in told
    many = ",".join(map(str, range(1, 9)))
    told, _ = run(capsys, "plan", "--capacities", many, *fixed, "--currency", "EUR")
    assert "Clients with 1 to 8 slots; 30 EUR a round, 1,800 EUR in all." in told
    told, _ = run(capsys, "plan", "--capacities", "1", *fixed)
    assert " 1 client with 1 slot each; 30 a round" in told


def test_samples_that_cost_nothing_are_bought(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "free.csv"
    file.write_text("eur\n" + "0\n9\n" * 5, encoding="utf-8")
    flags = "--budget 1 --capacities 4x2 --policy tide --spend-ahead 0 --rounds 10 --currency EUR"
    told = plan(capsys, f"{flags} --price trace:{file}:eur")
    assert "effective samples a round for nothing, training on" in told
    assert "It pays nothing for a sample on average; the mean price is 4.5 EUR." in told


def test_a_plan_says_what_training_on_more_samples_is_worth(
    capsys: pytest.CaptureFixture[str],
) -> None:
    flags = "--capacities 40x2 --budget 11 --price uniform:1,10 --rounds 30 --seeds 1 --policy tide"
    told = plan(capsys, f"{flags} --train-on 10")
    assert "a round trains on 25 % of what full buffers store" in told
    assert "training on 20 samples at most" in told
    assert "10 % more samples to train on in a round would change them by" in told
    assert "at most 5.231 effective samples a round" in told
    assert "to train on the least used can gain more" in told
    capped = plan(capsys, f"{flags} --train-on 10 --most-uses 20")
    assert "Use tide" in capped
    assert "buffers that are always full gain" not in capped  # unknown with both


@pytest.mark.long
@pytest.mark.parametrize("delay", [0, 5, 10])
def test_real_gates_keep_what_a_plan_promises(
    capsys: pytest.CaptureFixture[str], delay: int
) -> None:
    rounds = 60
    flags = f"--rounds {rounds} --seeds 1 --delay {delay} --json"
    promised = json.loads(plan(capsys, flags))["answer"]
    assert promised["policy"] == "tide"
    assert not promised["spent_in_vain"]
    setting = EXPERIMENTS["mnist"]
    problem = replace(setting.problem(rounds), delays=Delays(delay, delay))
    options = ControlOptions(spend_ahead=0.0, hard_capacity=True)
    fleet = LateFleet(promised["policy"], problem, options, setting.price, seed=0)
    played = [fleet.play() for _ in range(rounds)]
    spent = sum(row.spent for row in played)
    effective = played[-1].effective_samples
    assert spent / rounds == pytest.approx(promised["spent_per_round"], rel=0.03)
    assert effective / rounds == pytest.approx(promised["effective_per_round"], rel=0.03)
    assert not played[-1].under_way
