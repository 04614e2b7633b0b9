"""What ranking costs a client beside training: one row a model.

    python -m benchmarks.ranking --data data/mnist
    python -m benchmarks.ranking --data data/mnist --candidates 50 --backlog 0

A client with ten samples in its buffer takes E full-batch steps; before an order that buys
something it runs the model once over all candidates, the new ones and those that wait, and
ranks them by margin. Both are timed in turns in one process with one thread, from samples as the
store gives them, so that the machine's moods hit both. An order that buys nothing ranks nothing.
"""

import argparse
import statistics
import time
from collections.abc import Callable

import torch
from rich.console import Console
from rich.table import Table

from experiments.tool.job import Job
from experiments.tool.models import new_model
from experiments.tool.training import batch, probabilities, train
from tidegate.selection import margin

SLOTS, REPEATS = 10, 60


def seconds(work: Callable[[], object]) -> float:
    """Of one call."""
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def compare(job: Job, candidates: int) -> tuple[float, float]:
    """Median seconds of ranking and of training, timed in turns."""
    mine = job.federated_data.partition(job.partition, 0, len(job.capacities), job.seed)
    stored, waiting = (
        [mine[index] for index in range(first, first + count)]
        for first, count in ((0, SLOTS), (SLOTS, candidates))
    )
    model = new_model(job.model, tuple(batch(stored)[0].shape[1:]), 10, seed=job.seed)

    def ranking() -> None:
        margin(probabilities(model, batch(waiting)[0]))

    def training() -> None:
        inputs, labels = batch(stored)
        steps, rate = job.local_steps, job.learning_rate
        train(model, inputs, labels, local_steps=steps, learning_rate=rate)

    pairs = [(seconds(ranking), seconds(training)) for _ in range(REPEATS)]
    ranked, trained = zip(*pairs, strict=True)
    return statistics.median(ranked), statistics.median(trained)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", required=True, help="data/mnist, see docs/experiments.md")
    parser.add_argument("--candidates", type=int, default=20, help="new ones an order")
    parser.add_argument("--backlog", type=int, default=100, help="those that wait")
    given = parser.parse_args()
    torch.set_num_threads(1)
    count = given.candidates + given.backlog
    title = f"{count} candidates, {SLOTS} samples in training"
    table = Table("model", "ranking, ms", "training, ms", "ratio", title=title)
    for model in ("logistic", "lenet"):
        ranked, trained = compare(Job(data=given.data, model=model), count)
        table.add_row(
            model, f"{1e3 * ranked:.2f}", f"{1e3 * trained:.2f}", f"{ranked / trained:.2f}"
        )
    Console().print(table)


if __name__ == "__main__":
    main()
