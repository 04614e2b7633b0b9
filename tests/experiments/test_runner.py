"""Experiments end to end on a data set made here: rows, seeds, resuming, comparing."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from one_process import in_one_process

from experiments.tool import client_app, server_app
from experiments.tool.config import ExperimentConfig, PolicyChoice, stretch
from experiments.tool.job import Job
from experiments.tool.results import ROWS, UNFINISHED, left_out, read_results, rows_so_far
from experiments.tool.runner import (
    about,
    matched_budget,
    plan_runs,
    run_experiment,
)
from tidegate.flower import run_in_process
from tidegate.problem.delays import Delays
from tidegate.simulation.rounds import simulate

pytestmark = [pytest.mark.long, pytest.mark.xdist_group("test_runner")]  # they share results

ROUNDS = 6


def experiment(small: str, **changes: Any) -> ExperimentConfig:
    values: dict[str, Any] = {
        "title": "small",
        "data": small,
        "model": "logistic",
        "learning_rate": 0.1,
        "local_steps": 3,
        "capacities": (8, 9, 10, 11),
        "budget": 22.0,
        "rounds": ROUNDS,
        "seeds": 2,
        "targets": (0.5, 0.99),
        "policies": (
            {"name": "costless_oracle"},
            {"name": "constant_admission"},
            {"name": "acdpp", "headroom": 4},
            {"name": "tide"},
        ),
        **changes,
    }
    return ExperimentConfig.model_validate(values)


@pytest.fixture(scope="module")
def results(small: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("runs")
    seen: list[int] = []
    runs = plan_runs(experiment(small), out)
    about(experiment(small), runs).write(out)
    with pytest.MonkeyPatch.context() as patch:
        in_one_process(patch)
        assert run_experiment(runs, workers=2, progress=seen.append) == len(runs) == 8
    assert seen[0] == 0
    assert seen[-1] == 8 * ROUNDS
    return out


def test_a_run_admits_and_pays_what_counts_alone_say(small: str, results: Path) -> None:
    _, found = read_results(results)
    planned = experiment(small)
    for choice in planned.policies:
        for run in found[choice.label]:
            problem = planned.problem(run.seed)
            counts = simulate(choice.make(problem), problem, planned.prices(run.seed), run.seed)
            for column in ("admitted", "training_size", "distinct_samples"):
                np.testing.assert_array_equal(run.columns[column], counts.columns[column])
            for column in ("price", "spent", "cost_debt", "effective_samples"):
                np.testing.assert_allclose(run.columns[column], counts.columns[column])
            np.testing.assert_allclose(
                run.columns["gradient_mismatch"]
                + run.columns["gradient_variance"]
                + run.columns["generalisation"],
                counts.columns["bound"],
            )


def test_samples_that_come_later_are_those_that_counts_alone_say(
    small: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    in_one_process(monkeypatch)
    policies = ({"name": "acdpp", "headroom": 4}, {"name": "tide"})
    late = experiment(small, delay="uniform:1,3", seeds=1, rounds=12, policies=policies)
    runs = plan_runs(late, tmp_path)
    about(late, runs).write(tmp_path)
    run_experiment(runs, workers=1)
    _, found = read_results(tmp_path)
    for choice in late.policies:
        problem = late.problem(0)
        counts = simulate(choice.make(problem), problem, late.prices(0), 0).columns
        assert counts["under_way"].max() > 5
        for column in ("spent", "under_way", "admitted", "training_size"):
            np.testing.assert_allclose(found[choice.label][0].columns[column], counts[column])


def test_everybody_meets_the_same_prices_on_a_seed_and_learns(results: Path) -> None:
    _, found = read_results(results)
    assert list(found) == ["costless_oracle", "constant_admission", "acdpp", "tide"]
    for seed in range(2):
        prices = [runs[seed].columns["price"].tolist() for runs in found.values()]
        assert all(path == prices[0] for path in prices)
    assert found["tide"][0].columns["price"][0] != found["tide"][1].columns["price"][0]
    for runs in found.values():
        for run in runs:
            assert run.columns["accuracy"][-1] > 0.6  # a guess is right 1 time in 4
            assert np.all(np.diff(run.best_so_far) >= 0)
            assert run.first_round(0.5) <= ROUNDS
            assert run.first_round(1.1) == float("inf")
            assert run.config["versions"]["torch"]


def test_what_is_finished_is_not_repeated_and_what_was_interrupted_is(
    small: str, results: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    in_one_process(monkeypatch)
    runs = plan_runs(experiment(small), results)
    kept, broken = runs[0].folder / ROWS, runs[1].folder
    before = (kept.stat().st_mtime_ns, (broken / ROWS).read_bytes())
    lines = (broken / ROWS).read_text().splitlines(keepends=True)
    (broken / ROWS).unlink()
    (broken / f"{UNFINISHED}-1").write_text("".join(lines[:2]))
    assert rows_so_far(broken) == 2
    assert run_experiment(runs, workers=1) == 1
    assert rows_so_far(broken) == ROUNDS
    assert not list(broken.glob(f"{UNFINISHED}*"))
    assert (kept.stat().st_mtime_ns, (broken / ROWS).read_bytes()) == before
    # Results may be moved, and are still known.
    moved = results.rename(results.with_name("moved"))
    assert run_experiment(plan_runs(experiment(small), moved), workers=1) == 0
    moved.rename(results)
    # Another learning rate is another run, in the same place, and is not compared with these.
    other = plan_runs(experiment(small, learning_rate=0.2, seeds=1), results)
    assert run_experiment(other[:1], workers=1) == 1
    changed = json.loads((runs[0].folder / "run.json").read_text())
    assert changed["job"]["learning_rate"] == 0.2
    _, found = read_results(results)
    assert [run.seed for run in found["costless_oracle"]] == [1]
    assert left_out(results, found) == [runs[0].folder]
    assert run_experiment(runs[:1], workers=1) == 1


def test_a_budget_is_found_with_which_a_policy_spends_what_was_asked(small: str) -> None:
    planned = experiment(small, rounds=60, seeds=3)
    for name in ("constant_admission", "acdpp"):
        choice = PolicyChoice(name=name, match_spending=True)
        budget = matched_budget(planned, choice)
        spent = []
        for seed in planned.all_seeds:
            problem = planned.problem(seed, budget)
            policy = choice.make(problem, choice.fixed_horizon(planned.problem(seed)))
            run = simulate(policy, problem, planned.prices(seed), seed)
            spent.append(run.columns["spent"].mean())
        assert np.mean(spent) == pytest.approx(22.0, rel=0.005)
    assert matched_budget(planned, PolicyChoice(name="acdpp")) == 22.0
    with pytest.raises(ValueError, match="costless_oracle: no budget makes it spend 22 a round"):
        matched_budget(planned, PolicyChoice(name="costless_oracle", match_spending=True))


def test_a_fitted_budget_leaves_k_as_it_was_planned(small: str) -> None:
    policies = (
        {"name": "constant_admission", "match_spending": True},
        {"name": "hybrid", "match_spending": True},
        {"name": "acdpp", "label": "free"},
        {"name": "tide", "match_spending": True},
    )
    capacities = (8, 9, 10, 11, 12) * 2
    paper = experiment(small, capacities=capacities, budget=55.0, rounds=60, seeds=1)
    paper = paper.model_copy(
        update={"policies": tuple(PolicyChoice.model_validate(one) for one in policies)}
    )
    # 5.5 * 100 / 55 = 10, and 5 for hybrid, whose half of the clients get all the money.
    planned = [run.job for run in plan_runs(paper, Path("anywhere"))]
    assert [job.retention_horizon for job in planned] == [10, 5, 0, 0]
    # Prices of seed 0 are 2.5 % below their mean, so that a budget of 56.4 would be matched; the
    # plan for that keeps samples for 9 rounds and leaves a tenth of the memory empty.
    choice = paper.policies[0]
    assert choice.make(paper.problem(0, 56.4)).retention.for_client(0, 10)[1] == 9
    problem = paper.problem(0, planned[0].budget)
    policy = choice.make(problem, planned[0].retention_horizon)
    columns = simulate(policy, problem, paper.prices(0), 0).columns
    assert columns["training_size"][10:].min() == 100
    assert columns["spent"].mean() == pytest.approx(55.0, rel=0.03)


def test_a_job_survives_its_way_through_a_run_config(small: str) -> None:
    planned = experiment(small, momentum=0.9, stream="in order")
    job = Job.of(planned, planned.policies[2], seed=7, budget=21.0)
    assert Job.from_config(job.to_config()) == job
    assert Job.from_config({**job.to_config(), "another-key": 3, "budget": 21}) == job
    assert Job.from_config({**job.to_config(), "delay": 10}).delay == "10"
    assert [job.memory(client) for client in (0, 3, 9)] == [32, 44, 44]
    assert job.clients == 4


def test_a_client_that_fails_ends_the_run(
    small: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object, **__: object) -> float:
        raise OSError("no disk")

    monkeypatch.setattr(client_app, "train", fail)
    (run,) = plan_runs(experiment(small, seeds=1, policies=({"name": "tide"},)), tmp_path)
    with pytest.raises(RuntimeError, match=r"round 1: only \d of 4 clients replied"):
        run_in_process(
            server_app.app, client_app.app, num_clients=4, run_config=run.job.to_config()
        )
    assert not (run.folder / ROWS).exists()


def test_capacities_are_also_a_text_as_on_the_command_line(small: str) -> None:
    for text in ("40x3,5x2", "40 x 3, 5 x 2"):
        assert experiment(small, capacities=text).capacities == (40, 40, 40, 5, 5)
    with pytest.raises(ValueError, match="'40y3' is not a capacity; write 8,9,10 or 10x1000"):
        experiment(small, capacities="40y3")


def test_each_seed_takes_its_own_stretch_of_recorded_prices(tmp_path: Path) -> None:
    file = tmp_path / "prices.csv"
    file.write_text("eur\n" + "\n".join(str(number + 1) for number in range(10)) + "\n")
    text = f"trace:{file}:eur"
    found = [list(stretch(text, seed, 4).values) for seed in range(2)]  # type: ignore[attr-defined]
    assert found == [[1, 2, 3, 4], [5, 6, 7, 8]]
    with pytest.raises(ValueError, match="has 10 prices, but seed 2 needs those from 9 to 12"):
        stretch(text, 2, 4)


def test_a_number_is_a_delay_in_an_experiment(small: str) -> None:
    assert experiment(small, delay=10).problem(0).delays == Delays(10, 10)
    with pytest.raises(ValueError, match="delay must be a whole number of rounds"):
        experiment(small, delay="soon")


def test_mistakes_in_a_file_are_named(small: str, tmp_path: Path) -> None:
    file = tmp_path / "config.toml"
    file.write_text('title = "x"\nlerning_rate = 3\n')
    with pytest.raises(ValueError, match=r"has no 'lerning_rate'; .*learning_rate"):
        ExperimentConfig.read(file)
    file.write_text("title = \n")
    with pytest.raises(ValueError, match="is not TOML"):
        ExperimentConfig.read(file)
    file.write_text('title = "x"\npolicies = [{name = "tide", match_spendin = true}]\n')
    with pytest.raises(ValueError, match="a policy has no 'match_spendin'; did you mean match_sp"):
        ExperimentConfig.read(file)
    with pytest.raises(ValueError, match="two policies are labelled 'tide'"):
        experiment(small, policies=({"name": "tide"}, {"name": "tide", "headroom": 1}))
    with pytest.raises(ValueError, match="unknown preset 'x'"):
        PolicyChoice(name="tide", preset="x")
    with pytest.raises(ValueError, match="unknown policy 'tid'"):
        PolicyChoice(name="tid")
