"""What no rule can exceed for a budget, and what buffers gain that are as full as they can be."""

from tidegate.errors import ConfigurationError
from tidegate.prices import PriceLaw
from tidegate.problem import Problem
from tidegate.theory.distribution import price_distribution
from tidegate.theory.optimum import Optimum, optimum


def most_effective(problem: Problem, law: PriceLaw) -> float | None:
    """Return the most effective samples a round that any rule can gain; None if it is unknown.

    Effective samples are at most the distinct ones, and most distinct ones are bought where all
    slots are filled anew whenever prices are lowest. So a cap on uses does not change it, and it
    rises with money and with memory. Nor are there more of them than uses.

    >>> from tidegate.prices import UniformPrice
    >>> mnist = Problem(buffer_capacities=[100], budget=55.0, mean_price=5.5, num_rounds=1000)
    >>> round(most_effective(mnist, UniformPrice(1, 10)), 2)
    25.57
    """
    best = _optimum(problem, law, most_uses=1, chance=1.0)
    trains = problem.chance * problem.slots_a_round
    return None if best is None else min(best.effective_per_round, trains)


def full_buffers(problem: Problem, law: PriceLaw, most_uses: int | None) -> Optimum | None:
    """Return the most that buffers gain which are as full as a cap on uses and the budget allow.

    None if it is unknown: where each client has a column of prices, where delays vary (arrivals
    then spread out what was bought in bursts), with a cap where clients train on a part of what
    they store, or with a budget so small that samples would have to stay for ten thousand rounds.
    """
    if most_uses is not None and problem.chance < 1:
        return None
    return _optimum(problem, law, most_uses, problem.chance)


def _optimum(
    problem: Problem, law: PriceLaw, most_uses: int | None, chance: float
) -> Optimum | None:
    if not problem.delays.constant:
        return None
    try:
        prices = price_distribution(law, problem.num_rounds)
        return optimum(prices, problem.budget, problem.slots_a_round, most_uses, chance)
    except ConfigurationError:
        return None
