"""How far is Tide with a ranking from what its money can buy at all, and where is the rest lost?

python -m experiments.limit.limit mnist --out experiments/limit

A linear model on MNIST or on frozen features, on the prices, streams and first weights of the
published experiments. From Tide that ranks by margin, limits are taken away one after another:
memory keeps everything that was ever bought, all samples lie in one place, training goes on to its
end, prices are known ahead, a round may take more than memory holds, and money does not matter.
Each row is compared with the one that it takes one limit from.
"""

import argparse
import itertools
from collections.abc import Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from experiments.tool.comparison import write_csv
from experiments.tool.config import ExperimentConfig
from experiments.tool.job import Job
from experiments.tool.on_counts import (
    clients_of,
    first_model,
    judged,
    judged_part,
    rounds_on_counts,
    softmax,
)
from tidegate._internal.randomness import generator
from tidegate.selection import margin
from tidegate.simulation.summary import estimate

Array = np.ndarray[Any, np.dtype[Any]]

FOLDER = Path(__file__).parents[1]
DRAWN_HERE = 71
"""The address of what this script draws."""
FEWEST_STEPS, LOOK, LATER = 150, 3, 1.05
"""Of training to the end: accelerated steps, how many of them lie between two looks at the test
part, and by what factor looks lie apart later. The best look counts, as the best round of a run
does, and training ends when a third of its steps has brought no better one."""
STAGES, STAGE_STEPS = 10, 30
"""Of buying by margin in one place: purchases, and steps of training before each."""


@dataclass(frozen=True)
class Task:
    """An experiment, and what Tide with a ranking reads in it."""

    file: str
    candidates: int
    """New ones a round and client."""


TASKS: Mapping[str, Task] = {
    "mnist": Task("mnist-logistic/config.toml", 20),
    "cifar10-features": Task("cifar10-features/config.toml", 20),
    "imagenette-features": Task("imagenette-features/with-oracle.toml", 4),
}
VARIANTS: Mapping[str, str] = {
    "constant admission": "",
    "Tide": "constant admission",
    "Tide, all kept": "Tide",
    "Tide by margin": "Tide",
    "Tide by margin, all kept": "Tide by margin",
    "Tide by margin, in one place": "Tide by margin, all kept",
    "Tide by margin, trained to the end": "Tide by margin, in one place",
    "cheapest rounds, at random": "constant admission",
    "cheapest rounds, by margin": "Tide by margin, trained to the end",
    "lowest price, at random": "cheapest rounds, at random",
    "lowest price, by margin": "cheapest rounds, by margin",
    "all samples": "lowest price, by margin",
    "costless oracle": "constant admission",
}
"""Each with the one that it is compared with."""


@dataclass(frozen=True)
class Measured:
    """What came of one variant on one seed."""

    best: float
    """Test accuracy, in percent."""
    samples: int
    """That were bought."""
    spent: float
    """A round."""


def most_samples(prices: Array, money: float, most_a_round: float) -> int:
    """The most samples that money buys, prices known ahead, so many a round at most.

    All samples count alike, so the cheapest are the optimum.

    >>> most_samples(np.array([3.0, 1.0, 2.0]), money=10.0, most_a_round=4)
    7
    """
    bought = 0
    for price in np.sort(prices).tolist():
        now = int(min(most_a_round, (money + 1e-9) // price))
        bought, money = bought + now, money - now * price
    return bought


@dataclass(frozen=True, eq=False)
class Seed:
    """Samples and prices of one seed."""

    job: Job
    inputs: Array
    """Of all clients, one after another, with a 1 for the bias."""
    labels: Array
    test: tuple[Array, Array]

    def accuracy(self, model: Array) -> float:
        """On the test part, in percent."""
        inputs, wanted = self.test
        return 100 * float(((inputs @ model).argmax(1) == wanted).mean())

    @property
    def nothing(self) -> Array:
        """A model that knows nothing."""
        return np.zeros_like(first_model(self.job))

    def descent(self, which: Array, model: Array) -> Iterator[Array]:
        """Models of Nesterov's accelerated descent on the mean loss of some samples.

        A step is 1/L with L = λ/2, λ the largest eigenvalue of XᵀX/n: the loss is L-smooth.
        """
        inputs, labels = self.inputs[which], self.labels[which]
        wanted = np.eye(model.shape[1], dtype=np.float32)[labels]
        step = np.float32(2 / (1.05 * _largest_eigenvalue(inputs)) / len(which))
        before = model
        for number in itertools.count(1):
            ahead = model + np.float32((number - 1) / (number + 2)) * (model - before)
            pull = inputs.T @ (softmax(inputs @ ahead) - wanted)
            before, model = model, ahead - step * pull
            yield model

    def to_the_end(self, which: Array) -> float:
        """The best accuracy on the way of a model that is trained on some samples."""
        best, found_at, look = 0.0, 0, LOOK
        for number, model in enumerate(self.descent(which, self.nothing), start=1):
            if number < look:
                continue
            look = max(number + LOOK, int(LATER * number))
            if (now := self.accuracy(model)) > best:
                best, found_at = now, number
            if number >= max(FEWEST_STEPS, 1.5 * found_at):
                break
        return best

    def at_random(self, count: int) -> Array:
        """Some samples."""
        draw = generator(self.job.seed, DRAWN_HERE)
        found: Array = draw.permutation(len(self.labels))[:count]
        return found

    def by_margin(self, count: int) -> Array:
        """Samples that a model trained on those bought before is least sure of, of all there are.

        A tenth is bought at random, and then a tenth at a time.
        """
        which, model = self.at_random(count // STAGES), self.nothing
        for stage in range(2, STAGES + 1):
            model = next(itertools.islice(self.descent(which, model), STAGE_STEPS - 1, None))
            worth = margin(softmax((self.inputs @ model).astype(np.float64)))
            worth[which] = -np.inf
            more = count * stage // STAGES - len(which)
            which = np.concatenate([which, np.argpartition(-worth, more - 1)[:more]])
        return which


def seed_of(experiment: ExperimentConfig, number: int) -> Seed:
    """The samples of a seed."""
    job = Job.of(experiment, experiment.policies[0], number, experiment.budget)
    clients = clients_of(job)
    inputs = np.concatenate([client.inputs for client in clients])
    labels = np.concatenate([client.labels for client in clients])
    return Seed(job, inputs, labels, judged_part(job))


def _largest_eigenvalue(inputs: Array) -> float:
    """Of XᵀX/n, by twenty steps of power iteration."""
    vector = np.ones(inputs.shape[1], np.float32)
    length = 1.0
    for _ in range(20):
        vector = inputs.T @ (inputs @ vector) / np.float32(len(inputs))
        length = float(np.linalg.norm(vector))
        vector /= np.float32(length)
    return length


Purchases = list[list[Array]]
"""Places in ``Seed.inputs``: of every round, of every client."""


def played(seed: Seed, job: Job) -> tuple[Measured, Purchases]:
    """What a policy comes to, and what it buys."""
    best, spent, purchases = 0.0, 0.0, Purchases()
    for now in rounds_on_counts(job):
        spent += now.row.spent
        starts = np.cumsum([0, *(len(client.labels) for client in now.clients[:-1])])
        purchases.append(
            [
                start + np.array(client.held[len(client.held) - fresh :], dtype=np.int64)
                for start, client, fresh in zip(starts, now.clients, now.fresh, strict=True)
            ]
        )
        if judged(job, now.row.round_number):
            best = max(best, seed.accuracy(now.model))
    count = sum(len(which) for each in purchases for which in each)
    return Measured(best, count, spent / job.rounds), purchases


@dataclass(eq=False)
class Keeper:
    """A client that keeps all that it ever bought, and the products of its samples."""

    inputs: Array
    wanted: Array
    products: Array

    @classmethod
    def new(cls, features: int, classes: int) -> "Keeper":
        """An empty one."""
        return cls(
            *(np.zeros(shape, np.float32) for shape in ((0, features), (0, classes), (0, 0)))
        )

    def add(self, inputs: Array, wanted: Array) -> None:
        """Keep more samples."""
        old, self.inputs = self.inputs, np.vstack([self.inputs, inputs])
        self.wanted = np.vstack([self.wanted, wanted])
        beside = old @ inputs.T
        self.products = np.block([[self.products, beside], [beside.T, inputs @ inputs.T]])

    def step(self, model: Array, job: Job) -> Array:
        """What E local steps change about the model: X·W follows from X·Xᵀ alone."""
        scores, pulled = self.inputs @ model, np.zeros_like(self.wanted)
        rate = np.float32(job.learning_rate / len(self.wanted))
        for _ in range(job.local_steps):
            pull = softmax(scores) - self.wanted
            pulled += pull
            scores -= rate * (self.products @ pull)
        moved: Array = -rate * (self.inputs.T @ pulled)
        return moved


def all_kept(seed: Seed, purchases: Purchases, *, in_one_place: bool) -> float:
    """The best accuracy of the same rounds if nothing that was bought is ever given up.

    Args:
        seed: samples and settings.
        purchases: of every round and client.
        in_one_place: one client has all samples, and takes as many steps a round as each would.
    """
    model: Array = first_model(seed.job)
    classes = np.eye(model.shape[1], dtype=np.float32)
    keepers = [Keeper.new(*model.shape) for _ in range(1 if in_one_place else len(purchases[0]))]
    which, best = np.zeros(0, np.int64), 0.0
    for number, bought in enumerate(purchases, start=1):
        which = np.concatenate([which, *bought])
        if in_one_place:
            *_, model = plain_steps(seed, which, model) if len(which) else (model,)
        else:
            for keeper, new in zip(keepers, bought, strict=True):
                keeper.add(seed.inputs[new], classes[seed.labels[new]])
            parts = [keeper for keeper in keepers if len(keeper.wanted)]
            steps = [len(one.wanted) * one.step(model, seed.job) for one in parts]
            model = model + sum(steps, 0 * model) / max(len(which), 1)
        if judged(seed.job, number):
            best = max(best, seed.accuracy(model))
    return best


def plain_steps(seed: Seed, which: Array, model: Array) -> Iterator[Array]:
    """Models of E steps of gradient descent on some samples."""
    inputs, labels = seed.inputs[which], seed.labels[which]
    wanted = np.eye(model.shape[1], dtype=np.float32)[labels]
    for _ in range(seed.job.local_steps):
        pull = inputs.T @ (softmax(inputs @ model) - wanted)
        model = model - np.float32(seed.job.learning_rate / len(which)) * pull
        yield model


def measured(experiment: ExperimentConfig, number: int) -> dict[str, Measured]:
    """All variants on one seed."""
    names = ("constant admission", "Tide", "Tide by margin", "costless oracle")
    seed = seed_of(experiment, number)
    found, bought = dict[str, Measured](), dict[str, Purchases]()
    for name, choice in zip(names, experiment.policies, strict=True):
        job = Job.of(experiment, choice, number, experiment.budget)
        found[name], bought[name] = played(seed, job)
    for name in ("Tide", "Tide by margin"):
        of = found[name]
        best = all_kept(seed, bought[name], in_one_place=False)
        found[f"{name}, all kept"] = Measured(best, of.samples, of.spent)
    ranked, of = bought["Tide by margin"], found["Tide by margin"]
    best = all_kept(seed, ranked, in_one_place=True)
    found["Tide by margin, in one place"] = Measured(best, of.samples, of.spent)
    which = np.concatenate([new for each in ranked for new in each])
    best = seed.to_the_end(which)
    found["Tide by margin, trained to the end"] = Measured(best, of.samples, of.spent)
    rounds, money = experiment.rounds, experiment.budget * experiment.rounds
    prices = np.array([seed.job.prices.at(now) for now in range(1, rounds + 1)])
    for name, most in (("cheapest rounds", sum(experiment.capacities)), ("lowest price", np.inf)):
        count = min(most_samples(prices, money, most), len(seed.labels))
        for how, chosen in (("at random", seed.at_random), ("by margin", seed.by_margin)):
            best = seed.to_the_end(chosen(count))
            found[f"{name}, {how}"] = Measured(best, count, experiment.budget)
    return found


def main(
    task: str, out: Path, *, data: str = "", rounds: int = 0, seeds: int = 10, workers: int = 2
) -> None:
    """Measure, and write the table of a task."""
    ranking = {"ranking": "margin", "candidates": TASKS[task].candidates, "backlog": 100}
    changes: dict[str, Any] = {"seeds": seeds} | ({"data": data} if data else {})
    changes |= {"rounds": rounds} if rounds else {}
    changes["policies"] = [
        {"name": "constant_admission"},
        {"name": "tide"},
        {"name": "tide", **ranking},
        {"name": "costless_oracle"},
    ]
    experiment = ExperimentConfig.read(FOLDER / TASKS[task].file, changes)
    with ProcessPoolExecutor(workers) as pool:
        runs = list(pool.map(partial(measured, experiment), experiment.all_seeds))
    whole = ceiling(experiment)
    found = [{**run, "all samples": whole} for run in runs]
    table = [row(name, above, found) for name, above in VARIANTS.items()]
    out.mkdir(parents=True, exist_ok=True)
    write_csv(out / f"expected-{task}.csv", table)
    for one in table:
        print(*one.values(), sep=" | ")


def ceiling(experiment: ExperimentConfig) -> Measured:
    """The model trained on all samples of all clients: every seed has the same."""
    seed = seed_of(experiment, experiment.first_seed)
    everything = np.arange(len(seed.labels))
    return Measured(seed.to_the_end(everything), len(everything), np.inf)


def row(name: str, above: str, found: list[dict[str, Measured]]) -> dict[str, object]:
    """A line of the table."""
    mine, base = ([run[one].best for run in found] for one in (name, above or name))
    best = estimate(mine)
    step = estimate([high - low for high, low in zip(mine, base, strict=True)])
    return {
        "variant": name,
        "samples": round(float(np.mean([run[name].samples for run in found]))),
        "spent_per_round": shown(float(np.mean([run[name].spent for run in found])), 1),
        "best_accuracy": shown(best.mean),
        "best_half_width": shown(best.half_width),
        "compared_with": above,
        "step": shown(step.mean) if above else "",
        "step_half_width": shown(step.half_width) if above else "",
    }


def shown(value: float, places: int = 2) -> str:
    """A number; nothing for what cannot be told."""
    return f"{value:.{places}f}" if np.isfinite(value) else ""


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("task", choices=list(TASKS))
    parser.add_argument("--out", type=Path, default=Path("limit"))
    parser.add_argument("--data", default="", help="folder, if not the one of the experiment")
    parser.add_argument("--rounds", type=int, default=0, help="if not those of the experiment")
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--workers", type=int, default=2)
    given = vars(parser.parse_args())
    main(given.pop("task"), given.pop("out"), **given)
