"""Three ways to bring price and worth together, at equal spending: one row a setting and way.

    python -m experiments.selection.price_and_worth --data data/mnist --out price-and-worth.csv

- random: Tide's thresholds say how many samples each client buys; they are taken as they come.
- rank: as many, but those among all that wait that the model is least sure of (margin).
- over time: of these, a client buys only those whose worth is among the best tenth of the
  candidates that it saw lately, as stream-based active learning does; other slots wait.
- price by worth: the best candidate replaces the oldest sample where its price, divided by its
  worth relative to that of an average candidate, is below Tide's threshold for the age.

Buffers, thresholds, local steps and averages are those of the experiments beside this file, in
plain NumPy; a controller moves the thresholds' scale so that every way spends the budget.
"""

import argparse
import functools
import itertools
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray
from rich.progress import track

from experiments.tool.comparison import write_csv
from experiments.tool.data import FederatedData
from tidegate._internal.randomness import PRICES, STREAM, generator
from tidegate.policies.presets import EXPERIMENTS
from tidegate.prices import price_law
from tidegate.selection import margin
from tidegate.simulation.summary import estimate
from tidegate.theory.distribution import price_distribution
from tidegate.theory.optimum import optimum

Found = TypeVar("Found")

WAYS = ("random", "rank", "over time", "price by worth")
PRICE_LAWS = ("uniform:1,10", "constant:5.5")
CANDIDATES = (2, 5, 20)
"""New ones a client and round."""
BACKLOG = 100
ROUNDS, BUDGET = 100, 55.0
STEPS, LEARNING_RATE = 10, 0.5
CAPACITIES = EXPERIMENTS["mnist"].buffer_capacities
SELECTIVE = 0.9
"""Quantile of the worths seen lately above which "over time" buys."""
LATELY = 200
PATIENCE = 30
"""Rounds in which the controller makes good what was spent too much or too little."""

Floats = NDArray[np.float32]


@dataclass
class Client:
    """A buffer, what waits, and the stream behind it."""

    inputs: Floats
    labels: NDArray[np.int64]
    order: NDArray[np.int64]
    capacity: int
    stored: list[int] = field(default_factory=list)
    """Rows, oldest first."""
    ages: list[int] = field(default_factory=list)
    waiting: list[int] = field(default_factory=list)
    seen: int = 0
    lately: deque[float] = field(default_factory=lambda: deque(maxlen=LATELY))

    def look(self, candidates: int) -> None:
        """See new candidates; the oldest that wait make room."""
        self.waiting += self.order[self.seen : self.seen + candidates].tolist()
        self.seen += candidates
        del self.waiting[:-BACKLOG]

    def worths(self, weights: Floats) -> NDArray[np.float64]:
        """1 for candidates that the model cannot decide about, 0 for those that it is sure of."""
        return 1 + margin(_probabilities(self.inputs[self.waiting], weights))

    def buy(self, row: int) -> None:
        """A candidate takes an empty slot, or that of the oldest sample."""
        self.waiting.remove(row)
        if len(self.stored) == self.capacity:
            del self.stored[0], self.ages[0]
        self.stored.append(row)
        self.ages.append(0)

    def train(self, weights: Floats) -> Floats:
        """Steps of gradient descent on all that is stored."""
        inputs, wanted = self.inputs[self.stored], np.eye(10, dtype=np.float32)
        targets = wanted[self.labels[self.stored]]
        mine = weights.copy()
        for _ in range(STEPS):
            wrong = _probabilities(inputs, mine) - targets
            mine -= np.float32(LEARNING_RATE / len(inputs)) * (inputs.T @ wrong)
        self.ages = [age + 1 for age in self.ages]
        return mine

    def slots(self) -> Iterator[int]:
        """Ages of the samples to replace, the most urgent first; 0 is an empty slot."""
        yield from [0] * (self.capacity - len(self.stored))
        yield from list(self.ages)


def clients_of(parts: Sequence[tuple[Floats, NDArray[np.int64]]], seed: int) -> list[Client]:
    """A client for each part of the data, with the stream of a seed."""
    return [
        Client(inputs, labels, generator(seed, STREAM, number).permutation(len(labels)), capacity)
        for number, ((inputs, labels), capacity) in enumerate(zip(parts, CAPACITIES, strict=True))
    ]


def averaged(clients: Sequence[Client], weights: Floats) -> Floats:
    """The model after a round: those of clients with samples, by how many each trained on."""
    taking = [client for client in clients if client.stored]
    if not taking:
        return weights
    shares = np.array([len(client.stored) for client in taking], dtype=np.float32)
    trained = np.stack([client.train(weights) for client in taking])
    after: Floats = np.tensordot(shares / shares.sum(), trained, axes=1)
    return after


def bought(
    way: str, client: Client, weights: Floats, price: float, thresholds: Sequence[float]
) -> list[int]:
    """The rows that a client buys in a round, best first."""
    limits = [thresholds[min(age, len(thresholds) - 1)] for age in client.slots()]
    count = min(sum(price <= limit for limit in limits), len(client.waiting))
    if way == "random":
        return client.waiting[-count:] if count else []  # as they come
    worths = client.worths(weights)
    best = [client.waiting[place] for place in np.argsort(-worths, kind="stable")]
    ranked = np.sort(worths)[::-1]
    if way == "rank":
        return best[:count]
    if way == "over time":
        bar = np.quantile(client.lately, SELECTIVE) if client.lately else -np.inf
        client.lately.extend(worths[-min(len(worths), 20) :])
        filling = sum(age == 0 for age in client.slots())  # training begins with what there is
        return [row for row, worth in zip(best, ranked, strict=True) if worth >= bar][
            :count
        ] or best[: min(filling, count)]
    usual = float(np.mean(worths)) if len(worths) else 1.0
    pairs = zip(best, ranked, limits, strict=False)
    return [row for row, worth, limit in pairs if price * usual <= limit * worth]


def play(folder: str, way: str, law: str, candidates: int, seed: int) -> tuple[float, float, float]:
    """Best accuracy in percent, money a round, and labels of one run."""
    parts, test = client_data(folder, seed)
    clients = clients_of(parts, seed)
    prices = price_law(law)
    known = optimum(price_distribution(prices, ROUNDS), BUDGET, sum(CAPACITIES))
    mean = float(np.mean(prices.mean(ROUNDS)))
    planned = (max(known.thresholds[0], mean), *known.thresholds)
    drawn = itertools.islice(prices.rounds(generator(seed, PRICES)), ROUNDS)
    weights = np.zeros((785, 10), dtype=np.float32)
    best, spent, labels = 0.0, 0.0, 0
    for now, price in enumerate(map(float, drawn), start=1):
        lead = spent - BUDGET * (now - 1)
        scale = float(np.exp(-lead / (BUDGET * PATIENCE)))
        thresholds = [scale * one for one in planned]
        for client in clients:
            client.look(candidates)
            for row in bought(way, client, weights, price, thresholds):
                client.buy(row)
                spent, labels = spent + price, labels + 1
        weights = averaged(clients, weights)
        best = max(best, float(np.mean((test[0] @ weights).argmax(1) == test[1])))
    return 100 * best, spent / ROUNDS, float(labels)


def _probabilities(inputs: Floats, weights: Floats) -> Floats:
    scores = inputs @ weights
    scores -= scores.max(axis=1, keepdims=True, initial=-np.inf)
    likely: Floats = np.exp(scores)
    likely /= likely.sum(axis=1, keepdims=True)
    return likely


@functools.lru_cache(maxsize=2)
def client_data(
    folder: str, seed: int
) -> tuple[list[tuple[Floats, NDArray[np.int64]]], tuple[Floats, NDArray[np.int64]]]:
    """Each client's part, and the test part, with a column of ones for the intercept."""
    data = FederatedData(folder)
    count = len(CAPACITIES)
    parts = [data.partition("classes:2", number, count, seed).arrays() for number in range(count)]

    def flat(inputs: NDArray[np.uint8]) -> Floats:
        rows = inputs.reshape(len(inputs), -1).astype(np.float32) / 255
        return np.concatenate([rows, np.ones((len(rows), 1), dtype=np.float32)], axis=1)

    inputs, labels = data.test_arrays()
    return [(flat(one), wanted) for one, wanted in parts], (flat(inputs), labels)


def _of_seed(folder: str, seed: int) -> dict[tuple[str, int, str], tuple[float, float, float]]:
    """All settings of one seed: its data are read once."""
    return {
        (law, candidates, way): play(folder, way, law, candidates, seed)
        for law in PRICE_LAWS
        for candidates in CANDIDATES
        for way in WAYS
    }


def of_all_seeds(
    of_seed: Callable[[str, int], Found], folder: str, seeds: int, workers: int | None = None
) -> list[Found]:
    """What a function finds for each seed, in processes of their own."""
    with ProcessPoolExecutor(workers) as pool:
        each = pool.map(functools.partial(of_seed, folder), range(seeds))
        return list(track(each, "seeds", total=seeds))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", required=True, help="data/mnist, see docs/experiments.md")
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--out", type=Path, required=True, help="the table, as CSV")
    given = parser.parse_args()
    runs = of_all_seeds(_of_seed, given.data, given.seeds, given.workers)
    rows = []
    for law, candidates, way in runs[0]:
        mine = np.array([run[law, candidates, way] for run in runs])
        plain = np.array([run[law, candidates, "random"] for run in runs])
        accuracy, gain = estimate(mine[:, 0].tolist()), estimate((mine - plain)[:, 0].tolist())
        rows.append(
            {
                "price": law,
                "candidates": candidates,
                "way": way,
                "best_accuracy": f"{accuracy.mean:.2f}",
                "best_half_width": f"{accuracy.half_width:.2f}",
                "gain_over_random": f"{gain.mean:.2f}",
                "gain_half_width": f"{gain.half_width:.2f}",
                "spent_per_round": f"{mine[:, 1].mean():.1f}",
                "labels": f"{mine[:, 2].mean():.0f}",
            }
        )
    write_csv(given.out, rows)


if __name__ == "__main__":
    main()
