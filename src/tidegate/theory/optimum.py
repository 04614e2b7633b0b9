"""The best that any rule with full buffers can reach: the limit that policies are held against.

Every slot holds one sample at all times, and a fresh sample takes the place of an old one. A slot
whose sample was used a times adds 2a + 1 to ΣA² in a round that keeps it, and 1 in a round that
replaces it, at price c; ΣA grows by one either way. In the long run the effective sample size
grows by n / q a round, q being the average growth of ΣA² of one slot. So the limit is the least q
that can be had for b = C / n a slot and round. With a multiplier μ on money this is an average-cost
decision problem,

    g + h(a) = E_c[ min( 2a + 1 + h(a+1),  μ·c + 1 + h(1) ) ],

solved by price thresholds θ(a) = (2a + h(a+1) - h(1)) / μ that rise with a. The lives of the
samples that pass through a slot are independent, so g is the least cost of a life divided by its
length, and Newton's method on g converges in a few steps (Dinkelbach). g(μ) - μ·b is concave in μ,
and at its top equals the smallest possible q (Lagrange); where the best rule's spending jumps over
b, some slots follow the rule above the jump and the others the rule below.
"""

import math
from dataclasses import dataclass

from tidegate.theory.distribution import PriceDistribution

PRECISION = 1e-13
"""Relative, of g and of μ."""
MOST_STEPS = 200
LONGEST_LIFE = 1_000_000
"""Rounds; a budget that small is refused."""


@dataclass(frozen=True)
class SlotRule:
    """What one slot does in the long run under the best rule for a multiplier."""

    multiplier: float
    """μ, growth of ΣA² that one unit of money is worth."""
    average_cost: float
    """g, growth plus μ times money, a round."""
    growth: float
    """q, of ΣA² a round."""
    spent: float
    """Money a round."""
    replaced: float
    """Samples a round."""
    thresholds: tuple[float, ...]
    """θ(1), θ(2), ...: a sample used a times is replaced at a price up to θ(a); the last one is
    reached by every price."""


@dataclass(frozen=True)
class Optimum:
    """The limit for a fleet, a round."""

    effective_per_round: float
    distinct_per_round: float
    spent_per_round: float
    multiplier: float
    thresholds: tuple[float, ...]
    """Of a best rule at this μ; where its spending jumps over the budget, two are mixed."""
    duality_gap: float
    """By how much, relatively, a better rule could still beat this one: certified."""
    bellman_residual: float
    """Largest violation of the optimality equation by the thresholds, relative to g."""


def best_rule(prices: PriceDistribution, multiplier: float, guess: float | None = None) -> SlotRule:
    """The rule of least average cost for a multiplier μ > 0.

    Args:
        prices: how prices are distributed.
        multiplier: μ.
        guess: of g, from a multiplier near by; any will do.
    """
    always = multiplier * prices.mean + 1.0
    cost = always if guess is None else min(guess, always)
    for _ in range(MOST_STEPS):
        length, growth, spent, thresholds = _life(prices, multiplier, cost)
        better = (growth + multiplier * spent) / length
        if abs(better - cost) <= PRECISION * abs(cost):
            break
        cost = better
    return SlotRule(
        multiplier=multiplier,
        average_cost=better,
        growth=growth / length,
        spent=spent / length,
        replaced=1 / length,
        thresholds=thresholds,
    )


def _life(
    prices: PriceDistribution, multiplier: float, cost: float
) -> tuple[float, float, float, tuple[float, ...]]:
    """Expected length, growth and price of a life that is best at this cost of a round.

    Backwards over ages, from one at which every price replaces the sample. ``relative`` is h(a) -
    h(1) at the trial cost g.
    """
    relative = multiplier * prices.mean + 1.0 - cost
    oldest = max(math.ceil((multiplier * prices.highest - relative) / 2), 1)
    if oldest > LONGEST_LIFE:
        raise ValueError(
            f"samples would be kept for up to {oldest} rounds, the limit is {LONGEST_LIFE}; "
            "the budget is too small beside the prices"
        )
    length, growth, spent = 1.0, 1.0, prices.mean
    thresholds = []
    for age in range(oldest, 0, -1):
        threshold = (2 * age + relative) / multiplier
        thresholds.append(threshold)
        replaced, paid = prices.up_to(threshold)
        kept = 1.0 - replaced
        relative = kept * (2 * age + 1 + relative) + multiplier * paid + replaced - cost
        length = 1.0 + kept * length
        growth = kept * (2 * age + 1 + growth) + replaced
        spent = kept * spent + paid
    return length, growth, spent, tuple(reversed(thresholds))


def optimum(prices: PriceDistribution, budget: float, total_capacity: int) -> Optimum:
    """The most effective samples a round that full buffers can gain for a budget.

    >>> from tidegate.theory.distribution import UniformDistribution
    >>> best = optimum(UniformDistribution(1, 10), budget=55.0, total_capacity=100)
    >>> round(best.effective_per_round, 2), round(best.multiplier, 2)
    (18.64, 6.64)
    >>> [round(threshold, 2) for threshold in best.thresholds[:4]]
    [1.21, 2.2, 3.03, 3.75]
    """
    if not (math.isfinite(budget) and budget > 0 and total_capacity >= 1):
        raise ValueError(f"need a positive budget and capacity, got {budget} and {total_capacity}")
    allowed = budget / total_capacity
    if prices.mean <= allowed:
        return _every_round(prices, total_capacity)
    low, high, best = _around(prices, allowed)
    share = (low.spent - allowed) / (low.spent - high.spent)
    growth = share * high.growth + (1 - share) * low.growth
    bound = best.average_cost - best.multiplier * allowed
    replaced = share * high.replaced + (1 - share) * low.replaced
    return Optimum(
        effective_per_round=total_capacity / growth,
        distinct_per_round=total_capacity * replaced,
        spent_per_round=total_capacity * (share * high.spent + (1 - share) * low.spent),
        multiplier=best.multiplier,
        thresholds=best.thresholds,
        duality_gap=max(growth / bound - 1, 0.0),
        bellman_residual=bellman_residual(prices, best),
    )


def _every_round(prices: PriceDistribution, total_capacity: int) -> Optimum:
    """Money does not bind: every slot takes a fresh sample in every round."""
    return Optimum(
        effective_per_round=float(total_capacity),
        distinct_per_round=float(total_capacity),
        spent_per_round=total_capacity * prices.mean,
        multiplier=0.0,
        thresholds=(prices.highest,),
        duality_gap=0.0,
        bellman_residual=0.0,
    )


def _around(prices: PriceDistribution, allowed: float) -> tuple[SlotRule, SlotRule, SlotRule]:
    """A rule that spends more than ``allowed``, one that spends less, and one at the best μ.

    All three cost the same at that μ, so that no mixture is better than that of the first two.
    """
    low = high = best_rule(prices, 1.0)
    while high.spent > allowed:
        low, high = high, best_rule(prices, 4 * high.multiplier)
    while low.spent <= allowed:
        low, high = best_rule(prices, low.multiplier / 4), low
    for step in range(MOST_STEPS):
        # g(μ) lies below both rules' straight lines; where they meet, it is highest if it can be
        # anywhere between. Halving in turn makes sure that both ends move.
        halving = step % 2 == 1
        meeting = (high.growth - low.growth) / (low.spent - high.spent)
        middle = (low.multiplier + high.multiplier) / 2 if halving else meeting
        rule = best_rule(prices, middle, guess=high.average_cost)
        if not halving and rule.average_cost >= (low.growth + middle * low.spent) * (1 - PRECISION):
            break
        if rule.spent > allowed:
            low = rule
        else:
            high = rule
    return low, high, rule


def bellman_residual(prices: PriceDistribution, rule: SlotRule) -> float:
    """How far a rule is from the optimality equation, at any age, relative to g.

    h is computed from the thresholds themselves; one step of the equation must give it back.
    """
    mu, g = rule.multiplier, rule.average_cost
    # h(a+1) - h(1) from θ(a), for a = 1, 2, ...; and h(1) - h(1) = 0 before them.
    relative = [0.0, *(mu * theta - 2 * age for age, theta in enumerate(rule.thresholds, start=1))]
    worst = 0.0
    for age, here in enumerate(relative[:-1], start=1):
        keep = 2 * age + 1 + relative[age]
        replaced, paid = prices.up_to((keep - 1) / mu)
        step = (1 - replaced) * keep + mu * paid + replaced - g
        worst = max(worst, abs(step - here))
    return worst / g
