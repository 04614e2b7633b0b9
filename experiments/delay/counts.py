"""What a delay costs in effective samples: policies by delay, on counts alone.

python -m experiments.delay.counts --out experiments/delay/counts.csv

The paper's MNIST control setting, 1,000 rounds.
"""

import argparse
import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from experiments.tool.comparison import write_csv
from tidegate.policies import ControlOptions, JointPolicy
from tidegate.policies.presets import EXPERIMENTS, make_policy
from tidegate.problem import Problem
from tidegate.problem.delays import Delays
from tidegate.simulation.rounds import simulate
from tidegate.simulation.summary import estimate

SETTING = EXPERIMENTS["mnist"]
DELAYS = (0, 1, 3, 10, 50)
HARD = ControlOptions(hard_capacity=True)


@dataclass(frozen=True)
class Measured:
    """What one run came to, a round."""

    spent: float
    effective: float
    under_way: float
    """The most that was under way."""
    in_vain: float
    """For what arrived too late, of the whole run."""


VARIANTS = (
    "constant_admission",
    "constant_admission, hard capacity",
    "acdpp",
    "tide",
)


def policy_of(variant: str, problem: Problem) -> JointPolicy[Any]:
    """The policy of a variant."""
    name, _, how = variant.partition(", ")
    return make_policy(name, problem, HARD if how else ControlOptions())


def measured(variant: str, delay: int, seed: int, rounds: int) -> Measured:
    """One variant on one seed."""
    problem = dataclasses.replace(SETTING.problem(rounds), delays=Delays(delay, delay))
    run = simulate(policy_of(variant, problem), problem, SETTING.price, seed)
    return Measured(
        float(run.columns["spent"].mean()),
        float(run.columns["effective_samples"][-1]) / rounds,
        float(run.columns["under_way"].max()),
        run.spent_in_vain,
    )


def rows(delays: Sequence[int], seeds: Sequence[int], rounds: int) -> list[dict[str, object]]:
    """The table."""
    table = []
    for variant in VARIANTS:
        for delay in delays:
            runs = [measured(variant, delay, seed, rounds) for seed in seeds]
            effective = estimate([run.effective for run in runs])
            spent = estimate([run.spent for run in runs])
            table.append(
                {
                    "policy": variant,
                    "delay": delay,
                    "effective_per_round": f"{effective.mean:.2f}",
                    "effective_half_width": f"{effective.half_width:.2f}",
                    "spent_per_round": f"{spent.mean:.2f}",
                    "spent_half_width": f"{spent.half_width:.2f}",
                    "most_under_way": f"{np.mean([run.under_way for run in runs]):.0f}",
                    "spent_in_vain": f"{np.mean([run.in_vain for run in runs]):.2f}",
                }
            )
            print(*table[-1].values(), sep=" | ", flush=True)
    return table


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("counts.csv"))
    parser.add_argument("--rounds", type=int, default=1000)
    parser.add_argument("--seeds", type=int, default=10)
    given = parser.parse_args()
    write_csv(given.out, rows(DELAYS, range(given.seeds), given.rounds))
