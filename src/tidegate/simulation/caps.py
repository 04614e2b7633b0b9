"""What a cap on uses costs: the limit, and Tide itself, for one cap after another."""

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
"""Rounds, rising; longer lives make no difference to a plan that anybody would draw."""
NEARLY = 0.999
"""Of the limit without a cap, with as many samples stored: higher caps cost nothing."""


@dataclass(frozen=True)
class CapPoint:
    """One cap on uses."""

    most_uses: int
    """U."""
    limit: Optimum
    """What buffers can gain that are as full as the cap and the budget let them be."""
    policy: PolicySummary
    """What Tide gains."""


def looked_at(problem: Problem, law: PriceLaw, chosen: int | None = None) -> dict[int, Optimum]:
    """The limit for each cap that makes a difference, and for the one that is chosen.

    Empty where no limit is known: a column of prices for each client, or a budget so small that
    samples would have to stay for ten thousand rounds.
    """
    budget, slots = problem.budget, problem.slots_a_round
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
        problem: what is given.
        law: of prices.
        limits: by cap, as ``looked_at`` gives them.
        make: the policy for a cap.
        seeds: of the price paths.
        price_per_client: whether each client has a price of its own.
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
