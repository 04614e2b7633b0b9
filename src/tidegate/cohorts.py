"""Which clients take part in a round: all, or a cohort drawn from those that are online.

Cohorts are drawn as a server would draw them: from clients that are online, each with the same
chance. In each round a client is online with a probability of its own, so those that are online
more often take part more often. Some leave for good.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from tidegate._internal.arguments import check_number
from tidegate._internal.arrays import EVERYONE, Members

ASKED = 1.2
"""Clients asked for each one that is needed, beyond those that are likely to be away."""


def share_reached(num_clients: int, fraction_train: float, min_train_nodes: int) -> float:
    """Return the part of the fleet that a round reaches, as Flower's strategies count it.

    >>> share_reached(10, fraction_train=0.25, min_train_nodes=3)
    0.3
    """
    return min(max(int(fraction_train * num_clients), min_train_nodes, 1) / num_clients, 1.0)


@dataclass(frozen=True, kw_only=True)
class Cohorts:
    """How cohorts are drawn.

    >>> rounds = Cohorts(fraction_train=0.3).rounds(np.random.default_rng(0), num_clients=1000)
    >>> len(next(rounds)), len(next(rounds))
    (300, 300)
    """

    fraction_train: float = 1.0
    """The part of the fleet that a round is meant to reach; at least one client."""
    least_available: float = 1.0
    """Each client is online with a probability of its own, uniform between this and 1."""
    leaving: float = 0.0
    """Probability, for each client and round, of leaving for good before it."""

    def __post_init__(self) -> None:
        for name in ("fraction_train", "least_available"):
            limit = "above 0 and at most 1"
            check_number(name, getattr(self, name), limit, lambda part: 0 < part <= 1)
        limit = "at least 0 and below 1"
        check_number("leaving", self.leaving, limit, lambda part: 0 <= part < 1)

    @property
    def everyone(self) -> bool:
        """Whether all clients take part in all rounds."""
        return self.fraction_train == 1 and self.least_available == 1 and not self.leaving

    def size(self, num_clients: int) -> int:
        """Clients that a round is meant to reach."""
        return max(round(self.fraction_train * num_clients), 1)

    def mean_fraction_train(self, num_rounds: int, num_clients: int) -> float:
        """The part of the fleet that a round reaches on average: less if clients are away."""
        share, online = self.size(num_clients) / num_clients, (1 + self.least_available) / 2
        if not self.leaving:
            return min(share, online)
        there = (1 - self.leaving) ** np.arange(1, num_rounds + 1)
        return float(np.minimum(share, online * there).mean())

    def rounds(self, draw: np.random.Generator, num_clients: int) -> Iterator[Members]:
        """Yield the members of each cohort, rising; fewer than wanted if too few are online."""
        if self.everyone:
            while True:
                yield EVERYONE
        available = draw.uniform(self.least_available, 1.0, num_clients)
        staying, wanted = np.ones(num_clients, dtype=bool), self.size(num_clients)
        likely = online = float(available.mean())
        while True:
            if self.leaving:
                leaving = draw.binomial(num_clients, self.leaving)
                staying[draw.choice(num_clients, leaving, replace=False)] = False
                likely = online * float(staying.mean())
            number_asked = min(math.ceil(ASKED * wanted / max(likely, 1e-9)) + 100, num_clients)
            candidates = draw.choice(num_clients, number_asked, replace=False)
            there = staying[candidates] & (draw.random(number_asked) < available[candidates])
            yield np.sort(candidates[there][:wanted])
