"""What a fleet's buffers can do, as far as the control plane is concerned.

Counts only: how many samples each client holds and how old they are, never what is in them.
"""

from typing import Protocol, Self

from tidegate.arrays import CountArray, IntArray
from tidegate.wire import Retention


class Buffers(Protocol):
    """The buffers of all clients, seen while a round trains. Immutable: ``step`` gives new ones."""

    @property
    def occupancy(self) -> IntArray:
        """n_m(t), samples that each client stores."""
        ...

    @property
    def fresh(self) -> CountArray:
        """Those of them that train for the first time in this round."""
        ...

    @property
    def expiring(self) -> CountArray:
        """Those of them that expire at the end of the round."""
        ...

    @property
    def prior_uses(self) -> int:
        """Sum, over all stored samples, of the earlier rounds each was trained on."""
        ...

    def room(self, buffer_capacities: IntArray) -> IntArray:
        """Samples that each client could admit next without storing more than it has room for."""
        ...

    def step(self, admissions: CountArray) -> Self:
        """The buffers of the next round, after expiring and then admitting."""
        ...


class RetentionRule(Protocol):
    """How long samples stay."""

    def buffers(self, buffer_capacities: IntArray) -> Buffers:
        """Buffers of a fleet with these capacities, before round 1."""
        ...

    def for_client(self, number: int, num_clients: int) -> tuple[Retention, int]:
        """What an order tells a client of the fleet: its rule and K, 0 where it has none."""
        ...
