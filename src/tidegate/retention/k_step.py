"""K-step retention: a sample trains in the round that admits it and the K-1 after, then leaves."""

from dataclasses import dataclass, field

import numpy as np

from tidegate.arrays import CountArray, IntArray
from tidegate.saving import FIXED
from tidegate.wire import Retention


@dataclass(frozen=True, eq=False)
class KStepBuffers:
    """Admissions of the last K rounds, newest first: 4·K + 8 bytes a client.

    The arrays are shared from round to round and never written to.
    """

    retention_horizon: int = field(metadata=FIXED)
    """K."""
    occupancy: IntArray
    cohorts: tuple[CountArray, ...] = ()
    """cohorts[a]: samples of age a+1 that each client holds; at most K of them."""
    cohort_totals: tuple[int, ...] = ()
    """The same, summed over clients."""

    @property
    def fresh(self) -> CountArray:
        """The samples of age 1."""
        return self.cohorts[0] if self.cohorts else np.zeros(len(self.occupancy), dtype=np.int32)

    @property
    def expiring(self) -> CountArray:
        """The samples of age K."""
        if len(self.cohorts) < self.retention_horizon:
            return np.zeros(len(self.occupancy), dtype=np.int32)
        return self.cohorts[-1]

    @property
    def prior_uses(self) -> int:
        """A sample of age a was used in a-1 rounds before this one."""
        return sum(uses * total for uses, total in enumerate(self.cohort_totals))

    def room(self, buffer_capacities: IntArray) -> IntArray:
        """What is free once the samples of age K are gone; none where too much is stored."""
        free: IntArray = buffer_capacities - self.occupancy + self.expiring
        return np.maximum(free, 0)

    def step(self, admissions: CountArray) -> "KStepBuffers":
        """Drop the samples of age K, then take in the new ones."""
        kept = self.retention_horizon - 1
        return KStepBuffers(
            retention_horizon=self.retention_horizon,
            occupancy=self.occupancy - self.expiring + admissions,
            cohorts=(admissions, *self.cohorts[:kept]),
            cohort_totals=(int(admissions.sum()), *self.cohort_totals[:kept]),
        )


@dataclass(frozen=True)
class KStepRetention:
    """d_{m,i}(t) = 1 exactly when the sample's age is K.

    >>> buffers = KStepRetention(2).buffers(np.array([10]))
    >>> for admitted in (3, 1, 0):
    ...     buffers = buffers.step(np.array([admitted], dtype=np.int32))
    ...     print(buffers.occupancy, buffers.expiring, buffers.prior_uses)
    [3] [0] 0
    [4] [3] 3
    [1] [1] 1
    """

    retention_horizon: int
    """K, at least 1."""

    def __post_init__(self) -> None:
        if self.retention_horizon < 1:
            raise ValueError(f"retention_horizon must be at least 1, got {self.retention_horizon}")

    def buffers(self, buffer_capacities: IntArray) -> KStepBuffers:
        """Empty buffers."""
        return KStepBuffers(
            self.retention_horizon, np.zeros(len(buffer_capacities), dtype=np.int64)
        )

    def for_client(self, number: int, num_clients: int) -> tuple[Retention, int]:
        """The same for all."""
        return "k_step", self.retention_horizon
