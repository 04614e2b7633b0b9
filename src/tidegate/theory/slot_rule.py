"""The best rule for one slot, for a given worth of money.

A slot whose sample was used a times adds 2a + 1 to ΣA² in a round that keeps it, and 1 in a round
that replaces it, at price c. With a multiplier μ on money this is an average-cost decision problem,

    g + h(a) = E_c[ min( 2a + 1 + h(a+1),  μ·c + 1 + h(1) ) ],

solved by price thresholds θ(a) = (2a + h(a+1) - h(1)) / μ that rise with a. The lives of the
samples that pass through a slot are independent, so g is the least cost of a life divided by its
length, and Newton's method on g converges in a few steps (Dinkelbach).

With a cap of U uses, a sample that was used U times leaves, and its slot is empty until it is
filled: h(U) = h(0), and

    g + h(0) = E_c[ min( w + h(0),  μ·c + 1 + h(1) ) ].

w is the cost of an empty slot in a round. It is many times what any kept sample adds
(``weight_of_empty``), so buffers are as full as the money allows.

Where a client trains on n of the S samples that it stores, a stored sample is used in a round with
the chance q = n/S. With u uses so far,

    g + h(u) = E_c[ min( K(u),  μ·c + K(0) ) ],   K(u) = q·(2u + 1 + h(u+1)) + (1-q)·h(u),

which is the first equation where q = 1. θ(u) = (K(u) - K(0)) / μ is then a threshold by uses.
"""

import math
from dataclasses import dataclass

from tidegate.theory.distribution import PriceDistribution
from tidegate.theory.waiting import price_to_wait_for

PRECISION = 1e-13
"""The relative precision of g."""
MOST_STEPS = 200
ROUNDING = 1e-15
"""Relative, of what keeping a sample costs."""
LONGEST_LIFE = 10_000
"""The most rounds that a rule may keep a sample."""
FIRST_AGES = 32
"""The ages to begin with; the search adds ages as long as samples can reach them."""
NEGLIGIBLE = 1e-18
"""A probability of staying that is too small to change a sum of floats."""
EMPTY = 100.0
"""The cost of an empty slot, as a multiple of that of a sample that was used U times."""
ALL_EMPTY = 1 - 1e-9
"""The search ignores rules that cost more than this part of a slot that is never filled."""


def weight_of_empty(most_uses: int) -> float:
    """Return w, a hundred times 2U + 1; any kept sample adds less than 2U + 1 to ΣA²."""
    return EMPTY * (2 * most_uses + 1)


@dataclass(frozen=True)
class SlotRule:
    """The best rule for a multiplier, and its long-run averages in one slot."""

    multiplier: float
    """μ, the growth of ΣA² that one unit of money is worth."""
    average_cost: float
    """g, the cost of a round: growth, plus the cost of empty slots, plus μ times money."""
    growth: float
    """q, the growth of ΣA² a round."""
    spent: float
    """Money a round."""
    replaced: float
    """Samples replaced in a round."""
    thresholds: tuple[float, ...]
    """θ(1), θ(2), ...: a sample used a times is replaced at a price up to θ(a). The last one holds
    for all older samples, which are rare."""
    filled: float = 1.0
    """The part of the rounds in which the slot holds a sample."""
    empty_cost: float = 0.0
    """w times the part of the rounds in which the slot holds no sample."""
    filling: float = math.inf
    """The price up to which the slot is filled after its sample was used U times."""
    chance: float = 1.0
    """q, with which a stored sample is used in a round; ages are uses where it is below 1."""

    @property
    def loss(self) -> float:
        """The cost of a round without money."""
        return self.growth + self.empty_cost


def best_rule(
    prices: PriceDistribution,
    multiplier: float,
    near: SlotRule | None = None,
    *,
    most_uses: int | None = None,
    longest_life: int = LONGEST_LIFE,
    precision: float = PRECISION,
    chance: float = 1.0,
) -> SlotRule:
    """Return the rule of least average cost for a multiplier μ > 0.

    Args:
        prices: the distribution of prices.
        multiplier: μ.
        near: the rule for a similar multiplier and the same cap, to start from.
        most_uses: U; None for no cap.
        longest_life: a sample that was used more often is replaced at any price.
        precision: the relative precision of g.
        chance: q; below 1 without a cap only.
    """
    weight = math.inf
    if most_uses is not None and most_uses <= longest_life:
        weight, longest_life = weight_of_empty(most_uses), most_uses - 1
    # Any known rule gives an upper bound of g: the given one at this multiplier, the one that keeps
    # every sample equally long, or the one that never buys.
    if near is not None:
        cost, ages = near.loss + multiplier * near.spent, FIRST_AGES + len(near.thresholds)
    else:
        equal = min(max(round(math.sqrt(multiplier * prices.mean)), 1), max(longest_life, 1))
        cost, ages = chance * (equal + multiplier * prices.mean / equal), FIRST_AGES + 4 * equal
    nothing = min(cost, ALL_EMPTY * weight) < cost
    cost = min(cost, ALL_EMPTY * weight)
    for _ in range(MOST_STEPS):
        looked_at = min(ages, longest_life), longest_life
        life = _best_life(prices, multiplier, cost, looked_at, weight, chance)
        while life.cut and ages < longest_life:
            ages *= 2
            looked_at = min(ages, longest_life), longest_life
            life = _best_life(prices, multiplier, cost, looked_at, weight, chance)
        if nothing and life.dearer > 0:
            return SlotRule(multiplier, weight, 0.0, 0.0, 0.0, (), 0.0, weight, 0.0)
        nothing = False
        better = cost + life.dearer / life.length
        if abs(better - cost) <= precision * abs(cost):
            break
        cost = better
    growth, spent, empty, reached = life.totals(prices)
    return SlotRule(
        multiplier=multiplier,
        average_cost=better,
        growth=growth / life.length,
        spent=spent / life.length,
        replaced=1 / life.length,
        thresholds=tuple(life.thresholds[:reached]),
        filled=1 - empty / life.length,
        empty_cost=weight * empty / life.length if empty else 0.0,
        filling=life.filling,
        chance=chance,
    )


@dataclass(frozen=True)
class _Life:
    """The expected life of a sample, from its first round to its replacement."""

    thresholds: list[float]
    """By age, from 1."""
    kept: list[float]
    """The probability of another use, by age."""
    rounds: list[float]
    """The rounds in which a sample may be replaced before it, by age: 1 where all are used."""
    filling: float
    """The price up to which a sample that outlives all these ages is replaced."""
    length: float
    """Rounds, including those in which its slot is empty after it."""
    dearer: float
    """The extra cost of the life over as many rounds at the trial cost: h(1) if h is 0 after it."""
    cut: bool
    """Whether some samples outlive the oldest age of the search."""

    def totals(self, prices: PriceDistribution) -> tuple[float, float, float, int]:
        """Return growth of ΣA², money, empty rounds, and the age that few samples outlive."""
        alive, growth, spent, age = 1.0, 0.0, 0.0, 0
        for age, kept in enumerate(self.kept, start=1):
            growth += alive * (1 + 2 * age * kept)
            paid = prices.up_to(self.thresholds[age - 1])[1]
            spent += alive * self.rounds[age - 1] * paid
            alive *= kept
            if alive < NEGLIGIBLE:
                break
        likely, paid = prices.up_to(self.filling)
        return growth + alive, spent + alive * paid / likely, alive * (1 - likely) / likely, age


def _best_life(
    prices: PriceDistribution,
    multiplier: float,
    cost: float,
    ages: tuple[int, int],
    weight: float,
    chance: float,
) -> _Life:
    """Return the best life at this cost of a round.

    Dynamic programming, backwards over ages, from one at which every price replaces the sample, or
    from the oldest of the search. ``relative`` is h(a) + 1 - K(0) at the trial cost g, which is
    h(a) - h(1) where all samples are used.

    Args:
        prices: the distribution of prices.
        multiplier: μ.
        cost: g.
        ages: the oldest age of the search, and the oldest at which a sample may be kept.
        weight: w; infinity if slots are never empty.
        chance: q.
    """
    idle = 1.0 - chance
    relative, length, filling = multiplier * prices.mean + 1.0 - cost, 1.0, prices.highest
    oldest = max(math.ceil((multiplier * prices.highest - relative + idle) / (2 * chance)), 1)
    looked_at, last = ages
    up_to = prices.up_to
    if oldest > looked_at == last and not math.isinf(weight):
        filling = price_to_wait_for(prices, (weight - cost) / multiplier)
        likely, paid = up_to(filling)
        length = 1 / likely
        relative = (multiplier * paid + weight * (1 - likely) - cost) * length + 1.0
    lives = []
    for age in range(min(oldest, looked_at), 0, -1):
        used = keeping = 2 * age + relative
        for _ in range(MOST_STEPS):
            threshold = keeping / multiplier
            replaced, paid = up_to(threshold)
            kept = 1.0 - replaced
            relative = kept * keeping + multiplier * paid + 1.0 - cost
            # Newton's method on keeping = q·used + (1-q)·(relative - 1), concave in ``keeping``.
            step = (chance * used + idle * (relative - 1.0) - keeping) / (1.0 - idle * kept)
            if abs(step) <= ROUNDING * abs(keeping):
                break
            keeping += step
        rounds = 1.0 / (1.0 - idle * kept)
        kept *= chance * rounds
        length = rounds + kept * length
        lives.append((threshold, kept, rounds))
    lives.reverse()
    thresholds, survival, rounds_of = ([life[part] for life in lives] for part in range(3))
    cut = oldest > looked_at and math.prod(survival) >= NEGLIGIBLE
    waits = idle / chance  # for its first use
    relative, length = relative - cost * waits, length + waits
    return _Life(thresholds, survival, rounds_of, filling, length, relative, cut)


def bellman_residual(
    prices: PriceDistribution, rule: SlotRule, most_uses: int | None = None
) -> float:
    """Return the largest violation of the optimality equation by a rule, relative to g.

    One step of the equation leads from the thresholds to h, and from h back to the thresholds.

    Args:
        prices: the distribution of prices.
        rule: a rule with a multiplier above 0.
        most_uses: the rule's U.
    """
    mu, g, q = rule.multiplier, rule.average_cost, rule.chance

    def waiting(keeping: float) -> float:
        """Return h(a) + 1 - K(0), given K(a) - K(0)."""
        replaced, paid = prices.up_to(keeping / mu)
        return (1 - replaced) * keeping + mu * paid + 1 - g

    keeping = [mu * theta for theta in rule.thresholds]
    relative = [waiting(cost) for cost in keeping]
    errors = [q * relative[0] - (1 - q) * g] if relative else []
    errors += [
        q * (2 * age + relative[age]) + (1 - q) * (relative[age - 1] - 1) - keeping[age - 1]
        for age in range(1, len(keeping))
    ]
    if most_uses is not None and len(keeping) == most_uses - 1:
        empty = keeping[-1] - 2 * len(keeping) if keeping else 0.0
        errors.append(waiting(weight_of_empty(most_uses) + empty - 1) - empty)
    return max(map(abs, errors), default=0.0) / g
