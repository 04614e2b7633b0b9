"""K-step retention: a sample trains in K rounds of its client, then leaves.

The round that admits a sample is the first. Rounds in which its client does not take part do not
count.
"""

from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from tidegate._internal.arrays import CountArray, IntArray, Members
from tidegate._internal.saving import FIXED
from tidegate.errors import ConfigurationError
from tidegate.problem import NOTHING, EarlierSamples
from tidegate.retention.buffers import Stored
from tidegate.wire import Retention


@dataclass(frozen=True, eq=False)
class KStepBuffers:
    """The admissions of each client in its last K rounds.

    4·K + 16 bytes a client, and 8 for capacities, which others share.
    """

    retention_horizon: int = field(metadata=FIXED)
    """K."""
    capacities: IntArray = field(metadata=FIXED)
    """B_m."""
    ring: NDArray[np.int32]
    """One column a client, with its admissions in its last K rounds. In the client's round c,
    counted from 0, row c modulo K is the oldest and is overwritten. Earlier samples stand in the
    row of the round before which they leave; those without any use are not overwritten in the
    first round, which shares their row."""
    clocks: CountArray
    """Rounds that each client has taken part in."""
    occupancy: CountArray
    """Samples that each client stores; those that were used K times leave in its next round."""
    uses: IntArray
    """The uses of each client's stored samples so far, summed."""

    def room(self, who: Members) -> IntArray:
        """Return the free slots once the samples that were used K times have left; at least 0."""
        gone = self._gone(who, self._oldest(who))
        free: IntArray = self.capacities[who] - self.occupancy[who] + gone
        return np.maximum(free, 0)

    def step(self, who: Members, admissions: CountArray) -> Stored:
        """Delete the samples that were used K times, then admit the new ones."""
        place = self._oldest(who)
        gone = self._gone(who, place)
        occupancy = self.occupancy[who] - gone + admissions
        uses = self.uses[who] - np.multiply(gone, self.retention_horizon, dtype=np.int64)
        self.ring[place] += admissions - gone
        self.clocks[who] += 1
        self.occupancy[who] = occupancy
        self.uses[who] = uses + occupancy
        return Stored(
            occupancy=occupancy,
            fresh=admissions,
            expiring=self.ring[self._oldest(who)].copy(),
            prior_uses=int(uses.sum()),
        )

    def _gone(self, who: Members, place: tuple[int | CountArray, Members]) -> CountArray:
        """Return the samples that leave: those at the oldest place, unless it is round 1."""
        oldest: CountArray = self.ring[place]
        return oldest if self.clocks[who].all() else oldest * (self.clocks[who] > 0)

    def copy(self) -> "KStepBuffers":
        """Return an independent copy."""
        return replace(
            self,
            ring=self.ring.copy(),
            clocks=self.clocks.copy(),
            occupancy=self.occupancy.copy(),
            uses=self.uses.copy(),
        )

    def _oldest(self, who: Members) -> tuple[int | CountArray, Members]:
        """Return the place in the ring of these clients' admissions K of their rounds ago."""
        clocks = self.clocks[who]
        if isinstance(who, slice):
            first = int(clocks[0])
            if (clocks == first).all():  # no client was ever away: one row, and no copy
                return first % len(self.ring), who
            who = np.arange(len(clocks))
        return clocks % len(self.ring), who


@dataclass(frozen=True)
class KStepRetention:
    """A sample leaves once it was used K times: then d_{m,i}(t) = 1.

    >>> from tidegate._internal.arrays import EVERYONE
    >>> buffers = KStepRetention(2).buffers(np.array([10]), num_rounds=3)
    >>> for admitted in (3, 1, 0):
    ...     stored = buffers.step(EVERYONE, np.array([admitted], dtype=np.int32))
    ...     print(stored.occupancy, stored.expiring, stored.prior_uses)
    [3] [0] 0
    [4] [3] 3
    [1] [1] 1
    """

    retention_horizon: int
    """K, at least 1."""

    def __post_init__(self) -> None:
        if self.retention_horizon < 1:
            raise ConfigurationError(
                f"retention_horizon must be at least 1, got {self.retention_horizon}"
            )

    def buffers(
        self, buffer_capacities: IntArray, num_rounds: int, earlier: EarlierSamples = NOTHING
    ) -> KStepBuffers:
        """Return buffers with the earlier samples that were used less than K times."""
        clients, held = len(buffer_capacities), earlier.within(self.retention_horizon)
        rows = min(self.retention_horizon, num_rounds + 1)  # a run never uses more rows
        buffers = KStepBuffers(
            retention_horizon=self.retention_horizon,
            capacities=buffer_capacities,
            ring=np.zeros((rows, clients), dtype=np.int32),
            clocks=np.zeros(clients, dtype=np.int32),
            occupancy=np.zeros(clients, dtype=np.int32),
            uses=np.zeros(clients, dtype=np.int64),
        )
        if not held.size:
            return buffers
        for uses, counts in enumerate(held.T):
            leaves = self.retention_horizon - uses  # before the round of this clock
            if leaves <= num_rounds:
                buffers.ring[leaves % rows] = counts
        buffers.occupancy[:] = held.sum(axis=1)
        buffers.uses[:] = held @ np.arange(held.shape[1])
        return buffers

    def for_client(self, number: int, num_clients: int) -> tuple[Retention, int]:
        """Return K, the same for every client."""
        return "k_step", self.retention_horizon
