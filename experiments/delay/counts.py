"""What a delay costs in effective samples: policies by delay, on counts alone.

python experiments/delay/counts.py --out experiments/delay/counts.csv

The paper's MNIST control setting, 1,000 rounds. Two rows are not policies that Tidegate has: Tide
that does not look at the delay, and Tide that counts a sample under way as if it were stored, which
needs memory for all that is under way beside its slots.
"""

import argparse
import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tidegate.admission.rule import FleetOrder, Quote
from tidegate.admission.tide import Tide, TideState
from tidegate.policies import ControlOptions, JointPolicy
from tidegate.policies.presets import EXPERIMENTS, make_policy
from tidegate.problem import Problem
from tidegate.problem.delays import Delays
from tidegate.report.comparison import write_csv
from tidegate.simulation.rounds import Run, simulate
from tidegate.simulation.summary import estimate

SETTING = EXPERIMENTS["mnist"]
DELAYS = (0, 1, 3, 10, 50)
HARD = ControlOptions(hard_capacity=True)


@dataclass(frozen=True, eq=False)
class Unaware(Tide):
    """Tide that takes every sample to train at once."""

    def decide(self, state: TideState, quote: Quote, limit: float) -> FleetOrder:
        """As if nothing were late."""
        return super().decide(state, dataclasses.replace(quote, delay=0.0), limit)


@dataclass(frozen=True)
class Measured:
    """What one run came to, a round."""

    spent: float
    effective: float
    under_way: float
    """The most that was under way."""


VARIANTS = {
    "constant_admission": 1,
    "constant_admission, hard capacity": 1,
    "acdpp": 1,
    "tide, not looking at the delay": 1,
    "tide": 1,
    "tide, 2 times the slots": 2,
    "tide, 4 times the slots": 4,
    "tide, under way as if stored": 1,
}
"""With times the slots of the setting."""


def policy_of(variant: str, problem: Problem) -> JointPolicy[Any]:
    """The policy of a variant."""
    name, _, how = variant.partition(", ")
    policy = make_policy(name, problem, HARD if how == "hard capacity" else ControlOptions())
    if how.startswith("not") and isinstance(policy.admission, Tide):
        return dataclasses.replace(policy, admission=Unaware(**vars(policy.admission)))
    return policy


def measured(variant: str, delay: int, seed: int, rounds: int) -> Measured:
    """One variant on one seed."""
    problem = SETTING.problem(rounds)
    slots = VARIANTS[variant] * problem.capacities
    as_if_stored = variant.endswith("stored")
    delays = Delays() if as_if_stored else Delays(delay, delay)
    problem = dataclasses.replace(problem, buffer_capacities=slots, delays=delays)
    run = simulate(policy_of(variant, problem), problem, SETTING.price, seed)
    if as_if_stored:
        return _later(run, delay)
    return Measured(
        float(run.columns["spent"].mean()),
        float(run.columns["effective_samples"][-1]) / rounds,
        float(run.columns["under_way"].max()),
    )


def _later(run: Run, delay: int) -> Measured:
    """The same purchases, each of which trains so many rounds later.

    The rule sees what is under way as if it were stored, so it decides as without a delay; every
    round trains on what a run without a delay would have trained on so many rounds before.
    """
    bought, rounds = run.columns["admitted"], len(run.columns["admitted"])
    effective = run.columns["effective_samples"][rounds - delay - 1]
    waiting = np.cumsum(bought) - np.concatenate([np.zeros(delay), np.cumsum(bought)])[:rounds]
    return Measured(
        float(run.columns["spent"].mean()), float(effective) / rounds, float(waiting.max())
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
