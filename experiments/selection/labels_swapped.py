"""Data that change: from round 51 on every digit has the label of the next one.

    python -m experiments.selection.labels_swapped --data data/mnist --out labels-swapped.csv

How many rounds until the accuracy is 95 % of what it was before, for policies at the paper's MNIST
setting. Stored samples keep the labels that they were bought with. "tide, emptied" throws all
stored samples away in round 51 and fills its buffers anew, from the budget of the rounds to come.
Admissions are those of the product's own policies on counts; the models are trained beside it.
"""

import argparse
import itertools
from dataclasses import replace
from pathlib import Path

import numpy as np

from experiments.selection.price_and_worth import averaged, client_data, clients_of, of_all_seeds
from experiments.tool.comparison import write_csv
from tidegate._internal.randomness import PRICES, generator
from tidegate.policies import ControlOptions
from tidegate.policies.presets import EXPERIMENTS, make_policy
from tidegate.simulation.rounds import begin, play_round
from tidegate.simulation.summary import estimate

POLICIES = ("constant_admission", "tide", "tide, emptied", "costless_oracle")
CHANGE, ROUNDS = 50, 120
BEFORE = 5
"""Rounds before the change whose mean accuracy is what is to be reached again."""
RECOVERED = 0.95


def play(folder: str, policy: str, seed: int) -> tuple[float, float]:
    """Rounds until the model has recovered, and money a round."""
    parts, (images, digits) = client_data(folder, seed)
    clients = clients_of([(rows, labels.copy()) for rows, labels in parts], seed)
    experiment = EXPERIMENTS["mnist"]
    problem = experiment.problem(ROUNDS)
    made = make_policy(policy.partition(",")[0], problem, ControlOptions(hard_capacity=True))
    state, spent, accuracies = begin(made, problem), 0.0, list[float]()
    weights = np.zeros((785, 10), dtype=np.float32)
    path = experiment.price.rounds(generator(seed, PRICES))
    for now, price in enumerate(itertools.islice(path, ROUNDS), start=1):
        if now == CHANGE + 1:
            for client in clients:  # all that is not bought yet
                later = client.order[client.seen :]
                client.labels[later] = (client.labels[later] + 1) % 10
                if policy.endswith("emptied"):
                    client.stored, client.ages = [], []
            digits = (digits + 1) % 10
            if policy.endswith("emptied"):
                empty = made.retention.buffers(problem.capacities, ROUNDS)
                state = replace(state, planned=empty, stored=empty)
        before = state.admitted
        state, row = play_round(made, problem, state, price)
        spent += row.spent
        for client, count in zip(clients, (state.admitted - before).tolist(), strict=True):
            client.look(count)
            for candidate in list(client.waiting):
                client.buy(candidate)
        weights = averaged(clients, weights)
        accuracies.append(float(np.mean((images @ weights).argmax(1) == digits)))
    level = RECOVERED * float(np.mean(accuracies[CHANGE - BEFORE : CHANGE]))
    after = np.array(accuracies[CHANGE:]) >= level
    return float(np.argmax(after) + 1 if after.any() else len(after)), spent / ROUNDS


def _of_seed(folder: str, seed: int) -> dict[str, tuple[float, float]]:
    """All policies of one seed: its data are read once."""
    return {policy: play(folder, policy, seed) for policy in POLICIES}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", required=True, help="data/mnist, see docs/experiments.md")
    parser.add_argument("--out", type=Path, default=Path("labels-swapped.csv"))
    parser.add_argument("--seeds", type=int, default=10)
    given = parser.parse_args()
    runs = of_all_seeds(_of_seed, given.data, given.seeds)
    rows = []
    for policy in POLICIES:
        took = estimate([run[policy][0] for run in runs])
        money = float(np.mean([run[policy][1] for run in runs]))
        rows.append(
            {
                "policy": policy,
                "rounds_to_recover": f"{took.mean:.1f}",
                "half_width": f"{took.half_width:.1f}",
                "spent_per_round": f"{money:.1f}",
            }
        )
    write_csv(given.out, rows)


if __name__ == "__main__":
    main()
