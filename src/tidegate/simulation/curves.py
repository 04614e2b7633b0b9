"""How much more money, or more memory, adds under each policy."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from tidegate._internal.arrays import IntArray
from tidegate.policies import JointPolicy
from tidegate.prices import PriceLaw
from tidegate.problem import Problem
from tidegate.simulation.limits import most_effective
from tidegate.simulation.rounds import simulate
from tidegate.simulation.summary import PolicySummary, summarise
from tidegate.wire import LARGEST_CAPACITY

FACTORS = tuple(float(2 ** (step / 2)) for step in range(-4, 5))
"""Factors of the given budget or memory: from a quarter to four times."""
MORE = 1.1
"""Times the budget or the memory, for what a tenth more adds."""
ROUNDING = 1e-9
"""Slots: a share that is nearer to a whole number counts as that number."""
LEAST_ELASTICITY = 0.1
"""Below it, 10 % more of something adds less than 1 % more effective samples."""

Maker = Callable[[Problem], JointPolicy[Any]]


@dataclass(frozen=True)
class Point:
    """One budget, or one size of memory."""

    amount: float
    """Money a round, or slots of the fleet."""
    policies: Mapping[str, PolicySummary]
    limit: float | None
    """The most effective samples a round that any rule can gain, if known."""


@dataclass(frozen=True)
class Curves:
    """Points in rising order of money or memory."""

    points: Sequence[Point]

    @property
    def amounts(self) -> list[float]:
        """The amounts of money or memory."""
        return [point.amount for point in self.points]

    def effective(self, policy: str) -> list[float]:
        """Return effective samples a round at each point."""
        return [point.policies[policy].effective_per_round.mean for point in self.points]

    def stops_helping(self, policy: str) -> float | None:
        """Return the amount above which 10 % more adds less than 1 % more effective samples.

        None if it still adds more at the largest simulated amount.
        """
        gained = np.log(np.maximum(self.effective(policy), 1e-12))
        elastic = np.diff(gained) / np.diff(np.log(self.amounts)) >= LEAST_ELASTICITY
        if elastic[-1]:
            return None
        useful = np.flatnonzero(elastic)
        return self.amounts[int(useful[-1]) + 1 if len(useful) else 0]


def by_budget(problem: Problem) -> list[tuple[float, Problem]]:
    """Return the same problem with less and with more money."""
    budgets = [factor * problem.budget for factor in FACTORS]
    return [(budget, replace(problem, budget=budget)) for budget in budgets]


def by_memory(problem: Problem) -> list[tuple[float, Problem]]:
    """Return the same problem with smaller and with larger buffers; each size once."""
    changed = {}
    for factor in FACTORS:
        sizes = np.clip(np.rint(factor * problem.capacities), 1, LARGEST_CAPACITY)
        slots = sizes.astype(np.int64)
        changed[float(slots.sum())] = replace(problem, buffer_capacities=slots)
    return list(changed.items())


def with_a_tenth_more(problem: Problem) -> dict[str, Problem]:
    """Return the same problem with a tenth more ``budget``, and with a tenth more ``memory``.

    Slots are whole, so clients whose share has the largest fraction get one more. Where clients
    train on a part of what they store, there is a third one, with a tenth more ``training``.

    >>> four = Problem(buffer_capacities=[4] * 5, budget=10.0, mean_price=1.0, num_rounds=9)
    >>> with_a_tenth_more(four)["memory"].capacities
    array([5, 5, 4, 4, 4])
    """
    slots = np.minimum(_a_tenth_more(problem.capacities), LARGEST_CAPACITY)
    more = {
        "budget": replace(problem, budget=MORE * problem.budget),
        "memory": replace(problem, buffer_capacities=slots),
    }
    if problem.train_on is not None:
        more["training"] = replace(problem, train_on=_a_tenth_more(np.asarray(problem.train_on)))
    return more


def _a_tenth_more(counts: IntArray) -> IntArray:
    share = MORE * counts
    whole: IntArray = np.floor(share + ROUNDING).astype(np.int64)
    total, before = int(whole.sum()), int(counts.sum())
    left = max(round(MORE * before), before + 1) - total
    whole[np.argsort(whole - share, kind="stable")[:left]] += 1
    return whole


def trace(
    problems: Sequence[tuple[float, Problem]],
    law: PriceLaw,
    makers: Mapping[str, Maker],
    seeds: Sequence[int],
    *,
    price_per_client: bool = False,
    each_round: Callable[[], None] | None = None,
) -> Curves:
    """Simulate every policy on every problem, on the same price paths.

    Args:
        problems: each with its amount of money or memory.
        law: the price law.
        makers: functions that make policies, by name.
        seeds: the seeds of the price paths.
        price_per_client: whether each client has its own price.
        each_round: called after every round, for a progress bar.
    """
    points = []
    for amount, problem in problems:
        summaries = {
            name: play(
                name,
                make(problem),
                problem,
                law,
                seeds,
                price_per_client=price_per_client,
                each_round=each_round,
            )
            for name, make in makers.items()
        }
        points.append(Point(amount, summaries, most_effective(problem, law)))
    return Curves(points)


def play(
    name: str,
    policy: JointPolicy[Any],
    problem: Problem,
    law: PriceLaw,
    seeds: Sequence[int],
    *,
    price_per_client: bool,
    each_round: Callable[[], None] | None,
) -> PolicySummary:
    """Simulate a policy on the price paths of all seeds, and summarise it under a name."""
    runs = [
        simulate(
            policy, problem, law, seed, price_per_client=price_per_client, each_round=each_round
        )
        for seed in seeds
    ]
    return summarise(name, runs)
