"""The paper's offline selection of K: simulate each K on the price law before the run.

The target admission is what the budget pays for, C / c̄, and at most the total capacity. If K is
too large for it, the average buffer overflow grows without limit; of the other K, the selection
takes the one with the best bound. The second half of the run decides whether the overflow grows,
because the empty buffers of the first rounds could hide it.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from tidegate.admission.interval import ClosingInterval
from tidegate.errors import ConfigurationError
from tidegate.policies import DEFAULT_OPTIONS, ControlOptions
from tidegate.policies.acdpp import acdpp
from tidegate.prices import Prices
from tidegate.problem import Problem
from tidegate.simulation.rounds import Run, simulate
from tidegate.simulation.summary import mean_excess
from tidegate.theory import parameters
from tidegate.theory.bounds import buffer_violation


@dataclass(frozen=True)
class Candidate:
    """The simulation of one K."""

    retention_horizon: int
    halfway_violation: float
    """Vio^B(T/2)."""
    final_violation: float
    """Vio^B(T)."""
    bounded: bool
    """Whether each client, and the fleet, kept to its capacity in the second half of the run."""
    bound_per_round: float


def candidate_horizons(problem: Problem) -> range:
    """Return every K up to twice that of the closed form, and at most T."""
    largest = 2 * parameters.plan_constant_admission(problem).retention_horizon
    return range(1, min(largest, problem.num_rounds) + 1)


def try_horizons(  # noqa: PLR0913 - all but two are given by name
    problem: Problem,
    prices: Prices,
    *,
    horizons: Iterable[int],
    seeds: Sequence[int] = (0,),
    options: ControlOptions = DEFAULT_OPTIONS,
    penalty_exponent: float = parameters.PENALTY_EXPONENT,
    contraction_exponent: float = parameters.CONTRACTION_EXPONENT,
    price_per_client: bool = False,
    each_round: Callable[[], None] | None = None,
) -> list[Candidate]:
    """Simulate ACDPP with each K; prices as for ``simulate``, exponents as for ``acdpp``."""
    middle = problem.num_rounds // 2
    if not middle:
        raise ConfigurationError(
            "offline selection compares two halves of a run: give at least 2 rounds"
        )
    play = partial(simulate, price_per_client=price_per_client, each_round=each_round)
    target = min(problem.affordable_admission, problem.slots_a_round)
    closing = parameters.contraction(problem.num_rounds, contraction_exponent)
    interval = ClosingInterval(target, closing)
    candidates = []
    for horizon in horizons:
        policy = acdpp(
            problem,
            options,
            retention_horizon=horizon,
            target_admission=target,
            penalty_exponent=penalty_exponent,
            contraction_exponent=contraction_exponent,
        )
        halves = [play(policy, problem, prices, seed, until=middle) for seed in seeds]
        wholes = [play(policy, problem, prices, half.seed, resume=half.final) for half in halves]
        still_open = sum(
            interval.at(now).upper - target
            for now in range(max(middle - horizon, 0) + 1, problem.num_rounds + 1)
        )
        candidates.append(_candidate(horizon, still_open, halves, wholes))
    return candidates


def _candidate(
    horizon: int, still_open: float, halves: Sequence[Run], wholes: Sequence[Run]
) -> Candidate:
    halfway, final = mean_excess(halves), mean_excess(wholes)
    excess = final - halfway  # of the second half
    # Each sample is stored for K rounds. Rounding to whole samples moves admissions by at most one,
    # and the interval may still be open by some samples; any further excess grows with the run.
    allowed = horizon * (2 + still_open)
    bounds = [
        np.concatenate([half.columns["bound"], whole.columns["bound"]]).mean()
        for half, whole in zip(halves, wholes, strict=True)
    ]
    return Candidate(
        retention_horizon=horizon,
        halfway_violation=buffer_violation(halfway),
        final_violation=buffer_violation(final),
        bounded=bool(excess.sum() <= allowed and excess.max() <= allowed),
        bound_per_round=float(np.mean(bounds)),
    )


def select_offline(candidates: Iterable[Candidate]) -> Candidate:
    """Return the candidate with the best bound among those whose buffer violation stays bounded."""
    bounded = [candidate for candidate in candidates if candidate.bounded]
    if not bounded:
        raise ConfigurationError(
            "no candidate K keeps its buffer violation bounded; try smaller ones or more rounds"
        )
    return min(bounded, key=lambda candidate: candidate.bound_per_round)
