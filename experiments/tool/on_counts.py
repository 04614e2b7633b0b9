"""Run an experiment with a linear model in a second, without a fleet, from simulated counts.

Admissions do not depend on the model, so ``simulation`` says how many samples every client admits
and holds, and its stream says which. The E local steps of a linear model stay within the span of
its samples: with G the gradients by scores and η the learning rate,

    X·(W - η·XᵀG) = X·W - η·(X·Xᵀ)·G,

so the cost of a step depends only on the number of samples, once X·Xᵀ is computed for the round.
The weights equal those of the Flower app up to rounding.
"""

import contextlib
import functools
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import numpy as np
from flwr.app import Context
from numpy.typing import NDArray

from experiments.tool.data import FederatedData
from experiments.tool.job import Job
from experiments.tool.models import new_model
from experiments.tool.ranking import rank
from experiments.tool.results import RowWriter
from experiments.tool.training import as_inputs
from tidegate._internal.arrays import IntArray
from tidegate.buffer import leaving
from tidegate.errors import ConfigurationError
from tidegate.policies import ControlOptions
from tidegate.policies.presets import make_policy
from tidegate.problem import Problem
from tidegate.selection import Selection
from tidegate.server.fleet_round import FleetRound
from tidegate.simulation.rounds import RoundRow, begin, play_round

Floats = NDArray[np.float32]


@dataclass
class Client:
    """The samples that a client reads, ranks and holds, as indices of its part of the data."""

    name: str
    inputs: Floats
    """Its samples, with a 1 for the bias."""
    labels: IntArray
    stream: IntArray
    """The order in which it reads its samples."""
    read: int = 0
    waiting: list[int] = field(default_factory=list)
    held: list[int] = field(default_factory=list)
    """Oldest first."""
    since: list[int] = field(default_factory=list)
    """The round in which each of them came."""

    def admit(self, fresh: int, stored: int, job: Job, model: Floats, now: int) -> None:
        """Admit ``fresh`` samples, and let others go until ``stored`` are left."""
        selection = job.selection
        if selection is None:
            new = self._next(fresh)
        else:
            new = self._best(fresh, selection, job.ranking, model, now)
        if len(new) < fresh:
            raise ConfigurationError(
                f"{self.name} has used up its {len(self.stream)} samples in round {now}, which "
                "--engine counts does not support: use fewer rounds, or --engine here"
            )
        held, since = [*self.held, *new], [*self.since, *[now] * fresh]
        goes = self._leaving(len(held) - stored, now, grouped=job.group)
        kept = [place for place in range(len(held)) if place not in goes]
        self.held = [held[place] for place in kept]
        self.since = [since[place] for place in kept]

    def _leaving(self, count: int, now: int, *, grouped: bool) -> set[int]:
        """Return the places of samples that make room, as ``tidegate.client.gate`` chooses them."""
        if not grouped:
            return set(range(count))
        labels = self.labels[self.held].tolist()
        stays = [(now - came, str(label)) for came, label in zip(self.since, labels, strict=True)]
        going = leaving(Counter(stays), count)
        places = set()
        for place, stay in enumerate(stays):
            if going[stay]:
                going[stay] -= 1
                places.add(place)
        return places

    def _next(self, count: int) -> list[int]:
        found: list[int] = self.stream[self.read : self.read + count].tolist()
        self.read += len(found)
        return found

    def _best(
        self, fresh: int, selection: Selection, ranking: str, model: Floats, now: int
    ) -> list[int]:
        """Choose as ``tidegate.client.choosing`` does if nothing fails."""
        if fresh or selection.backlog:
            self.waiting += self._next(max(selection.candidates, fresh))
        chosen: list[int] = []
        if fresh:
            likely = softmax((self.inputs[self.waiting] @ model).astype(np.float64))
            nobody = cast("Context", None)  # only a rule from a file reads it
            worths = rank(ranking, likely, self.labels[self.waiting], nobody)
            chosen = selection.choose(worths, fresh, (self.name, now))
        new = [self.waiting[place] for place in chosen]
        taken = set(chosen)
        left = [place for number, place in enumerate(self.waiting) if number not in taken]
        self.waiting = left[max(len(left) - selection.backlog, 0) :]
        return new


@dataclass(frozen=True)
class Played:
    """The figures of a round, the clients' samples and the model after it."""

    row: RoundRow
    fresh: IntArray
    """Samples that each client admitted: the last of those that it holds."""
    stored: IntArray
    clients: list[Client]
    """In the order of their names; the next round changes them."""
    model: Floats
    """One column a class, the bias last."""


def run_on_counts(job: Job) -> None:
    """Play a job, and write the rows that the Flower app would write.

    Raises:
        ConfigurationError: if counts do not determine the training samples, or a stream ends.
    """
    _check(job)  # before the file for its rows exists
    test, wanted = judged_part(job)
    with contextlib.closing(RowWriter(Path(job.results))) as rows:
        for played in rounds_on_counts(job):
            accuracy, loss = float("nan"), float("nan")
            if judged(job, played.row.round_number):
                accuracy, loss = _judge(test @ played.model, wanted)
            rows.write(_told(played.row, job, played.stored), accuracy, loss, job.learning)
        rows.finish()


def rounds_on_counts(job: Job) -> Iterator[Played]:
    """Play the rounds of a job one by one.

    Raises:
        ConfigurationError: if counts do not determine the training samples, or a stream ends.
    """
    _check(job)
    clients, model = clients_of(job), first_model(job)
    for row, fresh, stored in _counts(job):
        for client, new, kept in zip(clients, fresh.tolist(), stored.tolist(), strict=True):
            client.admit(new, kept, job, model, row.round_number)
        model = _after_round(model, clients, job)
        yield Played(row, fresh, stored, clients, model)


def judged(job: Job, round_number: int) -> bool:
    """Return whether the model is evaluated after a round: every ``judge_every``, and the last."""
    return round_number == job.rounds or round_number % job.judge_every == 0


def judged_part(job: Job) -> tuple[Floats, IntArray]:
    """Return inputs of the test part, with a 1 for the bias, and labels."""
    inputs, wanted = job.federated_data.test_arrays(job.test_inputs)
    return _with_one(inputs), wanted


def _check(job: Job) -> None:
    """Refuse a job that needs the Flower app."""
    for key, value, known in (
        ("model", job.model, job.model == "logistic"),
        ("delay", job.delay, job.delay == "0"),
        ("stream", job.stream, job.stream == "shuffled"),
        ("train_on", job.train_on, not job.train_on),
        ("group", job.group, not job.group or job.policy == "tide"),
        ("ranking", job.ranking, ":" not in job.ranking),
    ):
        if not known:
            raise ConfigurationError(
                "--engine counts runs linear models that train on all they hold, not "
                f"{key} = {value!r}; leave out --engine"
            )


def _counts(job: Job) -> Iterator[tuple[RoundRow, IntArray, IntArray]]:
    """Yield every round, with each client's admitted and stored samples, by client name."""
    problem = Problem(
        buffer_capacities=_capacities(job),
        budget=job.budget,
        mean_price=job.prices.mean(job.rounds),
        num_rounds=job.rounds,
        learning=job.learning,
    )
    options = ControlOptions(
        retention_horizon=job.retention_horizon or None,
        most_uses=job.most_uses or None,
        hard_capacity=job.headroom == 1,
        spend_ahead=job.limit_ahead,
    )
    policy = make_policy(job.policy, problem, options, preset=job.preset)
    state, prices = begin(policy, problem, job.seed), job.prices
    admitted, uses = state.admitted, state.occupancy_sums.copy()
    for now in range(1, job.rounds + 1):
        state, row = play_round(policy, problem, state, prices.at(now))
        stored = state.occupancy_sums - uses
        fresh = state.admitted - admitted
        # Samples from before round 1 are not part of an order.
        yield row, np.maximum(fresh, stored) if now == 1 else fresh, stored
        admitted, uses = state.admitted, state.occupancy_sums.copy()


def _capacities(job: Job) -> list[int]:
    """Return the planned slots of each client; the last one for all that follow."""
    given = [int(one) for one in job.capacities.split(",")]
    return [given[min(number, len(given) - 1)] for number in _by_name(job)]


def _by_name(job: Job) -> list[int]:
    """Return partitions in the order of client names, as in a fleet."""
    return sorted(range(job.clients), key=lambda number: f"partition-{number}")


def clients_of(job: Job) -> list[Client]:
    """Return the clients in the order of their names; they hold nothing yet."""
    altered = job.wrong_labels, job.long_tail
    parts = _parts(job.federated_data, job.partition, job.clients, job.seed, *altered)
    made = []
    for number in _by_name(job):
        inputs, labels = parts[number]
        order = job.reading_order(number, len(labels))
        made.append(Client(f"partition-{number}", inputs, labels, order))
    return made


@functools.lru_cache(maxsize=1)
def _parts(
    data: FederatedData, how: str, count: int, seed: int, wrong_labels: float, long_tail: float
) -> list[tuple[Floats, IntArray]]:
    """Return the parts of all clients, cached for the other policies of a seed."""
    altered = {"wrong_labels": wrong_labels, "long_tail": long_tail}
    mine = (data.partition(how, number, count, seed, **altered) for number in range(count))
    return [(_with_one(inputs), labels) for inputs, labels in (part.arrays() for part in mine)]


def _with_one(inputs: NDArray[Any]) -> Floats:
    flat = as_inputs(inputs).flatten(1).numpy()
    return np.hstack([flat, np.ones((len(flat), 1), np.float32)])


def first_model(job: Job) -> Floats:
    """Return the initial weights of a seed, one column a class, the bias last."""
    data = job.federated_data
    model = new_model(job.model, data.input_shape, data.num_classes, seed=job.seed)
    weights, bias = (one.numpy() for one in model.state_dict().values())
    return np.vstack([weights.T, bias[None]])


def _after_round(model: Floats, clients: list[Client], job: Job) -> Floats:
    """Return the average of the clients' models after E steps, weighted by α_m n_m."""
    sizes = np.array([len(client.held) for client in clients])
    importance = job.weights or [1.0] * len(clients)
    weights = sizes * np.array([importance[number] for number in _by_name(job)])
    if not weights.any():
        return model
    inputs = np.zeros((len(clients), sizes.max(), len(model)), np.float32)
    wanted = np.zeros((len(clients), sizes.max(), model.shape[1]), np.float32)
    part = np.zeros((len(clients), sizes.max(), 1), np.float32)
    for number, client in enumerate(clients):
        inputs[number, : sizes[number]] = client.inputs[client.held]
        wanted[number, np.arange(sizes[number]), client.labels[client.held]] = 1
        part[number, : sizes[number]] = 1 / max(sizes[number], 1)
    scores, products = inputs @ model, inputs @ inputs.transpose(0, 2, 1)
    speed: NDArray[Any] = np.zeros_like(wanted)
    pulled: NDArray[Any] = np.zeros_like(wanted)
    for _ in range(job.local_steps):
        speed = np.float32(job.momentum) * speed + (softmax(scores) - wanted) * part
        pulled += speed
        scores = scores - np.float32(job.learning_rate) * (products @ speed)
    shares = (weights / weights.sum()).astype(np.float32)
    weighted = (shares[:, None, None] * pulled).reshape(-1, model.shape[1])
    step = inputs.reshape(-1, len(model)).T @ weighted
    moved: Floats = model - np.float32(job.learning_rate) * step
    return moved


def softmax(scores: NDArray[Any]) -> NDArray[Any]:
    """Return class probabilities, one row a sample."""
    chances = np.exp(scores - scores.max(axis=-1, keepdims=True))
    shares: NDArray[Any] = chances / chances.sum(axis=-1, keepdims=True)
    return shares


def _judge(scores: Floats, wanted: IntArray) -> tuple[float, float]:
    """Return accuracy and mean loss."""
    right = scores.argmax(axis=1) == wanted
    likely = softmax(scores.astype(np.float64))[np.arange(len(wanted)), wanted]
    return float(right.mean()), float(-np.log(np.maximum(likely, 1e-300)).mean())


def _told(row: RoundRow, job: Job, stored: IntArray) -> FleetRound:
    """Return a simulated round as a round of a fleet in which all clients reply."""
    clients = job.clients
    return FleetRound(
        round_number=row.round_number,
        price=row.price,
        ordered=row.ordered,
        fleet=clients,
        orders=clients,
        answered=clients,
        exhausted=0,
        admitted=row.admitted,
        spent=row.spent,
        overspend=row.overspend,
        cost_debt=row.cost_debt,
        exposure=0.0,
        slots=sum(_capacities(job)),
        training_size=row.training_size,
        distinct_samples=row.distinct_samples,
        effective_samples=row.effective_samples,
        empty_clients=int((stored == 0).sum()),
    )
