import dataclasses
import math

import numpy as np
import pytest
from scipy import stats

from tidegate.policies.acdpp import acdpp
from tidegate.policies.constant_admission import constant_admission
from tidegate.prices import UniformPrice
from tidegate.problem import Problem
from tidegate.simulation.rounds import simulate
from tidegate.simulation.summary import (
    estimate,
    paired_differences,
    share_of,
    student_quantile,
    summarise,
)


@pytest.mark.parametrize("degrees", [1, 2, 3, 5, 9, 30, 99, 999])
def test_student_quantiles_are_scipys(degrees: int) -> None:
    assert student_quantile(degrees) == pytest.approx(stats.t.ppf(0.975, degrees), rel=1e-6)
    assert student_quantile(degrees, 0.8) == pytest.approx(stats.t.ppf(0.9, degrees), rel=1e-6)


@pytest.mark.parametrize("count", [2, 3, 10])
def test_a_share_holds_what_a_paired_test_does_not_reject(count: int) -> None:
    draw = np.random.default_rng(count)
    wholes = draw.normal(3.0, 0.1, count)
    parts = 0.4 * wholes + draw.normal(0, 0.1, count)
    ends = share_of(parts.tolist(), wholes.tolist())
    assert ends is not None
    low, high = ends
    for share in np.linspace(low - 1, high + 1, 401):
        rejected = stats.ttest_1samp(parts - share * wholes, 0.0).pvalue < 0.05
        assert rejected != (low <= share <= high)


def test_a_share_of_what_could_be_nothing_is_not_told() -> None:
    assert share_of([1.0, 2.0, 3.0], [1.0, -1.0, 0.5]) is None
    assert share_of([1.0], [2.0]) is None
    assert share_of([1.0, 1.01], [1.0, 1.01]) == pytest.approx((1.0, 1.0))


def test_an_interval_holds_the_mean_about_95_times_in_100() -> None:
    draw = np.random.default_rng(0)
    trials = [estimate(draw.normal(3.0, 2.0, 6).tolist()) for _ in range(2_000)]
    held = np.mean([abs(trial.mean - 3.0) <= trial.half_width for trial in trials])
    assert held == pytest.approx(0.95, abs=0.02)


def test_one_value_has_no_interval() -> None:
    single = estimate([4.0])
    assert single.mean == 4.0
    assert math.isnan(single.half_width)


def test_violations_are_taken_of_the_mean_over_seeds() -> None:
    problem = Problem(buffer_capacities=[5], budget=10.0, mean_price=2.0, num_rounds=50)
    policy = constant_admission(problem)
    runs = [simulate(policy, problem, UniformPrice(1.0, 3.0), seed) for seed in range(6)]
    totals = [float(run.columns["overspend"][-1]) for run in runs]
    assert min(totals) < 0 < max(totals)
    summary = summarise("constant_admission", runs)
    assert summary.cost_violation == pytest.approx(max(np.mean(totals), 0.0))
    row = summary.row()
    low, high = row["intervals"]["spent_per_round"]  # type: ignore[index]
    assert low < row["spent_per_round"] < high
    single = summarise("constant_admission", runs[:1]).row()
    assert single["intervals"]["spent_per_round"] is None  # type: ignore[index]


def test_what_memory_overflows_is_told() -> None:
    problem = Problem(buffer_capacities=[5, 5], budget=10.0, mean_price=2.0, num_rounds=50)
    policy = acdpp(problem, retention_horizon=4, target_admission=5.0)  # stores 20, fits 10
    runs = [simulate(policy, problem, UniformPrice(1.0, 3.0), seed) for seed in range(3)]
    summary = summarise("acdpp", runs)
    held = np.mean([run.final.occupancy_sums for run in runs], axis=0)
    assert summary.buffer_violation == pytest.approx((held - 50 * 5).sum())
    assert summary.buffer_violation > 300


def test_differences_on_the_same_seeds_are_sharper_than_means() -> None:
    problem = Problem(buffer_capacities=[5, 5], budget=10.0, mean_price=2.0, num_rounds=80)
    one, other = (
        [simulate(make(problem), problem, UniformPrice(1.0, 3.0), seed) for seed in range(8)]
        for make in (acdpp, constant_admission)
    )
    found = paired_differences(one, other)["spent_per_round"]
    means = [summarise("", runs).spent_per_round for runs in (one, other)]
    assert found.mean == pytest.approx(means[0].mean - means[1].mean)
    spending = [[float(run.columns["spent"].mean()) for run in runs] for runs in (one, other)]
    by_hand = estimate([a - b for a, b in zip(*spending, strict=True)])
    assert found == by_hand
    with pytest.raises(ValueError, match="same seeds"):
        paired_differences(one[1:], other[:-1])


def test_a_broken_certificate_is_told() -> None:
    problem = Problem(buffer_capacities=[5], budget=10.0, mean_price=2.0, num_rounds=50)
    run = simulate(constant_admission(problem), problem, UniformPrice(1.0, 3.0), 0)
    columns = {**run.columns, "cost_debt": run.columns["cost_debt"] * 0 - 1e4}
    forged = dataclasses.replace(run, columns=columns)
    assert run.certificate_holds
    assert not forged.certificate_holds
    assert not summarise("constant_admission", [run, forged]).certificate_holds


def test_a_summary_needs_whole_runs() -> None:
    problem = Problem(buffer_capacities=[5], budget=10.0, mean_price=2.0, num_rounds=50)
    part = simulate(constant_admission(problem), problem, UniformPrice(1.0, 3.0), 0, until=20)
    with pytest.raises(ValueError, match="whole runs of 50 rounds"):
        summarise("constant_admission", [part])
