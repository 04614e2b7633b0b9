"""Purchases under way in a simulated fleet, as counts: what was bought, until it arrives."""

from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from tidegate._internal.arrays import CountArray, IntArray, Members
from tidegate._internal.saving import FIXED
from tidegate.problem import Problem
from tidegate.problem.delays import Delays


@dataclass(frozen=True, eq=False)
class Deliveries:
    """The purchases under way of each client.

    20 bytes a client, and 4 for each round that a purchase may take; nothing if samples train in
    the round that buys them.
    """

    shortest: int = field(metadata=FIXED)
    longest: int = field(metadata=FIXED)
    seed: int
    """For delays that are drawn."""
    due: NDArray[np.int32]
    """Arrivals of round t in row t modulo the number of rows; one column a client."""
    come: CountArray
    """Samples that have arrived for each client, and join its buffer with its next order."""
    under_way: IntArray
    """Samples that each client has bought and that are not in its buffer."""
    bought: IntArray
    """Samples that each client has bought so far."""

    @classmethod
    def start(cls, problem: Problem, seed: int) -> "Deliveries":
        """Return the state without purchases."""
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

    def step(
        self, now: int, who: Members, bought: CountArray, most: IntArray | None = None
    ) -> CountArray:
        """Book what these clients buy in a round.

        Args:
            now: t.
            who: the clients.
            bought: samples of each.
            most: the most that may join each buffer at once; more wait for the next order.

        Returns:
            The samples that join their buffers.
        """
        if not self.longest:
            return bought
        rows = len(self.due)
        self.come[:] += self.due[now % rows]
        self.due[now % rows] = 0
        arrived = self.come[who].copy()
        if most is not None:
            arrived = np.minimum(arrived, most).astype(np.int32)
        self.come[who] -= arrived
        if self.shortest == self.longest:
            self.due[(now + rows - 1) % rows, who] += bought
        else:
            clients = np.repeat(np.arange(len(self.come))[who], bought)
            before = np.cumsum(bought) - bought  # of the other clients
            number = np.arange(len(clients)) - np.repeat(before - self.bought[who], bought) + 1
            delays = Delays(self.shortest, self.longest).draw(self.seed, clients, number)
            # Samples due after the last round never arrive.
            np.add.at(self.due, ((now + np.minimum(delays, rows - 1)) % rows, clients), 1)
        self.bought[who] += bought
        self.under_way[who] += bought - arrived
        return arrived

    def copy(self) -> "Deliveries":
        """Return an independent copy."""
        arrays = ("due", "come", "under_way", "bought")
        return replace(self, **{name: getattr(self, name).copy() for name in arrays})
