"""Prices that depend on the price before: groups of prices, and how one follows another.

Where prices are independent, the best rule for a slot needs their distribution alone
(``theory.optimum``). Where they come in spells or seasons, it matters what the present price says
of the next ones. Here the price of a round belongs to one of k groups, the next group depends on
the present one, and within a group prices are as they were seen. The decision problem of a slot is

    g + h(a, s) = E_{c | s}[ min( 2a + 1 + Σ P(s'|s) h(a+1, s'),  μ·c + 1 + Σ P(s'|s) h(1, s') ) ],

s being the group of the round, so the thresholds by age depend on the group. With one group it is
that of ``theory.optimum``. It is solved by policy iteration: the lives that begin in each group are
followed backwards over ages, and the groups in which they begin form a chain of their own.

With a cap on uses the last age is that of an empty slot, as in ``theory.slot_rule``: it costs w a
round until a price of its group fills it.
"""

import math
from dataclasses import dataclass
from functools import partial

import numpy as np

from tidegate._internal.arrays import FloatArray
from tidegate.theory.slot_rule import SlotRule

MOST_STEPS = 60
MOST_DOUBLINGS = 12
"""Of the multiplier that independent prices would have; farther away, the chain says nothing."""
PRECISION = 1e-3
"""Relative, of what a round costs; the prices seen say less."""
FINE = 0.04
"""Relative, of the multiplier, or of what is spent."""
STANDARD_DEVIATIONS = 4.0
"""By which a table of what follows what must differ from chance before it is believed."""


@dataclass(frozen=True, eq=False)
class PriceChain:
    """Groups of prices, low to high, and how one follows another."""

    edges: tuple[float, ...]
    """Prices at which the next group begins; one fewer than groups."""
    transitions: FloatArray
    """P(s'|s), a row for each s."""
    values: tuple[FloatArray, ...]
    """The prices seen in each group, sorted."""

    @classmethod
    def from_prices(cls, prices: FloatArray, groups: int) -> "PriceChain | None":
        """The chain of a record of prices, or None where it could be chance.

        Args:
            prices: one a round, in order.
            groups: k, of about equally many prices each; fewer where prices repeat.

        >>> PriceChain.from_prices(np.array([1.0, 9.0] * 50), 8).transitions.round(2)
        array([[0.01, 0.99],
               [0.99, 0.01]])
        """
        edges = np.unique(np.quantile(prices, np.arange(1, groups) / groups, method="higher"))
        edges = edges[edges > prices.min()]
        group = np.searchsorted(edges, prices, side="right")
        k = len(edges) + 1
        follows = np.zeros((k, k))
        np.add.at(follows, (group[:-1], group[1:]), 1.0)
        if not depends(follows):
            return None
        shares = np.bincount(group, minlength=k) / len(group)
        follows += shares  # one more of each, spread as if there were no dependence
        rows: FloatArray = follows / follows.sum(axis=1, keepdims=True)
        return cls(
            tuple(edges.tolist()), rows, tuple(np.sort(prices[group == one]) for one in range(k))
        )


def depends(follows: FloatArray) -> bool:
    """Whether a table of what followed what differs from chance: Pearson's test, strictly."""
    total = follows.sum()
    expected = follows.sum(axis=1, keepdims=True) * follows.sum(axis=0) / max(total, 1.0)
    freedom = float((len(follows) - 1) ** 2)
    if not freedom or expected.min() < 1:
        return False
    statistic = float(((follows - expected) ** 2 / expected).sum())
    # Wilson and Hilferty: the cube root of chi-square is nearly normal.
    cube = 1 - 2 / (9 * freedom) + STANDARD_DEVIATIONS * math.sqrt(2 / (9 * freedom))
    return statistic > freedom * cube**3


@dataclass(frozen=True, eq=False)
class ChainRule:
    """What one slot does in the long run under the best rule for a multiplier."""

    multiplier: float
    growth: float
    """q, of ΣA² a round, and what empty slots count for."""
    spent: float
    """Money a round."""
    thresholds: FloatArray
    """θ(a, s): one row for each age from 1, one column for each group."""

    def by_group(self) -> tuple[tuple[float, ...], ...]:
        """θ(1, s), θ(2, s), ... for each group, all but that of the oldest age."""
        return tuple(tuple(column) for column in self.thresholds[:-1].T.tolist())

    def filling(self) -> tuple[float, ...]:
        """For each group, θ of the oldest age: any price, or that of an empty slot."""
        return tuple(self.thresholds[-1].tolist())


def chain_rule(
    chain: PriceChain, multiplier: float, thresholds: FloatArray, weight: float = math.inf
) -> ChainRule:
    """The rule of least average cost for a multiplier μ > 0.

    Args:
        chain: how prices follow each other.
        multiplier: μ.
        thresholds: to start from; a sample lives at most as many rounds as there are rows.
        weight: w, what an empty slot counts for in a round; infinity where none is ever empty, so
            that at the oldest age any price will do.
    """
    cost = math.inf
    for _ in range(MOST_STEPS):
        lives = _lives(chain, thresholds, weight)
        begin = _stationary(lives[0, :, 3:])
        growth, spent, length = begin @ lives[0, :, :3]
        better = (growth + multiplier * spent) / length
        if abs(cost - better) <= PRECISION * better:
            break
        cost = better
        thresholds = _improved(chain, multiplier, cost, lives, weight)
    return ChainRule(multiplier, growth / length, spent / length, thresholds)


def _lives(chain: PriceChain, thresholds: FloatArray, weight: float) -> FloatArray:
    """For each age and group: growth, money, rounds until replaced, and in which group then.

    The last is the group of the round after, the first round of the next sample. Empty rounds grow
    by ``weight``.
    """
    replaced, paid = _up_to(chain, thresholds)
    ages, k = thresholds.shape
    follow = chain.transitions
    new = np.concatenate([np.tile([1.0, 0.0, 1.0], (k, 1)), follow], axis=1)
    lives = np.empty((ages, k, 3 + k))
    lives[-1] = replaced[-1][:, None] * new
    lives[-1, :, 1] += paid[-1]
    waits = 1 - replaced[-1]
    if waits.any():  # for a price of this group, or of one that follows
        lives[-1, :, 0] += waits * weight
        lives[-1, :, 2] += waits
        lives[-1] = np.linalg.solve(np.eye(k) - waits[:, None] * follow, lives[-1])
    for age in range(ages - 1, 0, -1):
        kept = follow @ lives[age]
        kept[:, 0] += 2 * age + 1
        kept[:, 2] += 1
        share = replaced[age - 1][:, None]
        lives[age - 1] = kept + share * (new - kept)
        lives[age - 1, :, 1] += paid[age - 1]
    return lives


def _up_to(chain: PriceChain, thresholds: FloatArray) -> tuple[FloatArray, FloatArray]:
    """For each age and group, the share of prices up to the threshold, and what they add up to."""
    replaced, paid = np.empty_like(thresholds), np.empty_like(thresholds)
    for one, values in enumerate(chain.values):
        place = np.searchsorted(values, thresholds[:, one], side="right")
        sums = np.concatenate([[0.0], np.cumsum(values)])
        replaced[:, one], paid[:, one] = place / len(values), sums[place] / len(values)
    return replaced, paid


def _stationary(transitions: FloatArray) -> FloatArray:
    """The shares in which a chain is in each state in the long run."""
    k = len(transitions)
    system = np.vstack([transitions.T - np.eye(k), np.ones(k)])
    shares: FloatArray = np.linalg.lstsq(system, np.append(np.zeros(k), 1.0), rcond=None)[0]
    return shares


def _improved(
    chain: PriceChain, multiplier: float, cost: float, lives: FloatArray, weight: float
) -> FloatArray:
    """The thresholds that are best if the rest of a life is as it is now."""
    ages, k = lives.shape[:2]
    value = lives[:, :, 0] + multiplier * lives[:, :, 1] - cost * lives[:, :, 2]
    # h(1, ·), up to a constant; then h(a, ·) for every age.
    system = np.vstack([np.eye(k) - lives[0, :, 3:], np.ones(k)])
    first = np.linalg.lstsq(system, np.append(value[0], 0.0), rcond=None)[0]
    relative = value + lives[:, :, 3:] @ first
    expected = relative @ chain.transitions.T
    steps = 2 * np.arange(1, ages)[:, None] + expected[1:] - expected[0]
    rising = np.maximum.accumulate(np.maximum(steps / multiplier, 0.0), axis=0)
    # A slot that stays empty for ever is no rule that is looked for: the lowest price fills it.
    lowest = min(float(values[0]) for values in chain.values)
    filling = np.maximum((weight - 1 + expected[-1] - expected[0]) / multiplier, lowest)
    return np.concatenate([rising, filling[None]])


def plan_chain(
    chain: PriceChain, allowed: float, near: SlotRule, ages: int, weight: float = math.inf
) -> tuple[ChainRule, ChainRule] | None:
    """Best rules that spend the allowance or more, and the allowance or less, close together.

    None where the chain's own prices allow no such pair: all its rules cost less, or more.

    Args:
        chain: how prices follow each other.
        allowed: b, money for a slot and round; less than the average price.
        near: the best rule if prices were independent, to start from.
        ages: the longest life that is looked at, longer than any under ``near``.
        weight: w, what an empty slot counts for; infinity where none is ever empty.
    """
    column = np.append(near.thresholds, np.full(ages - len(near.thresholds), np.inf))
    start = np.tile(column[:, None], len(chain.transitions))
    solve = partial(chain_rule, chain, weight=weight)
    more = less = solve(near.multiplier, start)
    for _ in range(MOST_DOUBLINGS):
        if less.spent > allowed:
            more, less = less, solve(2 * less.multiplier, less.thresholds)
        elif more.spent <= allowed:
            more, less = solve(more.multiplier / 2, more.thresholds), more
        else:
            break
    if not less.spent <= allowed < more.spent:
        return None
    for _ in range(MOST_STEPS):
        if less.multiplier <= (1 + FINE) * more.multiplier or more.spent <= (1 + FINE) * allowed:
            break
        middle = solve(_between(more, less, allowed), less.thresholds)
        if middle.spent > allowed:
            more = middle
        else:
            less = middle
    return more, less


def _between(more: ChainRule, less: ChainRule, allowed: float) -> float:
    """A multiplier between two, where spending should be as allowed; well inside."""
    low, high = math.log(more.multiplier), math.log(less.multiplier)
    top, bottom = math.log(more.spent), math.log(max(less.spent, 1e-9 * allowed))
    part = (top - math.log(allowed)) / (top - bottom)
    return math.exp(low + min(max(part, 0.2), 0.8) * (high - low))
