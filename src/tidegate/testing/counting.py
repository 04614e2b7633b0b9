"""Samples of a fleet counted one by one, as a second opinion on what is computed from sums."""

import itertools
import math
from collections.abc import Callable

from tidegate._internal.arrays import IntArray
from tidegate.errors import ConfigurationError
from tidegate.problem import Problem
from tidegate.retention.buffers import RetentionRule
from tidegate.retention.k_step import KStepRetention
from tidegate.retention.oldest_first import OldestFirst
from tidegate.retention.partly_frozen import PartlyFrozenRetention
from tidegate.simulation.rounds import RoundRow
from tidegate.testing.law import Trial

Leaving = Callable[[int, list[int], int, int], int]
"""Of a client, its stored samples by how often each was used (oldest first), the number of new
ones and its capacity: how many of the oldest go before the new ones come."""


def leaving_rule(retention: RetentionRule, num_clients: int) -> Leaving:
    """When a rule of this package lets a sample go."""
    if isinstance(retention, PartlyFrozenRetention):
        first_frozen = num_clients - retention.frozen_clients
        active = leaving_rule(retention.active, num_clients)

        def partly(client: int, uses: list[int], new: int, capacity: int) -> int:
            return 0 if client >= first_frozen else active(client, uses, new, capacity)

        return partly
    if isinstance(retention, KStepRetention):
        horizon = retention.retention_horizon
        return lambda client, uses, new, capacity: uses.count(horizon)
    if isinstance(retention, OldestFirst):
        most_uses = retention.most_uses or math.inf
        return lambda client, uses, new, capacity: max(
            sum(use >= most_uses for use in uses), len(uses) + new - capacity, 0
        )
    raise ConfigurationError(
        f"check_policy does not know when {type(retention).__name__} lets a sample go; say it "
        "with check_policy(..., leaving=...), so that it can count samples one by one"
    )


class Count:
    """Every sample of a fleet, with the rounds that it was trained in."""

    def __init__(self, problem: Problem, retention: RetentionRule, leaving: Leaving) -> None:
        self._capacities = problem.capacities.tolist()
        self._leaving = leaving
        frozen = retention.frozen_clients if isinstance(retention, PartlyFrozenRetention) else 0
        first_frozen = problem.num_clients - frozen
        self.stored = [
            [0] * capacity if client >= first_frozen else list[int]()
            for client, capacity in enumerate(self._capacities)
        ]
        self._expired: list[int] = []

    def play(self, client: int, new: int) -> None:
        """A round of one client: some samples go, new ones come, all are trained on."""
        held = self.stored[client]
        gone = self._leaving(client, held, new, self._capacities[client])
        self._expired += held[:gone]
        self.stored[client] = [use + 1 for use in held[gone:] + [0] * new]

    def compare(self, row: RoundRow, who: IntArray, trial: Trial) -> None:
        """What a round's row says, against the samples."""
        uses = [use for use in itertools.chain(self._expired, *self.stored) if use]
        size = sum(len(self.stored[client]) for client in who)
        told = f"in round {row.round_number}"
        trial.expect(row.clients == len(who), f"{told} {row.clients} clients are told of")
        trial.expect(
            row.training_size == size, f"{told} n is {row.training_size}, but {size} are stored"
        )
        trial.expect(
            row.distinct_samples == len(uses),
            f"{told} N is {row.distinct_samples}, but {len(uses)} were trained on",
        )
        squares = sum(use * use for use in uses)
        if squares:
            effective = sum(uses) ** 2 / squares
            trial.expect(
                math.isclose(row.effective_samples, effective, rel_tol=1e-6),
                f"{told} N_eff is {row.effective_samples}, but {effective} by counting",
            )
