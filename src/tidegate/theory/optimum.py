"""The best that any rule with full buffers can reach: the limit that policies are held against.

Every slot holds one sample at all times, and a fresh sample takes the place of an old one; ΣA grows
by one a slot and round. In the long run the effective sample size grows by n / q a round, q being
the average growth of ΣA² of one slot. So the limit is the least q that can be had for b = C / n a
slot and round. With a multiplier μ on money each slot is a decision problem of its own
(``theory.slot_rule``). g(μ) - μ·b is concave in μ, and at its top equals the smallest possible q
(Lagrange); where the best rule's spending jumps over b, some slots follow the rule above the jump
and the others the rule below.

With a cap of U uses, slots are empty in a part 1 - s of the rounds where b does not pay for
replacing every sample in time; ΣA then grows by s, and the effective sample size by n·s² / q.
"""

import math
from dataclasses import dataclass
from functools import partial

from tidegate.errors import ConfigurationError
from tidegate.theory.distribution import PriceDistribution
from tidegate.theory.least_spending import least_spending
from tidegate.theory.slot_rule import (
    LONGEST_LIFE,
    MOST_STEPS,
    PRECISION,
    SlotRule,
    bellman_residual,
    best_rule,
)

ROUNDING = 1e-12
"""Relative, of two sums of the same prices in another order."""
UNAFFORDABLE = 1e4
"""A rule that grows ΣA² by no more than the longest life and spends ``allowed``, less 1 part in
this, would be better at a multiplier of this times the longest life over ``allowed``."""


@dataclass(frozen=True)
class SlotPlan:
    """The best that slots can do for an allowance: two rules, each followed part of the time."""

    more: SlotRule
    """Spends the allowance or more."""
    less: SlotRule
    """Spends the allowance or less."""
    share: float
    """Of the slots, or of the time, that follow ``less``."""
    best: SlotRule
    """At the multiplier at which both cost the same."""

    @property
    def growth(self) -> float:
        """Q of the mixture."""
        return self.share * self.less.growth + (1 - self.share) * self.more.growth

    @property
    def filled(self) -> float:
        """The part of the rounds in which a slot of the mixture holds a sample."""
        return self.share * self.less.filled + (1 - self.share) * self.more.filled

    @property
    def loss(self) -> float:
        """What the mixture costs besides money, a round."""
        return self.share * self.less.loss + (1 - self.share) * self.more.loss

    @property
    def spent(self) -> float:
        """Money a round of the mixture: the allowance, unless it pays for everything."""
        return self.share * self.less.spent + (1 - self.share) * self.more.spent

    @property
    def replaced(self) -> float:
        """Samples a round of the mixture."""
        return self.share * self.less.replaced + (1 - self.share) * self.more.replaced


@dataclass(frozen=True)
class Optimum:
    """The limit for a fleet, a round."""

    effective_per_round: float
    distinct_per_round: float
    stored_per_round: float
    """Samples in all buffers together; all slots, unless a cap on uses leaves some empty."""
    spent_per_round: float
    multiplier: float
    thresholds: tuple[float, ...]
    """Of a best rule at this μ; where its spending jumps over the budget, two are mixed."""
    filling: float
    """Its price up to which a slot is filled whose sample was used as often as it may be."""
    duality_gap: float
    """By how much, relatively, a better rule could still beat this one: certified."""
    bellman_residual: float
    """Largest violation of the optimality equation by the thresholds, relative to g."""


def optimum(
    prices: PriceDistribution,
    budget: float,
    total_capacity: float,
    most_uses: int | None = None,
) -> Optimum:
    """The most effective samples a round that full buffers can gain for a budget.

    Args:
        prices: how prices are distributed.
        budget: C.
        total_capacity: ΣB_m.
        most_uses: U, rounds in which one sample may train at most; none for no cap. Where the
            budget does not pay for that, buffers are as full as it can make them.

    >>> from tidegate.theory.distribution import UniformDistribution
    >>> best = optimum(UniformDistribution(1, 10), budget=55.0, total_capacity=100)
    >>> round(best.effective_per_round, 2), round(best.multiplier, 2)
    (18.64, 6.64)
    >>> tuple(round(threshold, 2) for threshold in best.thresholds[:4])
    (1.21, 2.2, 3.03, 3.75)
    >>> capped = optimum(UniformDistribution(1, 10), 55.0, total_capacity=100, most_uses=10)
    >>> round(capped.effective_per_round, 2), round(capped.stored_per_round, 2)
    (18.6, 100.0)
    """
    if not (math.isfinite(budget) and budget > 0 and total_capacity > 0):
        raise ValueError(f"need a positive budget and capacity, got {budget} and {total_capacity}")
    if most_uses is not None and most_uses < 1:
        raise ValueError(f"a sample trains in at least 1 round, got most_uses={most_uses}")
    allowed = budget / total_capacity
    if most_uses is None or most_uses > LONGEST_LIFE:
        _check_affordable(prices, allowed, total_capacity)
    plan = plan_slots(prices, allowed, most_uses=most_uses)
    bound = plan.best.average_cost - plan.best.multiplier * plan.spent
    return Optimum(
        effective_per_round=total_capacity * plan.filled**2 / plan.growth,
        distinct_per_round=total_capacity * plan.replaced,
        stored_per_round=total_capacity * plan.filled,
        spent_per_round=total_capacity * plan.spent,
        multiplier=plan.best.multiplier,
        thresholds=plan.best.thresholds,
        filling=min(plan.best.filling, prices.highest),
        duality_gap=max(plan.loss / bound - 1, 0.0),
        bellman_residual=bellman_residual(prices, plan.best, most_uses)
        if plan.best.multiplier
        else 0.0,
    )


def _check_affordable(prices: PriceDistribution, allowed: float, total_capacity: float) -> None:
    """Refuse a budget that no rule can keep to, before any is looked for."""
    if prices.mean <= allowed * LONGEST_LIFE:
        return
    least = least_spending(prices, LONGEST_LIFE)
    if least > allowed:
        raise ConfigurationError(
            f"the budget allows {allowed:g} for a slot and round; samples that are kept up to "
            f"{LONGEST_LIFE} rounds cost {least:g}: raise the budget to at least "
            f"{least * total_capacity:g}, or plan for fewer slots"
        )


def plan_slots(
    prices: PriceDistribution,
    allowed: float,
    *,
    most_uses: int | None = None,
    longest_life: int = LONGEST_LIFE,
    precision: float = PRECISION,
) -> SlotPlan:
    """The best for a slot that may spend ``allowed`` a round; the cheapest, if all cost more.

    Args:
        prices: how prices are distributed.
        allowed: b.
        most_uses: U, none for no cap.
        longest_life: a sample that was used more often is replaced at any price.
        precision: relative, of what a round costs.
    """
    if prices.mean <= allowed * (1 + ROUNDING):
        fresh = SlotRule(0.0, 1.0, 1.0, prices.mean, 1.0, (prices.highest,))
        return SlotPlan(more=fresh, less=fresh, share=0.0, best=fresh)
    solve = partial(
        best_rule, prices, most_uses=most_uses, longest_life=longest_life, precision=precision
    )
    is_capped = most_uses is not None and most_uses <= longest_life  # then buying nothing is a rule
    # Of a life of L rounds at a constant price c, the multiplier would be L²/c = c/allowed².
    more = less = solve(prices.mean / allowed**2)
    while less.spent > allowed:
        if not is_capped and less.multiplier * allowed > UNAFFORDABLE * longest_life:
            return SlotPlan(more=less, less=less, share=1.0, best=less)
        more, less = less, solve(4 * less.multiplier, less)
    while more.spent <= allowed:
        more, less = solve(more.multiplier / 4, more), more
    rule = less
    for step in range(MOST_STEPS):
        # g(μ) lies below both rules' straight lines; where they meet, it is highest if it can be
        # anywhere between. Halving in turn makes sure that both ends move.
        halving = step % 2 == 1
        meeting = (less.loss - more.loss) / (more.spent - less.spent)
        if meeting <= 0:
            break  # what ``more`` buys for its money is too little to be seen
        middle = (more.multiplier + less.multiplier) / 2 if halving else meeting
        rule = solve(middle, less)
        line = more.loss + middle * more.spent
        if not halving and rule.average_cost >= line * (1 - precision):
            break
        if rule.spent > allowed:
            more = rule
        else:
            less = rule
    share = (more.spent - allowed) / (more.spent - less.spent)
    return SlotPlan(more=more, less=less, share=share, best=rule)
