"""The cost of a cap on uses: the limit, and a simulation of Tide, for each cap."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from tidegate.errors import ConfigurationError
from tidegate.policies import JointPolicy
from tidegate.prices import PriceLaw
from tidegate.problem import Problem
from tidegate.simulation.curves import play
from tidegate.simulation.summary import PolicySummary
from tidegate.theory.distribution import price_distribution
from tidegate.theory.optimum import Optimum, optimum

CAPS = (1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512)
"""The caps to try, in rounds; higher ones make no difference in practice."""
NEARLY = 0.999
"""A cap that keeps this part of the limit and of the stored samples costs nothing."""


@dataclass(frozen=True)
class CapPoint:
    """One cap on uses."""

    most_uses: int
    """U."""
    limit: Optimum
    """The most that buffers can gain if they are as full as the cap and the budget allow."""
    policy: PolicySummary
    """The simulation of Tide."""


def looked_at(problem: Problem, law: PriceLaw, chosen: int | None = None) -> dict[int, Optimum]:
    """Return the limit for each cap that makes a difference, and for the chosen one.

    Empty if no limit is known: if clients train on a part of what they store, each client has its
    own column of prices, or the budget is so small that samples would have to stay for ten thousand
    rounds.
    """
    budget, slots = problem.budget, problem.slots_a_round
    if problem.chance < 1:
        return {}
    try:
        prices = price_distribution(law, problem.num_rounds)
        free = optimum(prices, budget, slots)
    except ConfigurationError:
        return {}
    found = {}
    for cap in CAPS:
        found[cap] = optimum(prices, budget, slots, cap)
        kept = found[cap].effective_per_round >= NEARLY * free.effective_per_round
        if kept and found[cap].stored_per_round >= NEARLY * slots:
            break
    if chosen is not None and chosen not in found:
        found[chosen] = optimum(prices, budget, slots, chosen)
    return dict(sorted(found.items()))


def try_caps(
    problem: Problem,
    law: PriceLaw,
    limits: dict[int, Optimum],
    make: Callable[[int], JointPolicy[Any]],
    seeds: Sequence[int],
    *,
    price_per_client: bool = False,
    each_round: Callable[[], None] | None = None,
) -> list[CapPoint]:
    """Simulate a policy under every cap, on the same price paths.

    Args:
        problem: the problem.
        law: the price law.
        limits: by cap, the result of ``looked_at``.
        make: returns the policy for a cap.
        seeds: the seeds of the price paths.
        price_per_client: whether each client has its own price.
        each_round: called after every round, for a progress bar.
    """
    points = []
    for cap, limit in limits.items():
        summary = play(
            f"tide, {cap} uses",
            make(cap),
            problem,
            law,
            seeds,
            price_per_client=price_per_client,
            each_round=each_round,
        )
        points.append(CapPoint(cap, limit, summary))
    return points
