"""Some clients never change their buffers, the others follow another rule: the hybrid baseline."""

from dataclasses import dataclass

import numpy as np

from tidegate._internal.arrays import EVERYONE, CountArray, IntArray, Members
from tidegate.errors import ConfigurationError
from tidegate.problem import NOTHING, EarlierSamples
from tidegate.retention.buffers import Buffers, RetentionRule, Stored
from tidegate.wire import Retention


@dataclass(frozen=True, eq=False)
class PartlyFrozenBuffers:
    """The first clients follow a rule; the rest keep what they held before round 1."""

    active: Buffers
    frozen: CountArray
    """Samples that each frozen client holds for ever."""
    frozen_clocks: CountArray
    """Rounds that each frozen client has taken part in."""
    num_active: int

    @property
    def occupancy(self) -> CountArray:
        """Samples that each client stores."""
        return np.concatenate([self.active.occupancy, self.frozen])

    @property
    def clocks(self) -> CountArray:
        """Rounds that each client has taken part in."""
        return np.concatenate([self.active.clocks, self.frozen_clocks])

    def room(self, who: Members) -> IntArray:
        """Return the room of each of these clients; frozen ones have none."""
        active, frozen = self._split(who)
        nothing = np.zeros(len(self.frozen[frozen]), dtype=np.int64)
        return np.concatenate([self.active.room(active), nothing])

    def step(self, who: Members, admissions: CountArray) -> Stored:
        """Play a round of the active clients; frozen ones admit nothing.

        In its first round a frozen client trains on all of its samples for the first time.
        """
        active, frozen = self._split(who)
        held, clocks = self.frozen[frozen], self.frozen_clocks[frozen].copy()
        stored = self.active.step(active, admissions[: len(admissions) - len(held)])
        self.frozen_clocks[frozen] += 1
        return Stored(
            occupancy=np.concatenate([stored.occupancy, held]),
            fresh=np.concatenate([stored.fresh, np.where(clocks == 0, held, 0)]),
            expiring=np.concatenate([stored.expiring, np.zeros_like(held)]),
            prior_uses=stored.prior_uses + int(np.sum(held.astype(np.int64) * clocks)),
        )

    def copy(self) -> "PartlyFrozenBuffers":
        """Return an independent copy."""
        return PartlyFrozenBuffers(
            self.active.copy(), self.frozen, self.frozen_clocks.copy(), self.num_active
        )

    def _split(self, who: Members) -> tuple[Members, Members]:
        """Return the active clients of a round, and the places of the frozen ones."""
        if isinstance(who, slice):
            return EVERYONE, EVERYONE
        active = int(np.searchsorted(who, self.num_active))
        return who[:active], who[active:] - self.num_active


@dataclass(frozen=True)
class PartlyFrozenRetention:
    """The last clients hold full, stale buffers from before round 1; the others follow a rule."""

    active: RetentionRule
    frozen_clients: int
    """How many clients are frozen, counted from the end of the list."""

    def buffers(
        self, buffer_capacities: IntArray, num_rounds: int, earlier: EarlierSamples = NOTHING
    ) -> PartlyFrozenBuffers:
        """Return empty buffers for active clients, and full ones for frozen clients."""
        if earlier.distinct_samples:
            raise ConfigurationError(
                "clients that never change their buffers begin with full ones; leave out the "
                "earlier samples"
            )
        split = len(buffer_capacities) - self.frozen_clients
        return PartlyFrozenBuffers(
            active=self.active.buffers(buffer_capacities[:split], num_rounds),
            frozen=buffer_capacities[split:].astype(np.int32),
            frozen_clocks=np.zeros(self.frozen_clients, dtype=np.int32),
            num_active=split,
        )

    def for_client(self, number: int, num_clients: int) -> tuple[Retention, int]:
        """Return the rule of the active clients, or ``frozen`` for the last ones."""
        active = num_clients - self.frozen_clients
        return self.active.for_client(number, active) if number < active else ("frozen", 0)
