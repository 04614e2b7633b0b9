"""The best rule of a round if the next prices are known, solved backwards over these rounds.

A slot whose sample was used a times costs 2a + 1 (the growth of ΣA²) in a round that keeps it, and
μ·c + 1 in a round that replaces it at price c, as in ``theory.slot_rule``. If the price c_t of
round t is known, that round has no expectation over prices:

    V_t(a) = min( 2a + 1 + V_{t+1}(a+1),  μ·c_t + 1 + V_{t+1}(1) ),

so the rule of the round before is θ(a) = (2a + V_t(a+1) - V_t(1)) / μ, still a price by age. After
the last known price, V is h: the average extra cost of a slot of each age over a fresh one, had all
past prices been known. μ is the multiplier at which a slot that knows those prices spends its
allowance.

With a cap on uses the last age stands for an empty slot, which costs w a round until it is filled.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tidegate._internal.arrays import FloatArray

TRIED = 6
"""Multipliers in a grid, each ``STEP`` times the one before."""
STEP = 1.2
FARTHEST = 100.0
"""The largest factor between two grids, if the first does not contain the solution."""
MOST_GRIDS = 12
"""The most grids to try."""
PASSES = 2
"""Backward passes over the window, which is repeated; the last pass counts."""


@dataclass(frozen=True, eq=False)
class Continuation:
    """The value of a slot after the last known price."""

    multiplier: float
    """μ."""
    values: FloatArray
    """h(a) - h(1), for a = 1, 2, ...; the last for all older ages, or for an empty slot."""


def keeping_costs(ages: int, weight: float = math.inf) -> FloatArray:
    """Return the cost of a round that keeps a sample of age 1, 2, ..., or leaves a slot empty.

    Args:
        ages: the number of ages; older samples cost as much as the last.
        weight: w of an empty slot, in place of the last age; infinity if slots are never empty.

    >>> keeping_costs(3), keeping_costs(3, weight=700.0)
    (array([3., 5., 7.]), array([  3.,   5., 700.]))
    """
    costs: FloatArray = 2 * np.arange(1, ages + 1, dtype=np.float64) + 1
    if math.isfinite(weight):
        costs[-1] = weight
    return costs


def values_before(
    prices: Sequence[float] | FloatArray, multiplier: float, after: FloatArray, keeping: FloatArray
) -> FloatArray:
    """Return V - V(1) before these prices, given V after them.

    Args:
        prices: c_t, c_{t+1}, ..., in the order of rounds.
        multiplier: μ.
        after: V after the last price, by age.
        keeping: the result of ``keeping_costs``.

    >>> values_before([1.0], 4.0, np.zeros(3), keeping_costs(3))  # replacing a sample costs 5
    array([0., 2., 2.])
    """
    value: FloatArray = after.copy()
    kept = np.empty_like(after)
    for price in reversed(np.asarray(prices, dtype=np.float64).tolist()):
        np.add(keeping[:-1], value[1:], out=kept[:-1])
        kept[-1] = keeping[-1] + value[-1]
        np.minimum(kept, multiplier * price + 1.0 + value[0], out=value)
    value -= value[0]
    return value


def thresholds_now(
    ahead: Sequence[float] | FloatArray, multiplier: float, behind: FloatArray, keeping: FloatArray
) -> FloatArray:
    """Return θ(1), θ(2), ... for the round before the known prices.

    Args:
        ahead: prices of the next rounds.
        multiplier: μ.
        behind: h after the last of them, by age.
        keeping: the result of ``keeping_costs``.
    """
    value = values_before(ahead, multiplier, behind, keeping)
    thresholds: FloatArray = (keeping - 1.0 + np.append(value[1:], value[-1])) / multiplier
    return thresholds


def continuation(
    window: FloatArray, allowed: float, near: float, keeping: FloatArray
) -> Continuation:
    """Return μ at which a slot that knows a window of prices spends its allowance, and its h.

    The spending of one slot jumps, so both are interpolated between two multipliers of the grid.

    Args:
        window: prices in order, with those known ahead at the end.
        allowed: b, money for a slot and round; less than the average price.
        near: a multiplier to start from.
        keeping: the result of ``keeping_costs``.
    """
    for _ in range(MOST_GRIDS):
        tried: FloatArray = near * np.logspace(-0.5, 0.5, TRIED, base=STEP ** (TRIED - 1))
        spent, values = _informed(window, tried, keeping)
        place = int(np.sum(spent > allowed))  # spending falls as multipliers rise
        if 0 < place < TRIED:
            break
        nearest = 0 if place == 0 else -1
        # A life of L rounds costs c / L, and its growth is worth L: spending falls with 1 / √μ.
        part = float(spent[nearest] / allowed) ** 2
        near = float(tried[nearest]) * min(max(part, 1 / FARTHEST), FARTHEST)
    place = min(max(place, 1), TRIED - 1)
    low, high = np.log(np.maximum(spent[place - 1 : place + 1], 1e-9 * allowed))
    part = min(max((low - math.log(allowed)) / max(low - high, 1e-12), 0.0), 1.0)
    multiplier = float(tried[place - 1] * STEP**part)
    return Continuation(multiplier, values[place - 1] + part * (values[place] - values[place - 1]))


def _informed(
    window: FloatArray, multipliers: FloatArray, keeping: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Return spending a round, and h, of a slot that knows a window of prices, which repeats.

    One entry, and one row of h, for each multiplier.
    """
    rounds, shape = len(window), (len(multipliers), len(keeping))
    value, kept, total = np.zeros(shape), np.empty(shape), np.zeros(shape)
    costs = np.outer(window, multipliers)[:, :, None] + 1.0
    replaces = np.empty((rounds, *shape), dtype=bool)
    for _ in range(PASSES):
        total[:] = 0.0
        for now in range(rounds - 1, -1, -1):
            total += value
            np.add(keeping[:-1], value[:, 1:], out=kept[:, :-1])
            kept[:, -1] = keeping[-1] + value[:, -1]
            np.less_equal(costs[now], kept, out=replaces[now])
            np.minimum(kept, costs[now], out=value)
            value -= value[:, :1].copy()
    each, oldest = np.arange(len(multipliers)), len(keeping) - 1
    age, bought = np.zeros(len(multipliers), dtype=np.int64), np.empty((rounds, len(multipliers)))
    for now in range(rounds):
        bought[now] = replaces[now, each, age]
        age = np.where(bought[now], 0, np.minimum(age + 1, oldest))
    return window @ bought / rounds, total / rounds
