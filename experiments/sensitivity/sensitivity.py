"""How ACDPP depends on its seven constants, on counts alone: a table and a picture.

python -m experiments.sensitivity.sensitivity --out experiments/sensitivity

The paper's MNIST setting; each constant is changed alone, the others are as printed. What is read
off: effective samples, spending, and memory on average and at its peak. Nothing here is learned: a
constant that changes none of the four changes no accuracy either.
"""

import argparse
import math
from collections.abc import Callable, Mapping
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from experiments.tool.comparison import write_csv
from tidegate.policies.acdpp import acdpp
from tidegate.policies.joint import JointPolicy
from tidegate.policies.presets import EXPERIMENTS
from tidegate.problem import LearningConstants, Problem
from tidegate.simulation.rounds import simulate
from tidegate.simulation.summary import estimate

SETTING = EXPERIMENTS["mnist"]
MEASURES = ("effective_per_round", "spent_per_round", "mean_stored", "peak_stored")
TITLES = ("effective, a round", "spent, a round", "stored, mean", "stored, peak")


@dataclass(frozen=True)
class Constant:
    """One constant, the values that are tried, and how ACDPP is told."""

    symbol: str
    printed: Callable[[Problem], float]
    """The value as printed."""
    values: tuple[float, ...]
    told: Callable[[float], Mapping[str, Any]]
    log: bool = True


def learned(name: str, value: float) -> dict[str, LearningConstants]:
    known = vars(SETTING.problem().learning)
    return {"learning": LearningConstants(**{**known, name: value})}


CONSTANTS = {
    "penalty_weight": Constant(
        "V",
        lambda problem: math.sqrt(problem.num_rounds),
        (0.1, 1, 10, 31.6, 100, 1e3, 1e4, 1e6),
        lambda value: {"penalty_weight": value},
    ),
    "one_minus_contraction": Constant(
        "1 - rho",
        lambda problem: 1 / math.sqrt(problem.num_rounds),
        (1e-3, 3e-3, 1e-2, 0.0316, 0.1, 0.3, 0.9),
        lambda value: {"contraction": 1 - value},
    ),
    "retention_horizon": Constant(
        "K",
        lambda _: 10,
        (1, 2, 4, 6, 8, 10, 14, 20),
        lambda value: {"retention_horizon": int(value)},
        log=False,
    ),
    "target_admission": Constant(
        "target admission",
        lambda _: 10,
        (2, 5, 8, 10, 12, 20, 40),
        lambda value: {"target_admission": float(value)},
        log=False,
    ),
    "domain_diameter": Constant(
        "D",
        lambda _: 1,
        (0.01, 0.1, 1, 10, 100, 1e3, 1e4),
        lambda value: learned("domain_diameter", value),
    ),
    "gradient_noise": Constant(
        "sigma",
        lambda _: 1,
        (0.01, 0.1, 1, 10, 100, 1e3),
        lambda value: learned("gradient_noise", value),
    ),
    "pseudo_dimension": Constant(
        "Pdim",
        lambda _: 100,
        (1, 10, 100, 1e3, 1e4, 1e5),
        lambda value: learned("pseudo_dimension", value),
    ),
}


def measured(job: tuple[str, float, int, int]) -> dict[str, float]:
    """One run, by constant, value, seed and rounds."""
    name, value, seed, rounds = job
    problem = SETTING.problem(rounds)
    policy: JointPolicy[Any] = acdpp(problem, **CONSTANTS[name].told(value))
    columns = simulate(policy, problem, SETTING.price, seed).columns
    return {
        "effective_per_round": float(columns["effective_samples"][-1]) / rounds,
        "spent_per_round": float(columns["spent"].mean()),
        "mean_stored": float(columns["training_size"].mean()),
        "peak_stored": float(columns["training_size"].max()),
    }


def rows(seeds: int, rounds: int, workers: int) -> list[dict[str, object]]:
    """One row a constant and value: means over seeds and 95 % half-widths."""
    cases = [(name, float(value)) for name, one in CONSTANTS.items() for value in one.values]
    jobs = [(*case, seed, rounds) for case in cases for seed in range(seeds)]
    with ProcessPoolExecutor(workers) as pool:
        found = list(pool.map(measured, jobs, chunksize=4))
    told = []
    for number, (name, value) in enumerate(cases):
        group = found[number * seeds : (number + 1) * seeds]
        row: dict[str, object] = {"constant": name, "value": value}
        for measure in MEASURES:
            one = estimate([run[measure] for run in group])
            row[measure] = f"{one.mean:.5g}"
            row[f"{measure}_half_width"] = f"{one.half_width:.3g}" if seeds > 1 else ""
        told.append(row)
    return told


def draw(table: list[dict[str, object]], path: Path, rounds: int) -> None:
    from matplotlib.figure import Figure  # noqa: PLC0415 - an extra

    problem = SETTING.problem(rounds)
    figure = Figure(figsize=(15, 9), layout="constrained")
    axes = figure.subplots(len(MEASURES), len(CONSTANTS), sharex="col", sharey="row")
    for column, (name, constant) in enumerate(CONSTANTS.items()):
        mine = [row for row in table if row["constant"] == name]
        across = [float(str(row["value"])) for row in mine]
        for line, measure in enumerate(MEASURES):
            one = axes[line][column]
            one.axvline(constant.printed(problem), color="0.8", linewidth=4)
            heights = [float(str(row[measure])) for row in mine]
            one.plot(across, heights, "o-", color="#0072B2", markersize=4)
            memory = dict.fromkeys(("mean_stored", "peak_stored"), problem.total_capacity)
            limit = {"spent_per_round": problem.budget, **memory}
            if measure in limit:
                one.axhline(limit[measure], color="#D55E00", linewidth=1)
            one.set_xscale("log" if constant.log else "linear")
            one.set_yscale("log" if measure in memory else "linear")
            if not column:
                one.set_ylabel(TITLES[line])
        axes[-1][column].set_xlabel(constant.symbol)
    figure.suptitle(
        "ACDPP, one constant changed at a time (grey: as printed; red: budget and capacity)"
    )
    figure.savefig(path, dpi=100)


def main(out: Path, seeds: int, rounds: int, workers: int) -> None:
    table = rows(seeds, rounds, workers)
    out.mkdir(parents=True, exist_ok=True)
    write_csv(out / "expected.csv", table)
    draw(table, out / "sensitivity.png", rounds)
    spread = {
        name: np.ptp(
            [float(str(row["effective_per_round"])) for row in table if row["constant"] == name]
        )
        for name in CONSTANTS
    }
    for name, width in spread.items():
        print(f"{name}: effective samples a round differ by {width:.2f}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("sensitivity"))
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--rounds", type=int, default=1000)
    parser.add_argument("--workers", type=int, default=2)
    given = parser.parse_args()
    main(given.out, given.seeds, given.rounds, given.workers)
