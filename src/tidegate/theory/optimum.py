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
from functools import partial

from tidegate.errors import ConfigurationError
from tidegate.theory.distribution import PriceDistribution
from tidegate.theory.least_spending import least_spending

PRECISION = 1e-13
"""Relative, of g and of μ."""
MOST_STEPS = 200
LONGEST_LIFE = 10_000
"""Rounds; rules that keep a sample longer are not looked at."""
FIRST_AGES = 32
"""Ages to begin with; more are looked at as long as a sample can live to see them."""
NEGLIGIBLE = 1e-18
"""A chance of living on that no sum of floats notices."""
ROUNDING = 1e-12
"""Relative, of two sums of the same prices in another order."""
UNAFFORDABLE = 1e4
"""A rule that grows ΣA² by no more than the longest life and spends ``allowed``, less 1 part in
this, would be better at a multiplier of this times the longest life over ``allowed``."""


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
    for all that are older; hardly any are."""


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
    spent_per_round: float
    multiplier: float
    thresholds: tuple[float, ...]
    """Of a best rule at this μ; where its spending jumps over the budget, two are mixed."""
    duality_gap: float
    """By how much, relatively, a better rule could still beat this one: certified."""
    bellman_residual: float
    """Largest violation of the optimality equation by the thresholds, relative to g."""


def best_rule(
    prices: PriceDistribution,
    multiplier: float,
    near: SlotRule | None = None,
    *,
    longest_life: int = LONGEST_LIFE,
    precision: float = PRECISION,
) -> SlotRule:
    """The rule of least average cost for a multiplier μ > 0.

    Args:
        prices: how prices are distributed.
        multiplier: μ.
        near: the rule for a multiplier near by, to start from.
        longest_life: a sample that was used more often is replaced at any price.
        precision: of g, relative.
    """
    # A rule that is known costs as much as the best, or more: the one near by, at this multiplier,
    # or the one that keeps every sample equally long.
    if near is not None:
        cost, ages = near.growth + multiplier * near.spent, FIRST_AGES + len(near.thresholds)
    else:
        equal = min(max(round(math.sqrt(multiplier * prices.mean)), 1), longest_life)
        cost, ages = equal + multiplier * prices.mean / equal, FIRST_AGES + 4 * equal
    for _ in range(MOST_STEPS):
        life = _best_life(prices, multiplier, cost, min(ages, longest_life))
        while life.cut and ages < longest_life:
            ages *= 2
            life = _best_life(prices, multiplier, cost, min(ages, longest_life))
        better = cost + life.dearer / life.length
        if abs(better - cost) <= precision * abs(cost):
            break
        cost = better
    growth, spent, reached = life.totals(prices)
    return SlotRule(
        multiplier=multiplier,
        average_cost=better,
        growth=growth / life.length,
        spent=spent / life.length,
        replaced=1 / life.length,
        thresholds=tuple(life.thresholds[:reached]),
    )


@dataclass(frozen=True)
class _Life:
    """The life of a sample, from its first round to its replacement, in expectation."""

    thresholds: list[float]
    """By age, from 1."""
    kept: list[float]
    """The chance to stay for another round, by age."""
    length: float
    """Rounds."""
    dearer: float
    """What it costs more than so many rounds at the trial cost: h(1), if h were 0 after it."""
    cut: bool
    """Whether some are still alive at the oldest age that was looked at."""

    def totals(self, prices: PriceDistribution) -> tuple[float, float, int]:
        """Growth of ΣA², money, and the age that a sample has hardly a chance to outlive."""
        alive, growth, spent, age = 1.0, 0.0, 0.0, 0
        for age, kept in enumerate(self.kept, start=1):
            growth += alive * (1 + 2 * age * kept)
            spent += alive * prices.up_to(self.thresholds[age - 1])[1]
            alive *= kept
            if alive < NEGLIGIBLE:
                break
        return growth + alive, spent + alive * prices.mean, age


def _best_life(prices: PriceDistribution, multiplier: float, cost: float, ages: int) -> _Life:
    """The life that is best at this cost of a round.

    Backwards over ages, from one at which every price replaces the sample, or from ``ages``.
    ``relative`` is h(a) - h(1) at the trial cost g.
    """
    relative, length = multiplier * prices.mean + 1.0 - cost, 1.0
    oldest = max(math.ceil((multiplier * prices.highest - relative) / 2), 1)
    up_to = prices.up_to
    lives = []
    for age in range(min(oldest, ages), 0, -1):
        keeping = 2 * age + relative
        threshold = keeping / multiplier
        replaced, paid = up_to(threshold)
        kept = 1.0 - replaced
        relative = kept * keeping + multiplier * paid + 1.0 - cost
        length = 1.0 + kept * length
        lives.append((threshold, kept))
    lives.reverse()
    thresholds, survival = (list(column) for column in zip(*lives, strict=True))
    cut = oldest > ages and math.prod(survival) >= NEGLIGIBLE
    return _Life(thresholds, survival, length, relative, cut)


def optimum(prices: PriceDistribution, budget: float, total_capacity: float) -> Optimum:
    """The most effective samples a round that full buffers can gain for a budget.

    >>> from tidegate.theory.distribution import UniformDistribution
    >>> best = optimum(UniformDistribution(1, 10), budget=55.0, total_capacity=100)
    >>> round(best.effective_per_round, 2), round(best.multiplier, 2)
    (18.64, 6.64)
    >>> tuple(round(threshold, 2) for threshold in best.thresholds[:4])
    (1.21, 2.2, 3.03, 3.75)
    """
    if not (math.isfinite(budget) and budget > 0 and total_capacity > 0):
        raise ValueError(f"need a positive budget and capacity, got {budget} and {total_capacity}")
    allowed = budget / total_capacity
    _check_affordable(prices, allowed, total_capacity)
    plan = plan_slots(prices, allowed)
    bound = plan.best.average_cost - plan.best.multiplier * plan.spent
    return Optimum(
        effective_per_round=total_capacity / plan.growth,
        distinct_per_round=total_capacity * plan.replaced,
        spent_per_round=total_capacity * plan.spent,
        multiplier=plan.best.multiplier,
        thresholds=plan.best.thresholds,
        duality_gap=max(plan.growth / bound - 1, 0.0),
        bellman_residual=bellman_residual(prices, plan.best) if plan.best.multiplier else 0.0,
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
    longest_life: int = LONGEST_LIFE,
    precision: float = PRECISION,
) -> SlotPlan:
    """The best for a slot that may spend ``allowed`` a round; the cheapest, if all cost more.

    Args:
        prices: how prices are distributed.
        allowed: b.
        longest_life: a sample that was used more often is replaced at any price.
        precision: relative, of what a round costs.
    """
    if prices.mean <= allowed * (1 + ROUNDING):
        fresh = SlotRule(0.0, 1.0, 1.0, prices.mean, 1.0, (prices.highest,))
        return SlotPlan(more=fresh, less=fresh, share=0.0, best=fresh)
    solve = partial(best_rule, prices, longest_life=longest_life, precision=precision)
    # Of a life of L rounds at a constant price c, the multiplier would be L²/c = c/allowed².
    more = less = solve(prices.mean / allowed**2)
    while less.spent > allowed:
        if less.multiplier * allowed > UNAFFORDABLE * longest_life:
            return SlotPlan(more=less, less=less, share=1.0, best=less)
        more, less = less, solve(4 * less.multiplier, less)
    while more.spent <= allowed:
        more, less = solve(more.multiplier / 4, more), more
    rule = less
    for step in range(MOST_STEPS):
        # g(μ) lies below both rules' straight lines; where they meet, it is highest if it can be
        # anywhere between. Halving in turn makes sure that both ends move.
        halving = step % 2 == 1
        meeting = (less.growth - more.growth) / (more.spent - less.spent)
        if meeting <= 0:
            break  # what ``more`` buys for its money is too little to be seen
        middle = (more.multiplier + less.multiplier) / 2 if halving else meeting
        rule = solve(middle, less)
        line = more.growth + middle * more.spent
        if not halving and rule.average_cost >= line * (1 - precision):
            break
        if rule.spent > allowed:
            more = rule
        else:
            less = rule
    share = (more.spent - allowed) / (more.spent - less.spent)
    return SlotPlan(more=more, less=less, share=share, best=rule)


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
