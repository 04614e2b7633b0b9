"""Algorithm 1 of the paper, line by line, on MNIST: one run a seed, and what comes of it.

python examples/paper/algorithm_1.py                        # the row of the paper's MNIST setting
python examples/paper/algorithm_1.py --picture figures.png  # and Figures 1 (a), 2 (a) and 2 (b)

Comments name the line of Algorithm 1 and the label of the equation in the paper's source. The model
is logistic regression; LeNet takes minutes (``experiments/mnist-lenet``). ``tidegate.simulate``
counts the same in every round (``tests/test_algorithm_1.py``).
"""

import argparse
import gzip
import itertools
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
from numpy.typing import NDArray

import tidegate
from tidegate.admission.allocation import Allocation
from tidegate.admission.debt import next_cost_debt
from tidegate.admission.interval import ClosingInterval
from tidegate.admission.minimise import minimise
from tidegate.admission.objective import Objective
from tidegate.simulation.summary import estimate
from tidegate.theory.parameters import contraction, penalty_weight

Floats = NDArray[np.float32]
Ints = NDArray[np.int64]
Pixels = NDArray[np.uint8]
Columns = dict[str, list[float]]

DATA = Path(os.environ.get("TIDEGATE_DATA", Path(__file__).parents[3] / "shared" / "data"))
CLASSES = 10
MEASURES: Mapping[str, Callable[[Columns], float]] = {
    "best accuracy, %": lambda run: 100 * max(run["accuracy"]),
    "spent a round": lambda run: fmean(run["spent"]),
    "stored": lambda run: fmean(run["training_size"]),
    "peak": lambda run: max(run["training_size"]),
    "distinct a round": lambda run: run["distinct_samples"][-1] / len(run["spent"]),
    "effective a round": lambda run: run["effective_samples"][-1] / len(run["spent"]),
    "debt at the end": lambda run: run["cost_debt"][-1],
}


class Client:
    """A client with its stream of samples and its buffer, which may hold earlier samples."""

    def __init__(self, inputs: Pixels, labels: Ints) -> None:
        self.inputs, self.labels = inputs, labels
        self.read = 0
        self.stored: Ints = np.zeros(0, dtype=np.int64)
        """Q_m(t), as places in the stream."""
        self.ages: Ints = np.zeros(len(labels), dtype=np.int64)
        """A_{m,i}: rounds in the buffer, frozen once a sample has left."""

    def admit(self, count: int) -> None:
        """Store the next samples of the stream; everything stored is one round older."""
        self.stored = np.append(self.stored, np.arange(self.read, self.read + count))
        self.read += count
        self.ages[self.stored] += 1  # eq:age-evolution

    def train(self, model: Floats, learning: tidegate.LearningConstants) -> Floats:
        """Return Δ_m (eq:local-update) after E steps of gradient descent on the whole buffer."""
        inputs = np.divide(self.inputs[self.stored], 255, dtype=np.float32)
        wanted = np.eye(CLASSES, dtype=np.float32)[self.labels[self.stored]]
        local = model.copy()
        for _ in range(learning.local_steps if len(inputs) else 0):
            gradient = inputs.T @ (probabilities(local, inputs) - wanted) / len(inputs)
            local -= learning.learning_rate * gradient  # eq:local-gradient, eq:local-gd
        return local - model

    def drop(self, retention_horizon: int) -> None:
        """Remove what has been in K rounds of training."""
        self.stored = self.stored[self.ages[self.stored] < retention_horizon]


def probabilities(model: Floats, inputs: Floats) -> Floats:
    """Return the class probabilities of logistic regression."""
    scores = inputs @ model
    scores = np.exp(scores - scores.max(axis=1, keepdims=True))
    shares: Floats = scores / scores.sum(axis=1, keepdims=True)
    return shares


def algorithm_1(
    problem: tidegate.Problem, clients: Sequence[Client], prices: Iterable[float]
) -> Iterator[tuple[dict[str, float], Floats]]:
    """Yield what each round counts, and the model after it."""
    plan = tidegate.plan_constant_admission(problem)  # eq:optimal-K
    horizon, learning = plan.retention_horizon, problem.learning
    weight = penalty_weight(problem.num_rounds, 0.5)  # V = T^γ
    interval = ClosingInterval(plan.target_admission, contraction(problem.num_rounds, 0.5))
    model = np.zeros((clients[0].inputs.shape[1], CLASSES), dtype=np.float32)
    debt, overspend, split = 0.0, 0.0, Allocation.start(problem.capacity_shares)  # Z(1) = 0
    # n(0), N(0), and A⁰ as Λ(1-K), ..., Λ(0): what clients hold before round 1.
    stored = sum(len(client.stored) for client in clients)
    distinct = sum(client.read for client in clients)
    ages = np.concatenate([client.ages[client.stored] for client in clients])
    admissions = [int((ages == age).sum()) for age in range(horizon, 0, -1)]
    for round_number, price in enumerate(prices, start=1):  # line 1; line 3, observe: c(t)
        # Line 4, solve eq:dpp-policy: J_t (eq:dpp-upper-2) over eq:lambda-min-max.
        carried = stored - admissions[-horizon]
        objective = Objective(debt * price, weight, carried, distinct, learning)
        total = minimise(objective, interval.at(round_number)).admission
        counts, split = split.allocate(total)  # whole samples, in the shares B_m / ΣB
        # Line 5: the debt queue, eq:Z-update.
        spent = float(np.sum(price * counts))
        debt = next_cost_debt(debt, spent, problem.budget)
        overspend = overspend + spent - problem.budget
        # Line 6: n(t) = n(t-1) - Λ(t-K) + Λ(t) and N(t) = N(t-1) + Λ(t).
        admissions.append(int(counts.sum()))
        stored, distinct = carried + admissions[-1], distinct + admissions[-1]
        # Lines 7 to 9: clients admit and train.
        for client, count in zip(clients, counts, strict=True):
            client.admit(int(count))
        updates = [client.train(model, learning) for client in clients]
        occupancies = np.array([len(client.stored) for client in clients])
        for client in clients:
            client.drop(horizon)  # line 10, eq:kstep-drop
        # Line 12: eq:global-aggregation with eq:memory-proportional-weight, all α_m alike.
        weights = occupancies.astype(np.float32) / max(stored, 1)
        model = model + np.tensordot(weights, updates, axes=1)
        uses = np.concatenate([client.ages[: client.read] for client in clients])
        counted = {
            "price": price,
            "ordered": total,
            "admitted": admissions[-1],
            "spent": spent,
            "overspend": overspend,
            "cost_debt": debt,
            "training_size": int(occupancies.sum()),
            "distinct_samples": len(uses),
            "effective_samples": int(uses.sum()) ** 2 / max(int((uses**2).sum()), 1),  # eq:Neff-def
        }
        yield counted, model


def read_mnist(part: str) -> tuple[Pixels, Ints]:
    """Return images, with one more white pixel for the bias, and labels."""
    folder = DATA / "MNIST" / "raw"
    if not folder.is_dir():
        sys.exit(f"no MNIST: {folder} is missing; set TIDEGATE_DATA")
    images, labels = (
        np.frombuffer(gzip.decompress((folder / name).read_bytes()), np.uint8, offset=header)
        for name, header in (
            (f"{part}-images-idx3-ubyte.gz", 16),
            (f"{part}-labels-idx1-ubyte.gz", 8),
        )
    )
    white = np.full((len(labels), 1), 255, dtype=np.uint8)
    return np.hstack([images.reshape(len(labels), -1), white]), labels.astype(np.int64)


def two_digits_each(
    inputs: Pixels, labels: Ints, num_clients: int, draw: np.random.Generator
) -> list[Client]:
    """Return clients whose streams never repeat a sample: client i has digits i and i + 1."""
    parts: list[list[Ints]] = [[] for _ in range(num_clients)]
    for digit in range(CLASSES):
        places = draw.permutation(np.flatnonzero(labels == digit))
        for owner, part in zip((digit, digit - 1), np.array_split(places, 2), strict=True):
            parts[owner % num_clients].append(part)
    streams = [draw.permutation(np.concatenate(part)) for part in parts]
    return [Client(inputs[stream], labels[stream]) for stream in streams]


def accuracies(models: Sequence[Floats], inputs: Floats, labels: Ints) -> list[float]:
    """Return the accuracy of each model; one large product is faster than many small ones."""
    shares: list[float] = []
    for first in range(0, len(models), 50):
        part = models[first : first + 50]
        scores = (inputs @ np.hstack(part)).reshape(len(inputs), len(part), CLASSES)
        shares += (scores.argmax(axis=2) == labels[:, None]).mean(axis=0).tolist()
    return shares


def draw_figures(runs: Sequence[Columns], problem: tidegate.Problem, path: Path) -> None:
    """Draw the paper's Figures 1 (a), 2 (a) and 2 (b) with these runs."""
    from matplotlib.figure import Figure  # noqa: PLC0415 - an extra

    figure = Figure(figsize=(13, 3.8), layout="constrained")
    panels: tuple[tuple[str, str, Callable[[list[float]], Any], float | None], ...] = (
        ("Figure 1 (a): current best test accuracy", "accuracy", np.maximum.accumulate, None),
        ("Figure 2 (a): buffer occupancy", "training_size", np.array, problem.total_capacity),
        ("Figure 2 (b): sampling cost (debt dotted)", "spent", np.array, problem.budget),
    )
    for axes, (title, column, shown, limit) in zip(figure.subplots(1, 3), panels, strict=True):
        for run in runs:
            rounds = range(1, len(run[column]) + 1)
            axes.plot(rounds, shown(run[column]), color="#0072B2", alpha=0.5, linewidth=1)
            if column == "spent":
                axes.plot(rounds, run["cost_debt"], ":", color="#0072B2", alpha=0.5, linewidth=1)
        if limit is not None:
            axes.axhline(limit, color="#D55E00", linewidth=1)
        unit = {"accuracy": "accuracy", "training_size": "samples", "spent": "cost"}[column]
        axes.set(title=title, xlabel="communication round", ylabel=unit)
    figure.suptitle(
        "ACDPP as printed on MNIST, a line a seed; red: memory and budget "
        "(the paper's Figure 2 is on ImageNette)"
    )
    figure.savefig(path, dpi=100)


def main(rounds: int, seeds: int, picture: Path | None) -> None:
    """Play, and print the row."""
    setting = tidegate.EXPERIMENTS["mnist"]
    problem = setting.problem(rounds)
    train, (images, labels) = read_mnist("train"), read_mnist("t10k")
    test_inputs = np.divide(images, 255, dtype=np.float32)
    runs: list[Columns] = []
    for seed in range(seeds):
        draw = np.random.default_rng(seed)
        clients = two_digits_each(*train, problem.num_clients, draw)
        prices = map(float, itertools.islice(setting.price.rounds(draw), rounds))
        rows, models = zip(*algorithm_1(problem, clients, prices), strict=True)
        columns = {name: [row[name] for row in rows] for name in rows[0]}
        runs.append({**columns, "accuracy": accuracies(models, test_inputs, labels)})
    print(f"ACDPP, MNIST, {rounds} rounds, {seeds} seeds, 95 % intervals")
    for name, measure in MEASURES.items():
        figure = estimate([measure(run) for run in runs])
        print(f"{name:<18} {figure.mean:7.2f} ± {figure.half_width:.2f}")
    if picture:
        draw_figures(runs, problem, picture)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=100)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--picture", type=Path, help="a file for the figures")
    main(**vars(parser.parse_args()))
