"""What a fleet's buffers can do, as far as the control plane is concerned.

Counts only: how many samples each client holds and how old they are, never what is in them.
"""

from dataclasses import dataclass
from typing import Protocol, Self

from tidegate._internal.arrays import CountArray, IntArray, Members
from tidegate.wire import Retention


@dataclass(frozen=True, eq=False)
class Stored:
    """What the clients of a round hold while they train; one number for each of them."""

    occupancy: CountArray
    """n_m(t), samples that each stores."""
    fresh: CountArray
    """Those of them that train for the first time."""
    expiring: CountArray
    """Those of them that leave before the client's next round."""
    prior_uses: int
    """Sum, over all of them, of the earlier rounds each was trained on."""


class Buffers(Protocol):
    """The buffers of all clients, between rounds.

    Every client has a clock of its own: the rounds that it has taken part in. Nothing happens to
    the samples of a client that does not take part. ``step`` changes the buffers in place: a round
    costs what the clients in it cost, however many there are besides.
    """

    @property
    def occupancy(self) -> CountArray:
        """Samples that each client of the fleet stores."""
        ...

    @property
    def clocks(self) -> CountArray:
        """Rounds that each client of the fleet has taken part in."""
        ...

    def room(self, who: Members) -> IntArray:
        """Samples that each of these could admit now without storing more than it has room for."""
        ...

    def step(self, who: Members, admissions: CountArray) -> Stored:
        """Let these clients play a round: expire, then admit, then train."""
        ...

    def copy(self) -> Self:
        """Buffers that go their own way from here."""
        ...


class RetentionRule(Protocol):
    """How long samples stay."""

    def buffers(self, buffer_capacities: IntArray, num_rounds: int) -> Buffers:
        """Buffers of a fleet with these capacities, before the first of so many rounds."""
        ...

    def for_client(self, number: int, num_clients: int) -> tuple[Retention, int]:
        """What an order tells a client of the fleet: its rule, K or a cap on uses; 0 for none."""
        ...
