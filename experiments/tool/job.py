"""One run of an experiment: a policy on a seed, as a run-config carries it to every node."""

import dataclasses
import functools
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from experiments.tool.config import ExperimentConfig, PolicyChoice, constants_of, stretch
from experiments.tool.data import FederatedData
from tidegate._internal.arrays import IntArray
from tidegate._internal.randomness import STREAM, generator
from tidegate.prices import PricePath
from tidegate.problem import LearningConstants
from tidegate.selection import Selection


@dataclass(frozen=True, kw_only=True)
class Job:
    """The settings of a run for server and clients; every field is a key of the run-config."""

    data: str = ""
    input_column: str = "image"
    label_column: str = "label"
    test_split: str = "test"
    test_inputs: int = 0
    judge_every: int = 1
    partition: str = "classes:2"
    stream: str = "shuffled"
    pool: int = 0
    wrong_labels: float = 0.0
    long_tail: float = 1.0
    model: str = "lenet"
    width: int = 0
    learning_rate: float = 0.1
    momentum: float = 0.0
    local_steps: int = 10
    capacities: str = "10"
    """The planned slots, one number a client; the last one for all that follow."""
    importance: str = ""
    """α_m, one number a client; all alike if empty."""
    clients: int = 10
    headroom: float = 1.0
    budget: float = 55.0
    price: str = "uniform:1,10"
    delay: str = "0"
    rounds: int = 30
    seed: int = 0
    policy: str = "tide"
    preset: str = "as_printed"
    retention_horizon: int = 0
    """K; 0 for the planned one."""
    spend_ahead: float = -1.0
    """s, the rounds whose budget may be spent ahead; below 0 for no limit."""
    most_uses: int = 0
    """The most rounds in which a sample trains; 0 for no cap."""
    ranking: str = ""
    candidates: int = Selection.candidates
    backlog: int = Selection.backlog
    random_share: float = 0.0
    group: bool = False
    train_on: int = 0
    """The most samples that a client trains on in a round; 0 for all."""
    domain_diameter: float = 1.0
    gradient_noise: float = 1.0
    loss_bound: float = 1.0
    pseudo_dimension: float = 100.0
    results: str = ""
    """The folder for one row a round; empty for no rows."""

    @classmethod
    def of(
        cls, experiment: ExperimentConfig, choice: PolicyChoice, seed: int, budget: float
    ) -> "Job":
        """Return the run of one policy on one seed.

        If the budget is fitted to the policy's spending, K is the one planned for C.

        Args:
            experiment: the experiment.
            choice: the policy.
            seed: the seed of prices, streams and initial weights.
            budget: C, or the budget with which the policy spends C.
        """
        common = {field.name for field in dataclasses.fields(cls)} & set(
            ExperimentConfig.model_fields
        )
        values = {name: getattr(experiment, name) for name in common}
        horizon = choice.fixed_horizon(experiment.problem(seed))
        return cls(
            **values
            | {
                "capacities": ",".join(map(str, experiment.capacities)),
                "importance": ",".join(map(str, experiment.importance)),
                "clients": len(experiment.capacities),
                "headroom": choice.headroom,
                "budget": budget,
                "seed": seed,
                "policy": choice.name,
                "preset": choice.preset,
                "retention_horizon": horizon or 0,
                "spend_ahead": -1.0 if choice.spend_ahead is None else choice.spend_ahead,
                "most_uses": choice.most_uses or 0,
                "ranking": choice.ranking,
                "candidates": choice.candidates,
                "backlog": choice.backlog,
                "random_share": choice.random_share,
                "group": choice.group,
                "train_on": choice.train_on,
            }
        )

    @classmethod
    def from_config(cls, config: Mapping[str, Any]) -> "Job":
        """Return the job of a run-config; other keys are ignored."""
        fields = {field.name: field for field in dataclasses.fields(cls)}
        given = {key.replace("-", "_"): value for key, value in config.items()}
        values = {name: _as(fields[name].type, given[name]) for name in fields if name in given}
        return cls(**values)

    def to_config(self) -> dict[str, Any]:
        """Return the run-config that ``from_config`` reads, with keys in Flower's spelling."""
        return {name.replace("_", "-"): value for name, value in vars(self).items()}

    @property
    def federated_data(self) -> FederatedData:
        """The data set of the run."""
        return _federated(self.data, self.input_column, self.label_column, self.test_split)

    @property
    def prices(self) -> PricePath:
        """The prices of this seed."""
        return PricePath(stretch(self.price, self.seed, self.rounds), self.seed)

    @property
    def limit_ahead(self) -> float | None:
        """The rounds whose budget may be spent ahead; None for no limit."""
        return None if self.spend_ahead < 0 else self.spend_ahead

    @property
    def selection(self) -> Selection | None:
        """How clients choose among candidates; None if they do not."""
        if not self.ranking:
            return None
        return Selection(self.candidates, self.backlog, self.random_share)

    @property
    def learning(self) -> LearningConstants:
        """Constants of the bound."""
        return constants_of(self)

    def memory(self, client: int) -> int:
        """Return the slots of a client: the planned ones times the headroom."""
        planned = [int(part) for part in self.capacities.split(",")]
        return math.ceil(planned[min(client, len(planned) - 1)] * self.headroom)

    @property
    def weights(self) -> list[float]:
        """α_m of each client."""
        return [float(part) for part in self.importance.split(",")] if self.importance else []

    def reading_order(self, client: int, size: int) -> IntArray:
        """Return the order in which a client reads its part of the data, by index.

        With a pool it lists more than the run reads: a round admits what the memory holds, at most,
        or reads that many candidates.
        """
        draw = generator(self.seed, STREAM, client)
        order: IntArray = draw.permutation(size) if self.stream == "shuffled" else np.arange(size)
        if not self.pool:
            return order
        pool = order[: self.pool]
        reads = self.rounds * max(self.memory(client), self.candidates)
        again = [draw.permutation(pool) for _ in range(reads // len(pool))]
        return np.concatenate([pool, *again])


_federated = functools.lru_cache(maxsize=4)(FederatedData)
"""Cached with what it knows about its samples, because every message needs it."""


def _as(kind: Any, value: Any) -> Any:
    """Return a value of the run-config in the type of its field: 55.0 for 55, "10" for 10."""
    return kind(value) if kind in (float, str) else value
