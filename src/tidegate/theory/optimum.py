"""The limit: the most effective samples that any rule with full buffers can gain.

Every slot always holds one sample, and a fresh sample replaces an old one; ΣA grows by one a slot
and round. In the long run the effective sample size grows by n / q a round, where q is the average
growth of ΣA² of one slot. So the limit follows from the least q for b = C / n a slot and round.
With a multiplier μ on money each slot is a separate decision problem (``theory.slot_rule``).
g(μ) - μ·b is concave in μ, and its maximum is the least possible q (Lagrange); if the best rule's
spending jumps over b, some slots follow the rule above the jump and the others the rule below.

With a cap of U uses, if b does not pay for replacing every sample in time, a slot is filled in a
part s of the rounds; ΣA then grows by s, and the effective sample size by n·s² / q.

Where S samples are stored and n of them train in a round, a slot is used with the chance n / S; ΣA
grows by it. What follows is the most that can be gained if chance decides which samples train. To
train on the least used gains more: uses are then more even.
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
"""The relative difference of two sums of the same prices in another order."""
UNAFFORDABLE = 1e4
"""No rule is affordable if the best one still spends more than ``allowed`` at a multiplier of this
times the longest life over ``allowed``: there, a rule that spent ``allowed`` less 1 part in this
would be better, because ΣA² grows by at most the longest life."""


@dataclass(frozen=True)
class SlotPlan:
    """The best plan of slots for an allowance: two rules, each followed part of the time."""

    more: SlotRule
    """A rule that spends the allowance or more."""
    less: SlotRule
    """A rule that spends the allowance or less."""
    share: float
    """The part of the slots, or of the time, that follows ``less``."""
    best: SlotRule
    """The best rule at the multiplier at which both cost the same."""

    @property
    def growth(self) -> float:
        """The growth of ΣA² a round of the mixture, q."""
        return self.share * self.less.growth + (1 - self.share) * self.more.growth

    @property
    def filled(self) -> float:
        """The part of the rounds in which a slot of the mixture holds a sample."""
        return self.share * self.less.filled + (1 - self.share) * self.more.filled

    @property
    def loss(self) -> float:
        """The cost of a round of the mixture, without money."""
        return self.share * self.less.loss + (1 - self.share) * self.more.loss

    @property
    def spent(self) -> float:
        """The money a round of the mixture: the allowance, unless it pays for everything."""
        return self.share * self.less.spent + (1 - self.share) * self.more.spent

    @property
    def replaced(self) -> float:
        """The samples that the mixture replaces in a round."""
        return self.share * self.less.replaced + (1 - self.share) * self.more.replaced


@dataclass(frozen=True)
class Optimum:
    """The limit of a fleet."""

    effective_per_round: float
    distinct_per_round: float
    stored_per_round: float
    """Samples in all buffers together; all slots, unless a cap on uses leaves some empty."""
    spent_per_round: float
    multiplier: float
    thresholds: tuple[float, ...]
    """Those of a best rule at this μ; if spending jumps over the budget, two rules are mixed."""
    filling: float
    """The price up to which that rule fills a slot whose sample was used U times."""
    duality_gap: float
    """A certified upper bound on the relative gain of any other rule."""
    bellman_residual: float
    """The largest violation of the optimality equation by the thresholds, relative to g."""


def optimum(
    prices: PriceDistribution,
    budget: float,
    total_capacity: float,
    most_uses: int | None = None,
    chance: float = 1.0,
) -> Optimum:
    """Return the most effective samples a round that full buffers can gain for a budget.

    Args:
        prices: the distribution of prices.
        budget: C.
        total_capacity: ΣB_m.
        most_uses: U, the most rounds in which a sample trains; None for no cap. If the budget
            cannot keep the buffers full with this cap, they are as full as it allows.
        chance: the part of the stored samples that trains in a round.

    >>> from tidegate.theory.distribution import UniformDistribution
    >>> best = optimum(UniformDistribution(1, 10), budget=55.0, total_capacity=100)
    >>> round(best.effective_per_round, 2), round(best.multiplier, 2)
    (18.64, 6.64)
    >>> tuple(round(threshold, 2) for threshold in best.thresholds[:4])
    (1.21, 2.2, 3.03, 3.75)
    >>> capped = optimum(UniformDistribution(1, 10), 55.0, total_capacity=100, most_uses=10)
    >>> round(capped.effective_per_round, 2), round(capped.stored_per_round, 2)
    (18.6, 100.0)
    >>> eightfold = optimum(UniformDistribution(1, 10), 55.0, total_capacity=800, chance=1 / 8)
    >>> round(eightfold.effective_per_round, 1)
    30.4
    """
    if not (math.isfinite(budget) and budget > 0 and total_capacity > 0):
        raise ValueError(f"need a positive budget and capacity, got {budget} and {total_capacity}")
    if most_uses is not None and most_uses < 1:
        raise ValueError(f"a sample trains in at least 1 round, got most_uses={most_uses}")
    allowed = budget / total_capacity
    if most_uses is None or most_uses > LONGEST_LIFE:
        _check_affordable(prices, allowed, total_capacity)
    plan = plan_slots(prices, allowed, most_uses=most_uses, chance=chance)
    bound = plan.best.average_cost - plan.best.multiplier * plan.spent
    return Optimum(
        effective_per_round=total_capacity * (chance * plan.filled) ** 2 / plan.growth,
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
    """Refuse a budget that no rule can keep to, before searching for one."""
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
    chance: float = 1.0,
) -> SlotPlan:
    """Return the best plan for ``allowed`` a slot and round; the cheapest rule if all cost more.

    Args:
        prices: the distribution of prices.
        allowed: b.
        most_uses: U; None for no cap.
        longest_life: a sample that was used more often is replaced at any price.
        precision: the relative precision of the cost of a round.
        chance: the part of the stored samples that trains in a round.
    """
    pays = chance * prices.mean
    if pays <= allowed * (1 + ROUNDING):
        fresh = SlotRule(0.0, chance, chance, pays, chance, (prices.highest,), chance=chance)
        return SlotPlan(more=fresh, less=fresh, share=0.0, best=fresh)
    solve = partial(
        best_rule,
        prices,
        most_uses=most_uses,
        longest_life=longest_life,
        precision=precision,
        chance=chance,
    )
    is_capped = most_uses is not None and most_uses <= longest_life  # then buying nothing is a rule
    # For lives of L rounds at a constant price c, the multiplier is L²/c = c/allowed².
    more = less = solve(prices.mean / allowed**2)
    while less.spent > allowed:
        if not is_capped and less.multiplier * allowed > UNAFFORDABLE * longest_life:
            return SlotPlan(more=less, less=less, share=1.0, best=less)
        more, less = less, solve(4 * less.multiplier, less)
    while more.spent <= allowed:
        more, less = solve(more.multiplier / 4, more), more
    rule = less
    for step in range(MOST_STEPS):
        # g(μ) lies below the straight lines of both rules, which meet at the highest possible
        # value. Every second step halves the interval, so that both ends move.
        halving = step % 2 == 1
        meeting = (less.loss - more.loss) / (more.spent - less.spent)
        if meeting <= 0:
            break  # ``more`` gains less than rounding shows
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
