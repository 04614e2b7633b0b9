"""The bound in hindsight: no rule could have gained more on one path of prices.

All prices are known, buffers hold at most n samples, and a rule spends at most C·T in T rounds. It
may fill a slot in any round, and keeps it full from then on; a second bound lets slots be empty at
any time. With S = ΣA and Q = ΣA² the effective sample size is S²/Q, the largest value of 2kS - k²Q
over all k. For one k this is a sum over slots and over the lives of their samples: a life of L
rounds that begins in round t is worth 2kL - k²L² and costs c(t). Two relaxations make it a bound: a
multiplier enforces the budget, which lets slots follow a mixture of schedules; and the search over
k works on cells, each of which can exceed the value at its end by at most the square of its width.
"""

import heapq
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from tidegate._internal.arrays import FloatArray, IntArray

MOST_STEPS = 200
PRECISION = 1e-12


@dataclass(frozen=True)
class HindsightBound:
    """The bound for one path of prices."""

    effective_per_round: float
    """No rule gains more that keeps to memory and budget, and slots as full as required."""
    certified_to: float
    """The bound is at most this part above the best relaxed schedule."""


@dataclass(frozen=True)
class _Schedule:
    """The best lives of the samples of one slot, for one k and one multiplier."""

    reward: float
    """Σ 2kL - k²L² over its lives."""
    spent: float


def hindsight_bound(
    prices: Sequence[float] | FloatArray,
    budget: float,
    total_capacity: int,
    *,
    may_be_empty: bool = False,
    precision: float = 0.005,
) -> HindsightBound:
    """Return a bound on the effective samples a round that rules can gain on these prices.

    Args:
        prices: c(1), ..., c(T), one for all clients.
        budget: C.
        total_capacity: ΣB_m, never exceeded.
        may_be_empty: whether slots may be empty again after their first sample. Effective samples
            count how evenly samples are used, not how many train in a round, so a rule that trains
            on nothing most of the time can gain many of them.
        precision: the largest relative distance of the bound from the best relaxed schedule.

    >>> round(hindsight_bound([2.0] * 40, budget=4.0, total_capacity=10).effective_per_round, 1)
    2.0
    """
    path = np.asarray(prices, dtype=np.float64)
    if path.ndim != 1 or not len(path) or not np.all(np.isfinite(path)) or path.min() < 0:
        raise ValueError("prices must be one or more numbers of 0 or more")
    if not (math.isfinite(budget) and budget > 0 and total_capacity >= 1):
        raise ValueError(f"need a positive budget and capacity, got {budget} and {total_capacity}")
    allowed = budget * len(path) / total_capacity
    # 1/k is ΣA²/ΣA, the average growth of ΣA²: from 1 (fresh samples only) to T (one for ever).
    longest = float(max(len(path), 2))
    best = partial(_best, path, may_be_empty=may_be_empty)
    at_end = {growth: _value(best, allowed, growth) for growth in (1.0, longest)}
    cells = [_cell(1.0, longest, at_end)]
    while -cells[0][0] > max(at_end.values()) * (1 + precision):
        _, low, high = heapq.heappop(cells)
        middle = math.sqrt(low * high)
        at_end[middle] = _value(best, allowed, middle)
        heapq.heappush(cells, _cell(low, middle, at_end))
        heapq.heappush(cells, _cell(middle, high, at_end))
    scale, most = total_capacity / len(path), -cells[0][0]
    return HindsightBound(most * scale, most / max(at_end.values()) - 1)


def _cell(low: float, high: float, at_end: Mapping[float, float]) -> tuple[float, float, float]:
    """Return an upper bound for all k with 1/k in [low, high]; negative, for a heap.

    (2S/k - Q)·k² is at most (2S·high - Q) / low².
    """
    return -at_end[high] * (high / low) ** 2, low, high


def _value(best: Callable[[float, float], _Schedule], allowed: float, growth: float) -> float:
    """Return the most that a slot's lives are worth for k = 1/growth and this money.

    It is the minimum of the dual over the multiplier.
    """
    k = 1 / growth
    free = best(k, 0.0)
    if free.spent <= allowed:
        return free.reward
    low, high = free, _Schedule(0.0, 0.0)
    for _ in range(MOST_STEPS):
        multiplier = (low.reward - high.reward) / (low.spent - high.spent)
        found = best(k, multiplier)
        line = low.reward + multiplier * (allowed - low.spent)
        value = found.reward + multiplier * (allowed - found.spent)
        if value <= line + PRECISION * max(abs(line), 1.0):
            return value
        if found.spent > allowed:
            low = found
        else:
            high = found
    return value


def _best(path: FloatArray, k: float, multiplier: float, *, may_be_empty: bool) -> _Schedule:
    """Return the schedule of one slot with the highest reward minus multiplier times spending.

    Dynamic programming, backwards over rounds. A life is too long if halving it costs less than it
    gains: halving L rounds gains k²L²/2, less k²/2 if L is odd. If slots may be empty, rounds
    beyond 1/k + 1 have a negative worth.
    """
    rounds = len(path)
    most = math.isqrt(math.ceil(1 + 2 * multiplier * float(path.max()) / k**2))
    if may_be_empty:
        most = min(most, math.ceil(1 / k) + 1)
    lengths = np.arange(1, min(most, rounds) + 1)
    worth = 2 * k * lengths - (k * lengths) ** 2
    value = np.zeros(rounds + 1)
    lives = np.zeros(rounds, dtype=np.int64)
    costs = multiplier * path
    for now in range(rounds - 1, -1, -1):
        after = value[now + 1 : now + 1 + len(worth)]
        total = worth[: len(after)] + after
        place = int(total.argmax())
        gain = total[place] - costs[now]
        if may_be_empty and gain <= value[now + 1]:
            value[now] = value[now + 1]
        else:
            value[now], lives[now] = gain, place + 1
    first = 0 if may_be_empty else int(value.argmax())
    return _follow(path, lives, worth, first)


def _follow(path: FloatArray, lives: IntArray, worth: FloatArray, first: int) -> _Schedule:
    """Return the worth and cost of lives of these lengths, one after another from a round on."""
    reward, spent, now = 0.0, 0.0, first
    while now < len(path):
        length = int(lives[now])
        if length:
            reward, spent = reward + float(worth[length - 1]), spent + float(path[now])
        now += max(length, 1)
    return _Schedule(reward, spent)
