"""The certified global minimum of J over an interval.

J is not convex: its last term is flat up to N = Pdim, concave up to 1.7308 Pdim and convex
beyond, so a bracketing search can stop at a local minimum. The solver cuts the interval at those
two points. On the convex pieces it bisects the derivative. On the piece between, the derivative is
a rising part (first two terms) plus a falling one (the last), which bounds it rigorously on every
cell: if it cannot vanish on a cell, the ends decide; the solver drops a cell that cannot hold a
lower value, and halves the others.

The work does not grow with the width of the interval: a bisection ends after at most as many
halvings as a float allows, and the piece in the middle is never wider than 0.7308 Pdim.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass

from tidegate.admission.interval import AdmissionInterval
from tidegate.admission.objective import INFLECTION, Objective

TOLERANCE = 1e-12
"""The returned value is provably at most this part above the minimum."""
MOST_HALVINGS = 400
MOST_CELLS = 20_000


@dataclass(frozen=True)
class Minimum:
    """A minimum and the proof of how good it is."""

    admission: float
    value: float
    gap: float
    """The true minimum is at least ``value - gap``."""
    evaluations: int
    """Evaluations of J or its derivative."""


def minimise(objective: Objective, interval: AdmissionInterval) -> Minimum:
    """Return the global minimum of J on the interval; of equal minima, the one that admits more."""
    lower, upper = interval.lower, interval.upper
    if not 0 <= lower <= upper < math.inf:
        raise ValueError(f"need 0 <= lower <= upper, both finite, got [{lower}, {upper}]")
    search = _Search(objective, lower)
    for begin, end, convex in _pieces(objective, lower, upper):
        if convex:
            search.convex(begin, end)
        else:
            search.mixed(begin, end)
    return search.result()


def _pieces(
    objective: Objective, lower: float, upper: float
) -> Iterator[tuple[float, float, bool]]:
    """Yield consecutive pieces of the interval, and whether J is convex on each."""
    pdim = objective.learning.pseudo_dimension
    flat_end = min(max(pdim - objective.distinct_samples, lower), upper)
    mixed_end = min(max(INFLECTION * pdim - objective.distinct_samples, lower), upper)
    if lower < flat_end:
        yield lower, flat_end, True
    if flat_end < mixed_end:
        yield flat_end, mixed_end, False
    if mixed_end < upper:
        yield mixed_end, upper, True


class _Search:
    """The best point so far, the lowest value not ruled out, and the work done."""

    def __init__(self, objective: Objective, first: float) -> None:
        self.objective = objective
        self.evaluations = 0
        self.best = first
        self.value = math.inf
        self.floor = math.inf  # no point that was tried or ruled out can lie below this
        self.offer(first)

    def result(self) -> Minimum:
        gap = max(self.value - self.floor, 0.0)
        return Minimum(self.best, self.value, gap, self.evaluations)

    def offer(self, admission: float, *, below: float = 0.0) -> float:
        """Try a point; near it, J may be lower by ``below``. Later points win ties."""
        self.evaluations += 1
        value = self.objective.value(admission)
        if value <= self.value:
            self.best, self.value = admission, value
        self.floor = min(self.floor, value - below)
        return value

    def slope(self, admission: float) -> float:
        self.evaluations += 1
        return self.objective.slope(admission)

    def convex(self, begin: float, end: float) -> None:
        """Bisect the derivative; |J'(x)|·width bounds what is left to gain."""
        if self.slope(end) <= 0:
            self.offer(end)
            return
        if self.slope(begin) >= 0:
            self.offer(begin)
            return
        for _ in range(MOST_HALVINGS):
            middle = self._middle(begin, end)
            slope = self.slope(middle)
            self.evaluations += 1
            left = abs(slope) * (end - begin)
            if left <= TOLERANCE * self.objective.value(middle) or not begin < middle < end:
                break
            if slope > 0:
                end = middle
            else:
                begin = middle
        self.offer(middle, below=left)

    def mixed(self, begin: float, end: float) -> None:
        """Halve cells until each is decided by its ends or cannot matter."""
        self.offer(begin)
        self.offer(end)
        cells = [(begin, end)]
        for _ in range(MOST_CELLS):
            if not cells:
                return
            left, right = cells.pop()
            steepest, flattest = self._slopes(left, right)
            if steepest >= 0 or flattest <= 0:
                continue  # monotone: the better end was tried before
            lowest = self._lowest(left, right, steepest, flattest)
            if lowest >= self.value * (1 - TOLERANCE):
                self.floor = min(self.floor, lowest)
                continue
            middle = (left + right) / 2
            self.offer(middle)
            cells += [(left, middle), (middle, right)]
        for left, right in cells:
            self.floor = min(self.floor, self._lowest(left, right, *self._slopes(left, right)))

    def _slopes(self, left: float, right: float) -> tuple[float, float]:
        """Return bounds of J' on a cell: the reuse part rises, the generalisation part falls."""
        self.evaluations += 4
        objective = self.objective
        return (
            objective.cost_slope
            + objective.reuse_slope(left)
            + objective.generalisation_slope(right),
            objective.cost_slope
            + objective.reuse_slope(right)
            + objective.generalisation_slope(left),
        )

    def _lowest(self, left: float, right: float, steepest: float, flattest: float) -> float:
        """Return a lower bound of J on a cell, given bounds of its slope.

        From the left end J falls at most as fast as ``steepest``, and towards the right end it
        rises at most as fast as ``flattest``; the two lines meet at the lower bound.
        """
        if math.isinf(steepest):
            return -math.inf
        self.evaluations += 2
        first, last = self.objective.value(left), self.objective.value(right)
        meet = (first - last + flattest * (right - left)) / (flattest - steepest)
        return first + steepest * min(max(meet, 0.0), right - left)

    def _middle(self, begin: float, end: float) -> float:
        """Return the geometric mean (in samples stored) of a wide interval, else the middle."""
        stored = self.objective.carried_samples
        low, high = stored + begin, stored + end
        if high > 4 * low > 0:
            return math.sqrt(low) * math.sqrt(high) - stored
        return (begin + end) / 2
