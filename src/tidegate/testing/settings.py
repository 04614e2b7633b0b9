"""The policy under test, and the fleets, prices and cohorts on which laws are tried."""

import dataclasses
import itertools
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from tidegate._internal.arrays import IntArray
from tidegate.cohorts import Cohorts
from tidegate.policies import ControlOptions, JointPolicy, PolicyMaker
from tidegate.prices import MarkovPrice, PriceLaw, RecordedPrices, UniformPrice
from tidegate.problem import Problem
from tidegate.simulation.rounds import RoundRow, SimulationState, begin, play_round
from tidegate.testing.counting import Leaving
from tidegate.testing.law import Trial

FLEETS: tuple[tuple[tuple[int, ...], float], ...] = (
    ((8, 9, 10, 11, 12), 20.0),
    ((3, 1, 2), 0.7),
    ((40, 7), 400.0),
)
"""Capacities and budget: enough for some, too little for anything, enough for everything."""
COHORTS = (
    Cohorts(),
    Cohorts(fraction_train=0.5),
    Cohorts(fraction_train=0.6, least_available=0.3, leaving=0.002),
)
"""Everyone; half of the fleet, drawn anew in each round; some away, and some for good."""


@dataclass(frozen=True)
class Setting:
    """One problem with its prices, and the options that a policy is made with."""

    problem: Problem
    prices: PriceLaw
    named: str
    """The prices, in words."""
    options: ControlOptions = dataclasses.field(default_factory=ControlOptions)

    def __str__(self) -> str:
        capacities = ", ".join(map(str, self.problem.capacities.tolist()))
        chosen = [
            f"{one.name}={value}"
            for one in dataclasses.fields(ControlOptions)
            if (value := getattr(self.options, one.name)) != one.default
        ]
        reached = self.problem.cohorts
        return "; ".join(
            [
                f"capacities {capacities}, budget {self.problem.budget:g}, {self.named}",
                *([] if reached.everyone else [str(reached)]),
                *([", ".join(chosen)] if chosen else []),
            ]
        )

    def reaching(self, cohorts: Cohorts) -> "Setting":
        """The same with other cohorts."""
        problem = dataclasses.replace(self.problem, cohorts=cohorts)
        return dataclasses.replace(self, problem=problem)

    def choosing(self, **choices: Any) -> "Setting":
        """The same with other options."""
        return dataclasses.replace(self, options=ControlOptions(**choices))

    def policy(self, make: PolicyMaker) -> JointPolicy[Any]:
        """The policy for this problem."""
        return make(self.problem, self.options)

    def steps(
        self, policy: JointPolicy[Any]
    ) -> Iterator[tuple[IntArray, SimulationState[Any], RoundRow]]:
        """(who took part, state after, row) of every round."""
        problem = self.problem
        state = begin(policy, problem)
        prices = self.prices.rounds(np.random.default_rng(3))
        members = problem.cohorts.rounds(np.random.default_rng(4), problem.num_clients)
        for price, who, _ in zip(prices, members, range(problem.num_rounds), strict=False):
            state, row = play_round(policy, problem, state, price, who)
            yield np.arange(problem.num_clients)[who], state, row


def settings(rounds: int) -> Iterator[Setting]:
    """All prices with all fleets, everyone taking part, options as by default."""
    laws: dict[str, PriceLaw] = {
        "uniform prices from 1 to 10": UniformPrice(1.0, 10.0),
        "prices that stay for a while at 1 or at 9": MarkovPrice(1.0, 9.0, 0.95, 0.9),
        "free samples and shocks": RecordedPrices([0.0, 40.0, 3.0, 0.5] * (rounds // 4 + 1)),
    }
    for (named, law), (capacities, budget) in itertools.product(laws.items(), FLEETS):
        problem = Problem(
            buffer_capacities=capacities,
            budget=budget,
            mean_price=law.mean(rounds),
            num_rounds=rounds,
        )
        yield Setting(problem, law, named)


@dataclass(frozen=True)
class Subject:
    """A policy under test."""

    make: PolicyMaker
    leaving: Leaving | None = None
    """When its retention rule lets a sample go, where that rule is none of this package's."""
    rounds: int = 60
    """Of each run."""

    def settings(self) -> Iterator[Setting]:
        """Those that every law is tried on."""
        return settings(self.rounds)


def tried(law: str, cases: Iterable[Setting]) -> Iterator[tuple[Setting, Trial]]:
    """Each setting with the law that is tried on it."""
    return ((setting, Trial(law, str(setting))) for setting in cases)
