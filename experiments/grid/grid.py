"""ACDPP over a grid of V, φ and learning constants, on counts alone, at equal spending.

python -m experiments.grid.grid --out experiments/grid

The paper's MNIST setting with K = 10 and all memory in one client: totals do not depend on how they
are split. Each of the 210 settings gets the budget with which it spends 55 a round on average over
the seeds (to 0.2 %), so that its effective samples compare with those of constant admission. Start
it again after an interruption: it continues where it stopped.
"""

import argparse
import csv
import itertools
import math
import time
from collections.abc import Iterable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np

import tidegate
from tidegate import JointPolicy, LearningConstants, Problem, Run
from tidegate.admission.interval import ClosingInterval
from tidegate.admission.rule import ServerState
from tidegate.policies import ControlOptions
from tidegate.policies.acdpp import acdpp
from tidegate.policies.constant_admission import constant_admission
from tidegate.simulation.summary import estimate

MNIST = tidegate.EXPERIMENTS["mnist"]
HORIZON = 10
"""K, as it is planned for a budget of 55."""
PENALTY_WEIGHTS = (0.1, 1.0, 10.0, 100.0, 1e3, 1e4, 1e6)
CONTRACTION_EXPONENTS = (0.1, 0.3, 0.5, 0.7, 0.8, 0.9)
CONSTANTS = {
    "default": LearningConstants(),
    "released": LearningConstants(domain_diameter=1e3, gradient_noise=10.0, loss_bound=1e3),
    "measured": LearningConstants(  # logistic regression on MNIST, see experiments/bound
        domain_diameter=42.0, gradient_noise=9.6, loss_bound=19.3, pseudo_dimension=7850.0
    ),
    "reuse": LearningConstants(domain_diameter=1e3, gradient_noise=10.0, pseudo_dimension=1.0),
    "generalisation": LearningConstants(loss_bound=1e3, pseudo_dimension=1e3),
}
TOLERANCE = 0.002
"""Part of 55 by which spending may miss it."""
MOST_TRIALS = 14
OPEN = 1e-3
"""Samples. An interval that is wider than this is open."""
PEAKS = (100, 200, 350, 1000, math.inf)
"""Samples in 100 slots, of the summary."""
COLUMNS = (
    "rounds", "constants", "phi", "V", "budget", "spent", "effective", "half_width", "peak",
    "open_rounds", "interior",
)  # fmt: skip


@dataclass(frozen=True)
class Setting:
    """One cell of the grid; constant admission is the one without V."""

    rounds: int
    constants: str
    phi: float = math.nan
    V: float = math.nan

    @property
    def key(self) -> tuple[str, ...]:
        """The first columns of its row."""
        return tuple(map(str, vars(self).values()))

    def policy(self, problem: Problem) -> JointPolicy[ServerState]:
        """ACDPP with these constants, or constant admission."""
        if self.constants not in CONSTANTS:
            return constant_admission(problem, ControlOptions(retention_horizon=HORIZON))
        return acdpp(
            problem,
            retention_horizon=HORIZON,
            penalty_weight=self.V,
            contraction_exponent=self.phi,
            learning=CONSTANTS[self.constants],
        )


def settings(rounds: Iterable[int]) -> list[Setting]:
    grid = itertools.product(rounds, CONSTANTS, CONTRACTION_EXPONENTS, PENALTY_WEIGHTS)
    constant = [Setting(length, "constant_admission") for length in rounds]
    return constant + [Setting(*cell) for cell in grid]


def at_equal_spending(setting: Setting, seeds: int) -> tuple[Problem, list[Run]]:
    """The problem with the budget that leads to a spending of 55, or to the nearest; its runs."""
    fleet = MNIST.problem(setting.rounds)
    low, high, budget = 0.0, math.inf, MNIST.budget
    trials = []
    for _ in range(MOST_TRIALS):
        problem = replace(fleet, buffer_capacities=[fleet.total_capacity], budget=budget)
        policy = setting.policy(problem)
        runs = [tidegate.simulate(policy, problem, MNIST.price, seed) for seed in range(seeds)]
        spent = float(np.mean([run.columns["spent"].mean() for run in runs]))
        trials.append((abs(spent - MNIST.budget), budget, problem, runs))
        if trials[-1][0] <= TOLERANCE * MNIST.budget:
            break
        low, high = (budget, high) if spent < MNIST.budget else (low, budget)
        scaled = budget * MNIST.budget / spent
        budget = scaled if low < scaled < high else (low + min(high, 2 * low)) / 2
    return min(trials, key=lambda trial: trial[:2])[2:]


def measured(setting: Setting, seeds: int) -> dict[str, str]:
    problem, runs = at_equal_spending(setting, seeds)
    effective = estimate([run.columns["effective_samples"][-1] / setting.rounds for run in runs])
    open_rounds = interior = 0
    rule = setting.policy(problem).admission
    if interval := getattr(rule, "interval", None):
        open_rounds, interior = np.sum([choices(run, interval) for run in runs], axis=0)
    figures = (
        problem.budget,
        np.mean([run.columns["spent"].mean() for run in runs]),
        effective.mean,
        effective.half_width,
        np.mean([run.columns["training_size"].max() for run in runs]),
    )
    counts = (str(open_rounds), str(interior))
    return dict(
        zip(COLUMNS, (*setting.key, *(f"{value:.5g}" for value in figures), *counts), strict=True)
    )


def choices(run: Run, interval: ClosingInterval) -> tuple[int, int]:
    """Rounds with an open interval, and those in which the choice was none of its ends."""
    ends = [interval.at(int(number)) for number in run.columns["round_number"]]
    lower, upper = np.array([(end.lower, end.upper) for end in ends]).T
    wide = upper - lower > OPEN
    from_end = np.minimum(run.columns["ordered"] - lower, upper - run.columns["ordered"])
    return int(wide.sum()), int((wide & (from_end > OPEN / 4)).sum())


def summary(rows: list[dict[str, str]]) -> list[str]:
    """A table of the most effective samples that any setting reaches, by rounds and peak memory."""
    heads = [
        "rounds",
        "peak at most",
        "settings",
        "effective, most",
        "gain",
        "with",
        "spent",
        "peak",
    ]
    lines = [f"| {' | '.join(heads)} |", "|---" * len(heads) + "|"]
    for rounds in dict.fromkeys(row["rounds"] for row in rows):
        group = [row for row in rows if row["rounds"] == rounds]
        constant = float(group[0]["effective"])
        for most in PEAKS:
            within = [row for row in group if float(row["peak"]) <= most]
            best = max(within, key=lambda row: float(row["effective"]))
            with_values = f"{best['constants']}, φ = {best['phi']}, V = {float(best['V']):g}"
            setting = "constant admission" if best["V"] == "nan" else with_values
            lines.append(
                f"| {int(rounds):,} | {most:g} | {sum(row['V'] != 'nan' for row in within)} "
                f"| {float(best['effective']):.2f} ± {float(best['half_width']):.2f} "
                f"| {float(best['effective']) / constant - 1:.1%} | {setting} "
                f"| {best['spent']} | {float(best['peak']):,.0f} |"
            )
    return lines


def main(out: Path, rounds: list[int], seeds: int, workers: int, minutes: float) -> None:
    out.mkdir(parents=True, exist_ok=True)
    path = out / "expected.csv"
    begun = path.exists()
    rows = list(csv.DictReader(path.read_text("utf-8").splitlines())) if begun else []
    done = {tuple(row[name] for name in COLUMNS[:4]) for row in rows}
    left = [setting for setting in settings(rounds) if setting.key not in done]
    until = time.monotonic() + 60 * minutes
    with path.open("a", encoding="utf-8", newline="") as file, ProcessPoolExecutor(workers) as pool:
        writer = csv.DictWriter(file, COLUMNS)
        if not begun:
            writer.writeheader()
        for first in range(0, len(left), workers):
            if time.monotonic() > until:
                break
            for row in pool.map(partial(measured, seeds=seeds), left[first : first + workers]):
                writer.writerow(row)
                rows.append(row)
            file.flush()
    print(*summary(rows), sep="\n")
    print(f"\n{len(rows)} of {len(done) + len(left)} rows, {seeds} seeds; intervals 95 %")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("grid"))
    parser.add_argument("--rounds", type=int, nargs="+", default=[100, 1000])
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--minutes", type=float, default=math.inf, help="stop after so long")
    main(**vars(parser.parse_args()))
