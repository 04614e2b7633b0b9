"""What would close more of the gap between constant admission and the costless oracle?

python -m experiments.gap.gap --data data/mnist --out experiments/gap

Logistic regression on MNIST in a bare loop (the paper's control setting, 100 rounds, η = 0.5, ten
full-batch steps), with changes to training, to the rule, and to memory itself. The part of the gap
that is closed is counted from plain constant admission to the plain oracle, on equal seeds. A round
here is not the one of the Flower app: three of these changes have no place in it.
"""

import argparse
import dataclasses
import math
from collections.abc import Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np

from experiments.tool.comparison import write_csv
from experiments.tool.data import FederatedData
from tidegate._internal.randomness import PRICES, STREAM, generator
from tidegate.admission.rule import FleetOrder, Quote
from tidegate.admission.tide import Tide, TideState
from tidegate.policies import ControlOptions, JointPolicy
from tidegate.policies.presets import EXPERIMENTS, make_policy
from tidegate.problem import Problem
from tidegate.retention.k_step import KStepRetention
from tidegate.simulation.rounds import begin, play_round
from tidegate.simulation.summary import estimate, share_of

SETTING = EXPERIMENTS["mnist"]
STEPS, RATE, CLASSES = 10, 0.5, 10
Array = np.ndarray[Any, np.dtype[Any]]
Samples = tuple[Array, Array]


@dataclass(frozen=True)
class Variant:
    """A policy, and what is changed about training on its samples."""

    policy: str = "tide"
    averaging: float = 0.0
    """Of the models of rounds, judged in place of the last one."""
    momentum: float = 0.0
    """Of the server's steps."""
    youth: float = 0.0
    """A sample used a times weighs a to the minus this."""
    fill_blindly: bool = False
    """Fill all slots in round 1, whatever it costs."""
    keep_all: bool = False
    """Memory without limit: every sample that was ever admitted is trained on."""


VARIANTS: Mapping[str, Variant] = {
    "constant admission": Variant("constant_admission"),
    "costless oracle": Variant("costless_oracle"),
    "Tide": Variant(),
    "Tide, models averaged": Variant(averaging=0.9),
    "Tide, server momentum": Variant(momentum=0.5),
    "Tide, younger samples weigh more": Variant(youth=1.0),
    "Tide, filled in round 1": Variant(fill_blindly=True),
    "Tide, filled in round 1, models averaged": Variant(fill_blindly=True, averaging=0.9),
    "constant admission, models averaged": Variant("constant_admission", averaging=0.9),
    "costless oracle, models averaged": Variant("costless_oracle", averaging=0.9),
    "Tide's samples, all kept": Variant(keep_all=True),
    "constant admission's samples, all kept": Variant("constant_admission", keep_all=True),
}


@dataclass(frozen=True, eq=False)
class BlindFill(Tide):
    """Tide that fills every slot in round 1."""

    def decide(self, state: TideState, quote: Quote, limit: float) -> FleetOrder:
        """All, then as Tide."""
        if state.round_number == 1:
            return FleetOrder(math.inf, (quote.price, 0.0))
        return super().decide(state, quote, limit)


def policy_of(variant: Variant, problem: Problem) -> JointPolicy[Any]:
    """The policy of a variant."""
    policy = make_policy(variant.policy, problem, ControlOptions(hard_capacity=True))
    if variant.fill_blindly and isinstance(policy.admission, Tide):
        return dataclasses.replace(policy, admission=BlindFill(**vars(policy.admission)))
    return policy


@cache
def images(data: str) -> tuple[Samples, Samples]:
    """Training and test images, flat with a 1 for the bias, and labels."""
    whole = FederatedData(data)
    train = whole.partition("iid", 0, 1, 0)
    return _flat(*train.arrays()), _flat(*whole.test_arrays())


def _flat(pixels: Any, labels: Any) -> Samples:
    flat = pixels.reshape(len(pixels), -1).astype(np.float32) / 255
    return np.hstack([flat, np.ones((len(flat), 1), np.float32)]), labels


def streams(labels: Any, seed: int) -> list[Any]:
    """Two neighbouring digits a client, each image once."""
    digits = [np.flatnonzero(labels == digit) for digit in range(CLASSES)]
    found = []
    for client in range(10):
        first, second = digits[client], digits[(client + 1) % 10]
        pool = np.concatenate([first[: len(first) // 2], second[len(second) // 2 :]])
        found.append(generator(seed, STREAM, client).permutation(pool))
    return found


def buffers(
    policy: JointPolicy[Any], problem: Problem, pools: list[Any], seed: int, *, keep_all: bool
) -> Iterator[tuple[float, list[tuple[Any, Any]]]]:
    """What every round costs, and what each client then holds.

    That is numbers of images, and how often each was used.
    """
    state = begin(policy, problem)
    prices = SETTING.price.rounds(generator(seed, PRICES))
    held = [(np.zeros(0, int), np.zeros(0, int)) for _ in pools]
    taken = state.admitted
    for _ in range(problem.num_rounds):
        price = next(prices)
        state, row = play_round(policy, problem, state, price)
        for client, until in enumerate(state.admitted.tolist()):
            since = int(taken[client])
            fresh = until - since
            which, used = held[client]
            used = used + 1
            keep = np.ones(len(which), bool)
            if not keep_all:
                if isinstance(policy.retention, KStepRetention):
                    keep = used <= policy.retention.retention_horizon
                else:
                    stays = int(problem.capacities[client]) - fresh
                    keep = np.arange(len(which)) >= len(which) - max(stays, 0)
            new = pools[client][since:until]
            held[client] = (
                np.concatenate([which[keep], new]),
                np.concatenate([used[keep], np.ones(len(new), int)]),
            )
        taken = state.admitted
        yield row.spent, held


def local(model: Array, inputs: Array, labels: Any, weights: Array) -> Array:
    """Full-batch gradient steps of softmax regression."""
    for _ in range(STEPS):
        scores = inputs @ model
        chances = np.exp(scores - scores.max(1, keepdims=True))
        chances /= chances.sum(1, keepdims=True)
        chances[np.arange(len(labels)), labels] -= 1
        model = model - RATE * (inputs.T @ (chances * weights[:, None]))
    return model


@dataclass(frozen=True)
class Measured:
    """What came of one variant on one seed."""

    best: float
    mean: float
    spent: float
    peak: int


def measured(data: str, rounds: int, job: tuple[str, int]) -> Measured:
    """Accuracies in percent, money a round and the most samples that were held."""
    name, seed = job
    variant = VARIANTS[name]
    (inputs, labels), (test, wanted) = images(data)
    problem = SETTING.problem(rounds)
    model: Array = np.zeros((inputs.shape[1], CLASSES), np.float32)
    speed, average = np.zeros_like(model), model
    found, spent, peak = [], 0.0, 0
    pools = streams(labels, seed)
    policy = policy_of(variant, problem)
    for number, (cost, held) in enumerate(
        buffers(policy, problem, pools, seed, keep_all=variant.keep_all), start=1
    ):
        spent += cost
        peak = max(peak, sum(len(which) for which, _ in held))
        total, count = 0 * model, 0
        for which, used in held:
            if len(which):
                weights = used.astype(np.float32) ** -variant.youth
                part = local(model, inputs[which], labels[which], weights / weights.sum())
                total, count = total + len(which) * part, count + len(which)
        step = total / count - model if count else np.zeros_like(model)
        speed = variant.momentum * speed + (1 - variant.momentum) * step
        model = model + speed
        kept = min(variant.averaging, number / (number + 9))
        average = kept * average + (1 - kept) * model
        found.append(100 * float(((test @ average).argmax(1) == wanted).mean()))
    return Measured(max(found), float(np.mean(found)), spent / rounds, peak)


def shown(value: float) -> str:
    """Two places; nothing for what cannot be told."""
    return "" if math.isnan(value) else f"{value:.2f}"


def main(data: str, out: Path, rounds: int, seeds: int, workers: int) -> None:
    jobs = [(name, seed) for name in VARIANTS for seed in range(200, 200 + seeds)]
    with ProcessPoolExecutor(workers) as pool:
        runs = list(pool.map(partial(measured, data, rounds), jobs))
    found = {name: list[Measured]() for name in VARIANTS}
    for (name, _), run in zip(jobs, runs, strict=True):
        found[name].append(run)
    table = []
    for name in VARIANTS:
        row: dict[str, object] = {"variant": name}
        for measure in ("best", "mean"):
            mine, base, top = (
                np.array([getattr(run, measure) for run in found[one]])
                for one in (name, "constant admission", "costless oracle")
            )
            gain, whole = (mine - base).tolist(), (top - base).tolist()
            ends = share_of(gain, whole) or (math.nan, math.nan)
            row |= {
                f"{measure}_accuracy": shown(mine.mean()),
                f"{measure}_gain": shown(np.mean(gain)),
                f"{measure}_gain_half_width": shown(estimate(gain).half_width),
                f"{measure}_gap_closed": shown(np.mean(gain) / np.mean(whole)),
                f"{measure}_gap_closed_low": shown(ends[0]),
                f"{measure}_gap_closed_high": shown(ends[1]),
            }
        row["spent_per_round"] = shown(float(np.mean([run.spent for run in found[name]])))
        row["peak_stored"] = shown(float(np.mean([run.peak for run in found[name]])))
        table.append(row)
    out.mkdir(parents=True, exist_ok=True)
    write_csv(out / "expected.csv", table)
    for row in table:
        print(*row.values(), sep=" | ")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", default="data/mnist", help="as in docs/experiments.md")
    parser.add_argument("--out", type=Path, default=Path("gap"))
    parser.add_argument("--rounds", type=int, default=100)
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--workers", type=int, default=2)
    given = parser.parse_args()
    main(given.data, given.out, given.rounds, given.seeds, given.workers)
