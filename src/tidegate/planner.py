"""The paper's offline selection of K: try it on the price law before the run.

The target admission is what the budget pays for, C / c̄. A K too large for it makes the average
buffer overflow without end; of those that do not, the one with the best bound is taken.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from tidegate.arrays import FloatArray
from tidegate.policies import DEFAULT_OPTIONS, ControlOptions
from tidegate.policies.acdpp import acdpp
from tidegate.prices import PriceLaw
from tidegate.problem import Problem
from tidegate.simulation import Run, simulate
from tidegate.theory.bounds import buffer_violation
from tidegate.theory.planning import plan_constant_admission


@dataclass(frozen=True)
class Candidate:
    """One K, simulated."""

    retention_horizon: int
    halfway_violation: float
    """Vio^B(T/2)."""
    final_violation: float
    """Vio^B(T)."""
    bounded: bool
    """In the second half of the run it grew by at most one sample a client."""
    bound_per_round: float


def candidate_horizons(problem: Problem) -> range:
    """Every K up to twice the closed form's."""
    return range(1, 2 * plan_constant_admission(problem).retention_horizon + 1)


def try_horizons(
    problem: Problem,
    price_law: PriceLaw,
    *,
    horizons: Iterable[int],
    seeds: Sequence[int] = (0,),
    options: ControlOptions = DEFAULT_OPTIONS,
    each_round: Callable[[], None] | None = None,
) -> list[Candidate]:
    """Simulate ACDPP with each K on the price law."""
    middle = problem.num_rounds // 2
    if not middle:
        raise ValueError("offline selection compares two halves of a run: give at least 2 rounds")
    candidates = []
    for horizon in horizons:
        policy = acdpp(
            problem,
            options,
            retention_horizon=horizon,
            target_admission=problem.affordable_admission,
        )
        halves, wholes, bounds = [], [], []
        for seed in seeds:
            half = simulate(policy, problem, price_law, seed, until=middle, each_round=each_round)
            whole = simulate(
                policy, problem, price_law, seed, resume=half.final, each_round=each_round
            )
            halves.append(half)
            wholes.append(whole)
            bounds.append(np.concatenate([half.columns["bound"], whole.columns["bound"]]).mean())
        halfway = _violation(problem, halves, middle)
        final = _violation(problem, wholes, problem.num_rounds)
        candidates.append(
            Candidate(
                retention_horizon=horizon,
                halfway_violation=halfway,
                final_violation=final,
                bounded=final <= halfway + problem.num_clients,
                bound_per_round=float(np.mean(bounds)),
            )
        )
    return candidates


def select_offline(candidates: Iterable[Candidate]) -> Candidate:
    """The best bound among those whose buffer violation stays bounded."""
    bounded = [candidate for candidate in candidates if candidate.bounded]
    if not bounded:
        raise ValueError(
            "no candidate K keeps its buffer violation bounded; try smaller ones, or lower the "
            "budget: even one round's admission is more than memory holds"
        )
    return min(bounded, key=lambda candidate: candidate.bound_per_round)


def _violation(problem: Problem, runs: Sequence[Run], rounds: int) -> float:
    occupancy: FloatArray = np.mean([run.mean_occupancy for run in runs], axis=0)
    return buffer_violation(occupancy, problem.capacities, rounds)
