"""The best rule if prices depend on the price before, as a Markov chain of price groups.

If prices are independent, the best rule for a slot depends only on their distribution
(``theory.optimum``). In spells and seasons the present price also predicts the next ones. Here each
price belongs to one of k groups, the next group depends on the present one, and within a group
prices follow those that were seen. The decision problem of a slot is

    g + h(a, s) = E_{c | s}[ min( 2a + 1 + Σ P(s'|s) h(a+1, s'),  μ·c + 1 + Σ P(s'|s) h(1, s') ) ],

where s is the group of the round, so the thresholds by age depend on the group. With one group it
is the problem of ``theory.optimum``. Policy iteration solves it: lives that begin in each group are
evaluated backwards over ages, and the groups in which lives begin form another chain.

With a cap on uses the last age stands for an empty slot, as in ``theory.slot_rule``: it costs w a
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
"""The most doublings or halvings of the multiplier for independent prices, to search in."""
PRECISION = 1e-3
"""The relative precision of the cost of a round; the error of the estimated chain is larger."""
FINE = 0.04
"""The relative precision of the multiplier, or of the spending."""
STANDARD_DEVIATIONS = 4.0
"""How far the table of transitions must differ from independence before Tide uses it."""


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
        """Return the chain of recorded prices, or None if their dependence may be chance.

        Args:
            prices: one a round, in order.
            groups: k, each of about equally many prices; fewer if prices repeat.

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
        follows += shares  # one more of each, spread as if prices were independent
        rows: FloatArray = follows / follows.sum(axis=1, keepdims=True)
        return cls(
            tuple(edges.tolist()), rows, tuple(np.sort(prices[group == one]) for one in range(k))
        )


def depends(follows: FloatArray) -> bool:
    """Return whether a table of transitions differs from independence, by Pearson's test."""
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
    """The best rule for a multiplier, and its long-run averages in one slot."""

    multiplier: float
    growth: float
    """q, the growth of ΣA² a round, plus the cost of empty slots."""
    spent: float
    """Money a round."""
    thresholds: FloatArray
    """θ(a, s): one row for each age from 1, one column for each group."""

    def by_group(self) -> tuple[tuple[float, ...], ...]:
        """Return θ(1, s), θ(2, s), ... for each group, without the oldest age."""
        return tuple(tuple(column) for column in self.thresholds[:-1].T.tolist())

    def filling(self) -> tuple[float, ...]:
        """Return θ of the oldest age for each group: any price, or that of an empty slot."""
        return tuple(self.thresholds[-1].tolist())


def chain_rule(
    chain: PriceChain, multiplier: float, thresholds: FloatArray, weight: float = math.inf
) -> ChainRule:
    """Return the rule of least average cost for a multiplier μ > 0.

    Args:
        chain: groups of prices and their transitions.
        multiplier: μ.
        thresholds: to start from; a sample lives at most as many rounds as there are rows.
        weight: w, the cost of an empty slot in a round; infinity if slots are never empty, so that
            any price replaces a sample of the oldest age.
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
    """Return growth, money, rounds until replacement, and the next group, by age and group.

    The next group, as probabilities, is that of the next sample's first round. An empty round adds
    ``weight`` to the growth.
    """
    replaced, paid = _up_to(chain, thresholds)
    ages, k = thresholds.shape
    follow = chain.transitions
    new = np.concatenate([np.tile([1.0, 0.0, 1.0], (k, 1)), follow], axis=1)
    lives = np.empty((ages, k, 3 + k))
    lives[-1] = replaced[-1][:, None] * new
    lives[-1, :, 1] += paid[-1]
    waits = 1 - replaced[-1]
    if waits.any():  # empty slots wait for a price of this group, or of a later one
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
    """Return P(c <= θ) and E[c; c <= θ] for each age and group."""
    replaced, paid = np.empty_like(thresholds), np.empty_like(thresholds)
    for one, values in enumerate(chain.values):
        place = np.searchsorted(values, thresholds[:, one], side="right")
        sums = np.concatenate([[0.0], np.cumsum(values)])
        replaced[:, one], paid[:, one] = place / len(values), sums[place] / len(values)
    return replaced, paid


def _stationary(transitions: FloatArray) -> FloatArray:
    """Return the stationary distribution of a chain."""
    k = len(transitions)
    system = np.vstack([transitions.T - np.eye(k), np.ones(k)])
    shares: FloatArray = np.linalg.lstsq(system, np.append(np.zeros(k), 1.0), rcond=None)[0]
    return shares


def _improved(
    chain: PriceChain, multiplier: float, cost: float, lives: FloatArray, weight: float
) -> FloatArray:
    """Return the best thresholds if the rest of a life follows the present rule."""
    ages, k = lives.shape[:2]
    value = lives[:, :, 0] + multiplier * lives[:, :, 1] - cost * lives[:, :, 2]
    # h(1, ·), up to a constant; then h(a, ·) for every age.
    system = np.vstack([np.eye(k) - lives[0, :, 3:], np.ones(k)])
    first = np.linalg.lstsq(system, np.append(value[0], 0.0), rcond=None)[0]
    relative = value + lives[:, :, 3:] @ first
    expected = relative @ chain.transitions.T
    steps = 2 * np.arange(1, ages)[:, None] + expected[1:] - expected[0]
    rising = np.maximum.accumulate(np.maximum(steps / multiplier, 0.0), axis=0)
    # A slot must not stay empty for ever: the lowest price always fills it.
    lowest = min(float(values[0]) for values in chain.values)
    filling = np.maximum((weight - 1 + expected[-1] - expected[0]) / multiplier, lowest)
    return np.concatenate([rising, filling[None]])


def plan_chain(
    chain: PriceChain, allowed: float, near: SlotRule, ages: int, weight: float = math.inf
) -> tuple[ChainRule, ChainRule] | None:
    """Return two similar best rules, one that spends the allowance or more, one that spends less.

    None if there is no such pair, because all rules of the chain cost less, or all cost more.

    Args:
        chain: groups of prices and their transitions.
        allowed: b, money for a slot and round; less than the average price.
        near: the best rule for independent prices, to start from.
        ages: the longest life, longer than any under ``near``.
        weight: w, the cost of an empty slot in a round; infinity if slots are never empty.
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
    """Return a multiplier well between two, where spending should be near the allowance."""
    low, high = math.log(more.multiplier), math.log(less.multiplier)
    top, bottom = math.log(more.spent), math.log(max(less.spent, 1e-9 * allowed))
    part = (top - math.log(allowed)) / (top - bottom)
    return math.exp(low + min(max(part, 0.2), 0.8) * (high - low))
