"""Oldest-first retention: a sample stays until a fresh one takes its place, the oldest first."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from tidegate.arrays import CountArray, FloatArray, IntArray
from tidegate.saving import FIXED
from tidegate.wire import Retention


@dataclass(frozen=True, eq=False)
class OldestFirstBuffers:
    """What each client stores, by age: 4 bytes a client for each age that occurs, and 16 more.

    The arrays are shared from round to round and never written to.
    """

    capacities: IntArray = field(metadata=FIXED)
    """B_m."""
    occupancy: IntArray
    fresh: CountArray
    ages: tuple[int, ...] = ()
    """Rounds that samples were trained on, this one included, youngest first."""
    cohorts: tuple[CountArray, ...] = ()
    """Samples of each age that each client holds."""

    @property
    def expiring(self) -> CountArray:
        """None: a sample leaves when another comes."""
        return np.zeros(len(self.capacities), dtype=np.int32)

    @property
    def prior_uses(self) -> int:
        """A sample of age a was used in a-1 rounds before this one."""
        return sum(
            (age - 1) * int(cohort.sum())
            for age, cohort in zip(self.ages, self.cohorts, strict=True)
        )

    def room(self, buffer_capacities: IntArray) -> IntArray:
        """Every slot can take a fresh sample."""
        return self.capacities

    def wanted(self, thresholds: Sequence[float], price: float | FloatArray) -> IntArray:
        """How many samples each client takes in that follows a rule.

        Args:
            thresholds: the price up to which a slot takes a fresh sample: an empty one first, then
                by rounds in which its sample was trained on; the last for all that follow.
            price: one for all, or each client's own.
        """
        empty = self.capacities - self.occupancy
        slots = [(0, empty), *zip(self.ages, self.cohorts, strict=True)]
        last = len(thresholds) - 1
        taken = np.zeros(len(self.capacities), dtype=np.int64)
        for age, count in slots:
            taken += np.where(price <= thresholds[min(age, last)], count, 0)
        return taken

    def step(self, admissions: CountArray) -> "OldestFirstBuffers":
        """Fill empty slots, and let the oldest samples make room for what does not fit."""
        leaving = np.maximum(self.occupancy + admissions - self.capacities, 0)
        occupancy = self.occupancy - leaving + admissions
        left: list[tuple[int, CountArray]] = []
        for age, cohort in zip(self.ages[::-1], self.cohorts[::-1], strict=True):
            gone = np.minimum(leaving, cohort)
            leaving = leaving - gone
            kept = (cohort - gone).astype(np.int32) if gone.any() else cohort
            if kept.any():
                left.append((age + 1, kept))
        if admissions.any():
            left.append((1, admissions))
        ages, cohorts = zip(*reversed(left), strict=True) if left else ((), ())
        return OldestFirstBuffers(self.capacities, occupancy, admissions, ages, cohorts)


@dataclass(frozen=True)
class OldestFirst:
    """No sample expires by age."""

    def buffers(self, buffer_capacities: IntArray) -> OldestFirstBuffers:
        """Empty buffers."""
        nothing = np.zeros(len(buffer_capacities), dtype=np.int32)
        return OldestFirstBuffers(buffer_capacities, nothing.astype(np.int64), nothing)

    def for_client(self, number: int, num_clients: int) -> tuple[Retention, int]:
        """The same for all."""
        return "oldest_first", 0
