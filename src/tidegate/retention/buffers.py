"""The buffers of a fleet, as the control plane sees them.

They hold counts: how many samples each client stores and how old they are, never their content.
"""

from dataclasses import dataclass
from typing import Protocol, Self

from tidegate._internal.arrays import CountArray, IntArray, Members
from tidegate.problem import NOTHING, EarlierSamples
from tidegate.wire import Retention


@dataclass(frozen=True, eq=False)
class Stored:
    """The samples of a round's clients while they train; arrays have one entry a client."""

    occupancy: CountArray
    """n_m(t), the samples that each client stores."""
    fresh: CountArray
    """Stored samples that train for the first time."""
    expiring: CountArray
    """Stored samples that leave before the client's next round."""
    prior_uses: int
    """The earlier uses of all stored samples together."""


class Buffers(Protocol):
    """The buffers of all clients, between rounds.

    Every client has its own clock: the rounds that it has taken part in. The samples of a client
    that does not take part do not change. ``step`` changes the buffers in place, so the cost of a
    round depends only on the clients that take part.
    """

    @property
    def occupancy(self) -> CountArray:
        """The samples that each client of the fleet stores."""
        ...

    @property
    def clocks(self) -> CountArray:
        """The rounds that each client of the fleet has taken part in."""
        ...

    def room(self, who: Members) -> IntArray:
        """Return how many samples each of these clients can admit within its capacity."""
        ...

    def step(self, who: Members, admissions: CountArray) -> Stored:
        """Let these clients play a round: expire, then admit, then train."""
        ...

    def copy(self) -> Self:
        """Return an independent copy."""
        ...


class RetentionRule(Protocol):
    """A rule for how long samples stay."""

    def buffers(
        self, buffer_capacities: IntArray, num_rounds: int, earlier: EarlierSamples = NOTHING
    ) -> Buffers:
        """Return the buffers of a fleet before round 1.

        Args:
            buffer_capacities: B_m.
            num_rounds: T.
            earlier: what clients hold; those that the rule would not have kept leave at once.
        """
        ...

    def for_client(self, number: int, num_clients: int) -> tuple[Retention, int]:
        """Return the rule in a client's order, and its K or cap on uses; 0 for none."""
        ...
