"""Clients with prices of their own: what the least that each is bought costs, and what it gains.

    python -m experiments.selection.own_prices --data data/mnist --out own-prices.csv

Ten clients with two digits each; their prices lie evenly, by ratio, between the cheapest and the
dearest client, which pays 3, 10 or 30 times as much. "fixed": each pays the same in all rounds.
"moving": all prices are multiplied by a number of the round, uniform on [0.2, 1.8]. Admissions are
those of the product's own policy on counts; the models that they lead to are trained beside it.
"""

import argparse
import itertools
from pathlib import Path

import numpy as np

from experiments.selection.price_and_worth import (
    BUDGET,
    CAPACITIES,
    averaged,
    client_data,
    clients_of,
    of_all_seeds,
)
from experiments.tool.comparison import write_csv
from tidegate._internal.arrays import FloatArray
from tidegate._internal.randomness import PRICES, generator
from tidegate.policies import ControlOptions
from tidegate.policies.tide import tide
from tidegate.prices import RecordedPrices
from tidegate.problem import Problem
from tidegate.simulation.rounds import begin, play_round
from tidegate.simulation.summary import estimate

ROUNDS = 100
SPREADS = (1.0, 3.0, 10.0, 30.0)
KINDS = ("fixed", "moving")
SHARES = (0.0, 0.1, 0.25, 0.5)
"""Of a client's part of the budget, what is spent on it in any case."""
EARLY = 20

Result = tuple[float, float, float, float]


def own_prices(spread: float, kind: str, seed: int) -> FloatArray:
    """A row a round, a column a client; the mean price of a client is 5.5."""
    draw = generator(seed, PRICES)
    level = np.geomspace(1.0, spread, len(CAPACITIES))
    level = draw.permutation(5.5 * level / level.mean())
    moves = draw.uniform(0.2, 1.8, (ROUNDS, 1)) if kind == "moving" else np.ones((ROUNDS, 1))
    prices: FloatArray = level * moves
    return prices


def play(folder: str, spread: float, kind: str, share: float, seed: int) -> Result:
    """Best accuracy in percent, effective samples and money a round, and who is empty early."""
    parts, test = client_data(folder, seed)
    clients = clients_of(parts, seed)
    path = own_prices(spread, kind, seed)
    law = RecordedPrices(path)
    problem = Problem(
        buffer_capacities=CAPACITIES,
        budget=BUDGET,
        mean_price=law.mean(ROUNDS),
        num_rounds=ROUNDS,
    )
    policy = tide(problem, ControlOptions(least_share=share, spend_ahead=0.0))
    state, best, spent, empty = begin(policy, problem), 0.0, 0.0, 0
    weights = np.zeros((785, 10), dtype=np.float32)
    for now, price in enumerate(path, start=1):
        before = state.admitted
        state, row = play_round(policy, problem, state, price)
        spent += row.spent
        for client, count in zip(clients, (state.admitted - before).tolist(), strict=True):
            client.look(count)
            for candidate in list(client.waiting):
                client.buy(candidate)
        empty = sum(not client.stored for client in clients) if now == EARLY else empty
        weights = averaged(clients, weights)
        best = max(best, float(np.mean((test[0] @ weights).argmax(1) == test[1])))
    return 100 * best, row.effective_samples / ROUNDS, spent / ROUNDS, float(empty)


def _of_seed(folder: str, seed: int) -> dict[tuple[float, str, float], Result]:
    """All settings of one seed: its data are read once."""
    return {case: play(folder, *case, seed) for case in itertools.product(SPREADS, KINDS, SHARES)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", required=True, help="data/mnist, see docs/experiments.md")
    parser.add_argument("--out", type=Path, default=Path("own-prices.csv"))
    parser.add_argument("--seeds", type=int, default=10)
    given = parser.parse_args()
    runs = of_all_seeds(_of_seed, given.data, given.seeds)
    rows = []
    for spread, kind, share in itertools.product(SPREADS, KINDS, SHARES):
        found = np.array([run[spread, kind, share] for run in runs])
        plain = np.array([run[spread, kind, 0.0] for run in runs])
        accuracy, gain = estimate(found[:, 0].tolist()), estimate((found - plain)[:, 0].tolist())
        rows.append(
            {
                "spread": f"{spread:g}",
                "prices": kind,
                "least_share": f"{share:g}",
                "best_accuracy": f"{accuracy.mean:.2f}",
                "best_half_width": f"{accuracy.half_width:.2f}",
                "gain_over_none": f"{gain.mean:.2f}",
                "gain_half_width": f"{gain.half_width:.2f}",
                "effective_per_round": f"{found[:, 1].mean():.2f}",
                "spent_per_round": f"{found[:, 2].mean():.1f}",
                f"empty_after_{EARLY}": f"{found[:, 3].mean():.1f}",
            }
        )
    write_csv(given.out, rows)


if __name__ == "__main__":
    main()
