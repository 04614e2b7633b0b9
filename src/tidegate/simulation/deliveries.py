"""Purchases that are under way in a simulated fleet, as counts.

The rules are those of a client with a supplier (``client.slots``): a purchase has a slot from the
order that buys it, and its sample joins the buffer with the first order of its client that comes
after the delay.
"""

from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from tidegate._internal.arrays import CountArray, IntArray, Members
from tidegate._internal.saving import FIXED
from tidegate.delays import Delays
from tidegate.problem import Problem


@dataclass(frozen=True, eq=False)
class Deliveries:
    """What each client has bought and not received yet.

    4 bytes a client for each round that a purchase may take, and 20; nothing where samples train in
    the round that buys them.
    """

    shortest: int = field(metadata=FIXED)
    longest: int = field(metadata=FIXED)
    seed: int
    """Of delays that are drawn."""
    due: NDArray[np.int32]
    """In row t modulo the number of rows what comes in round t; one column a client."""
    come: CountArray
    """What has come for each client, and joins its buffer with its next order."""
    under_way: IntArray
    """What each client has bought that is not in its buffer."""
    bought: IntArray
    """What each client has bought so far."""

    @classmethod
    def start(cls, problem: Problem, seed: int) -> "Deliveries":
        """Nothing is under way."""
        delays = problem.delays
        clients = 0 if delays.none else problem.num_clients
        rows = min(delays.longest, problem.num_rounds) + 1
        return cls(
            shortest=delays.shortest,
            longest=delays.longest,
            seed=seed,
            due=np.zeros((rows, clients), dtype=np.int32),
            come=np.zeros(clients, dtype=np.int32),
            under_way=np.zeros(clients, dtype=np.int64),
            bought=np.zeros(clients, dtype=np.int64),
        )

    def reserved(self, who: Members) -> IntArray | int:
        """Slots of these clients that purchases under way have taken."""
        return self.under_way[who] if self.longest else 0

    def step(self, now: int, who: Members, bought: CountArray) -> CountArray:
        """Note what these clients buy in a round.

        Returns:
            what joins their buffers.
        """
        if not self.longest:
            return bought
        rows = len(self.due)
        self.come[:] += self.due[now % rows]
        self.due[now % rows] = 0
        arrived = self.come[who].copy()
        self.come[who] = 0
        if self.shortest == self.longest:
            self.due[(now + rows - 1) % rows, who] += bought
        else:
            clients = np.repeat(np.arange(len(self.come))[who], bought)
            before = np.cumsum(bought) - bought  # of the other clients
            number = np.arange(len(clients)) - np.repeat(before - self.bought[who], bought) + 1
            delays = Delays(self.shortest, self.longest).draw(self.seed, clients, number)
            # What would come after the last round never does.
            np.add.at(self.due, ((now + np.minimum(delays, rows - 1)) % rows, clients), 1)
        self.bought[who] += bought
        self.under_way[who] += bought - arrived
        return arrived

    def copy(self) -> "Deliveries":
        """Purchases that go their own way from here."""
        arrays = ("due", "come", "under_way", "bought")
        return replace(self, **{name: getattr(self, name).copy() for name in arrays})
