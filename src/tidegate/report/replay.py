"""What a policy would have done at the prices of a recorded run: counted, not trained."""

import functools
import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from tidegate.cohorts import Cohorts, share_reached
from tidegate.errors import ConfigurationError
from tidegate.policies import ControlOptions
from tidegate.policies.presets import make_policy
from tidegate.prices import RecordedPrices
from tidegate.problem import LearningConstants, Problem
from tidegate.runs.own_prices import price_table
from tidegate.runs.reader import RunView
from tidegate.server.fleet import planned_slots
from tidegate.simulation.rounds import Run, simulate
from tidegate.wire import LARGEST_CAPACITY

SEEDS = 5
"""If a round reaches a part of the fleet, the part is drawn anew."""


@dataclass(frozen=True)
class Replay:
    """Replays a run's own prices and clients; all of them answer.

    Clients with their own prices get these again. A run that goes on is planned for all its rounds.
    """

    view: RunView

    @functools.cached_property
    def law(self) -> RecordedPrices:
        """The run's prices, of each client where they differ."""
        own = price_table(self.view)
        return RecordedPrices([row.price for row in self.view.rounds] if own is None else own)

    @property
    def share(self) -> float:
        """The part of the fleet that a round reaches, as the server plans it."""
        view = self.view
        return share_reached(len(view.clients), view.fraction_train, view.min_train_nodes)

    @property
    def seeds(self) -> range:
        """Of the replays of each policy."""
        return range(1 if self.share == 1 else SEEDS)

    def problem(self, budget: float, memory: float = 1.0) -> Problem:
        """Return the run's problem with another budget, and buffers times a factor."""
        view, played = self.view, len(self.view.rounds)
        if not 0 < budget < math.inf:
            raise ConfigurationError(f"--budget must be a number above 0, got {budget:g}")
        largest = max(client.buffer_capacity for client in view.clients)
        if not 0 < memory * largest <= LARGEST_CAPACITY:
            raise ConfigurationError(
                f"--memory must be above 0, and at most {LARGEST_CAPACITY / largest:,.6g} here: no "
                f"buffer may be larger than {LARGEST_CAPACITY:,}; got {memory:g}"
            )
        expected = view.mean_price
        return Problem(
            buffer_capacities=[
                planned_slots(memory * client.buffer_capacity, view.headroom)
                for client in view.clients
            ],
            budget=budget,
            mean_price=float(np.mean(self.law.mean(played))) if expected is None else expected,
            num_rounds=view.num_rounds or played,
            cohorts=Cohorts(fraction_train=self.share),
            learning=LearningConstants(**view.learning),
        )

    def runs(
        self,
        policy: str,
        problem: Problem,
        options: ControlOptions,
        each_round: Callable[[], None] | None = None,
    ) -> list[Run]:
        """Return the runs of a policy, one for each of ``seeds``."""
        made = make_policy(policy, problem, options)
        return [
            simulate(
                *(made, problem, self.law, seed),
                price_per_client=self.law.num_columns > 1,
                until=len(self.view.rounds),
                each_round=each_round,
            )
            for seed in self.seeds
        ]
