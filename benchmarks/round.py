"""A round of MNIST through Flower and Tidegate, and the same gradient steps in a bare loop.

python -m benchmarks.round --data data/mnist

Ten clients with ten samples each take E full-batch steps of LeNet, and their models are averaged.
Both are timed in turns in one process with one thread, so that the machine's moods hit both.
"""

import argparse
import logging
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from flwr.app import ArrayRecord
from flwr.serverapp.strategy import FedAvg

from experiments.tool.client_app import app as client_app
from experiments.tool.job import Job
from experiments.tool.models import new_model
from experiments.tool.training import batch, train
from tidegate.flower import AdmissionControl
from tidegate.flower.local_grid import LocalGrid

CLIENTS, CAPACITY = 10, 10


def bare_rounds(job: Job) -> Callable[[], None]:
    """The same steps and the same average, with nothing around them."""
    data = job.federated_data
    samples = []
    for client in range(CLIENTS):
        mine = data.partition(job.partition, client, CLIENTS, job.seed)
        samples.append([mine[index] for index in range(CAPACITY)])
    model = new_model(job.model, (1, 28, 28), 10, seed=job.seed)
    now = {name: value.clone() for name, value in model.state_dict().items()}

    def one() -> None:
        nonlocal now
        found = []
        for mine in samples:
            model.load_state_dict(now)
            inputs, labels = batch(mine)
            train(
                model,
                inputs,
                labels,
                local_steps=job.local_steps,
                learning_rate=job.learning_rate,
            )
            found.append({name: value.clone() for name, value in model.state_dict().items()})
        now = {name: torch.stack([one[name] for one in found]).mean(0) for name in now}

    return one


def main(data: str, rounds: int) -> None:
    logging.getLogger("flwr").setLevel(logging.ERROR)
    torch.set_num_threads(1)
    job = Job(data=data, model="lenet", rounds=rounds, policy="tide")
    model = new_model(job.model, (1, 28, 28), 10, seed=job.seed)
    nodes = [{"partition-id": one, "num-partitions": CLIENTS} for one in range(CLIENTS)]
    strategy = AdmissionControl(
        FedAvg(fraction_evaluate=0.0),
        "tide",
        budget=job.budget,
        prices=job.prices,
        spend_ahead=None,
    )
    bare, ours, plain = bare_rounds(job), list[float](), list[float]()
    started = 0.0

    def between(server_round: int, arrays: ArrayRecord) -> None:
        """Called after every round: time it, and then the bare loop."""
        nonlocal started
        if server_round > rounds // 5:  # buffers are full by then
            ours.append(time.perf_counter() - started)
            begun = time.perf_counter()
            bare()
            plain.append(time.perf_counter() - begun)
        started = time.perf_counter()

    strategy.start(
        LocalGrid(client_app, nodes, job.to_config()),
        ArrayRecord(model.state_dict()),
        num_rounds=rounds,
        evaluate_fn=between,
    )
    ratios = np.array(ours) / np.array(plain)
    low, high = np.percentile(ratios, [10, 90])
    print(f"{len(ours)} rounds of {CLIENTS} clients, {job.local_steps} steps each, one thread")
    print(f"bare loop   {1e3 * statistics.median(plain):.1f} ms a round")
    print(f"with Flower and Tidegate {1e3 * statistics.median(ours):.1f} ms a round")
    print(f"ratio, median {statistics.median(ratios):.3f}, 80 % of rounds {low:.3f} to {high:.3f}")
    stored = strategy.rounds[-1].training_size
    print(f"samples stored: {stored} of {CLIENTS * CAPACITY}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", default="data/mnist", help="as in docs/experiments.md")
    parser.add_argument("--rounds", type=int, default=100)
    given = parser.parse_args()
    if not Path(given.data).is_dir():
        raise SystemExit(f"{given.data} is no folder; docs/experiments.md makes it")
    main(given.data, given.rounds)
