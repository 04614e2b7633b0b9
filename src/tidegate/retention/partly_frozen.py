"""Some clients never change their buffers, the others follow another rule: the hybrid baseline."""

from dataclasses import dataclass, replace

import numpy as np

from tidegate.arrays import CountArray, IntArray
from tidegate.retention.buffers import Buffers, RetentionRule
from tidegate.wire import Retention


@dataclass(frozen=True, eq=False)
class PartlyFrozenBuffers:
    """The first clients follow a rule; the rest keep what they held before round 1."""

    active: Buffers
    frozen: CountArray
    """Samples that each frozen client holds for ever."""
    round_number: int = 0
    """The round that these buffers train in; 0 before the first."""

    @property
    def occupancy(self) -> IntArray:
        """n_m(t)."""
        return np.concatenate([self.active.occupancy, self.frozen])

    @property
    def fresh(self) -> CountArray:
        """In round 1 the frozen samples, too, train for the first time."""
        first_use = self.frozen if self.round_number == 1 else np.zeros_like(self.frozen)
        return np.concatenate([self.active.fresh, first_use])

    @property
    def expiring(self) -> CountArray:
        """Frozen samples never expire."""
        return np.concatenate([self.active.expiring, np.zeros_like(self.frozen)])

    @property
    def prior_uses(self) -> int:
        """Frozen samples were used in every round so far."""
        return self.active.prior_uses + (self.round_number - 1) * int(self.frozen.sum())

    def room(self, buffer_capacities: IntArray) -> IntArray:
        """Frozen clients admit nothing."""
        active = self.active.room(buffer_capacities[: len(buffer_capacities) - len(self.frozen)])
        return np.concatenate([active, np.zeros(len(self.frozen), dtype=np.int64)])

    def step(self, admissions: CountArray) -> "PartlyFrozenBuffers":
        """One round more for the active clients; the frozen ones admit nothing."""
        active = admissions[: len(admissions) - len(self.frozen)]
        return replace(self, active=self.active.step(active), round_number=self.round_number + 1)


@dataclass(frozen=True)
class PartlyFrozenRetention:
    """The last clients hold full, stale buffers from before round 1; the others follow a rule."""

    active: RetentionRule
    frozen_clients: int
    """How many, counted from the end of the list of clients."""

    def buffers(self, buffer_capacities: IntArray) -> PartlyFrozenBuffers:
        """Active buffers empty, frozen ones full."""
        split = len(buffer_capacities) - self.frozen_clients
        return PartlyFrozenBuffers(
            active=self.active.buffers(buffer_capacities[:split]),
            frozen=buffer_capacities[split:].astype(np.int32),
        )

    def for_client(self, number: int, num_clients: int) -> tuple[Retention, int]:
        """The last clients never change."""
        active = num_clients - self.frozen_clients
        return self.active.for_client(number, active) if number < active else ("frozen", 0)
