"""What Tide reaches of what is possible: other price laws, and prices that depend on each other.

python benchmarks/tide.py laws
python benchmarks/tide.py dependence
python benchmarks/tide.py picture --out tide.png
"""

import argparse
import csv
import io
import itertools
import lzma
import math
import os
import statistics
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from tidegate._internal.arrays import FloatArray
from tidegate._internal.randomness import PRICES, generator
from tidegate.admission.price_memory import PriceMemory
from tidegate.admission.rule import Quote
from tidegate.admission.tide import Tide, TideState
from tidegate.policies import JointPolicy
from tidegate.policies.acdpp import acdpp
from tidegate.policies.constant_admission import constant_admission
from tidegate.policies.options import ControlOptions
from tidegate.policies.tide import tide
from tidegate.prices import (
    ConstantPrice,
    MarkovPrice,
    Price,
    PriceLaw,
    RecordedPrices,
    UniformPrice,
)
from tidegate.problem import Problem
from tidegate.simulation.rounds import simulate
from tidegate.simulation.summary import estimate
from tidegate.theory.distribution import (
    PriceDistribution,
    PriceSample,
    UniformDistribution,
    price_distribution,
)
from tidegate.theory.hindsight import hindsight_bound
from tidegate.theory.optimum import optimum

BUDGETS = (27.5, 55.0, 110.0)
"""5, 10 and 20 times the mean price, which is 5.5 (6.55 for the bimodal law)."""
CAPACITIES = (20, 100, 500)
CLIENTS = 10
LIKELY = (np.arange(20_000) + 0.5) / 20_000
"""Shares at which a law's quantiles stand for it."""


@dataclass(frozen=True)
class Quantiles:
    """Independent prices: the quantile at a share that is drawn uniformly."""

    quantile: Callable[[float], float]

    def mean(self, num_rounds: int) -> float:
        """Of the quantiles."""
        return self.distribution().mean

    def rounds(self, draw: np.random.Generator, size: int | None = None) -> Iterator[Price]:
        """A fresh draw each round, the same for all clients."""
        while True:
            yield self.quantile(draw.random())

    def distribution(self) -> PriceSample:
        """The law, in 20,000 steps."""
        return PriceSample([self.quantile(share) for share in LIKELY.tolist()])


def bimodal(share: float) -> float:
    """30 % of prices between 1 and 3, the others between 7 and 10."""
    return 1 + 2 * share / 0.3 if share < 0.3 else 7 + 3 * (share - 0.3) / 0.7


NORMAL = statistics.NormalDist()
LAWS: dict[str, PriceLaw] = {
    "two-point": MarkovPrice(2.0, 9.0, 0.5, 0.5),  # independent: each stays with chance 1/2
    "exponential": Quantiles(lambda share: 1 - 4.5 * math.log(1 - share)),
    "log-normal": Quantiles(lambda share: 4 * math.exp(0.8 * NORMAL.inv_cdf(share))),
    "bimodal": Quantiles(bimodal),
    "constant": ConstantPrice(5.5),
}


def distribution(law: PriceLaw) -> PriceDistribution:
    return law.distribution() if isinstance(law, Quantiles) else price_distribution(law, 1)


def the_problem(law: PriceLaw, budget: float, capacity: int, rounds: int) -> Problem:
    return Problem(
        buffer_capacities=[capacity // CLIENTS] * CLIENTS,
        budget=budget,
        mean_price=law.mean(rounds),
        num_rounds=rounds,
    )


@dataclass(frozen=True)
class Reached:
    """What a policy gained a round, for what, over seeds."""

    effective: list[float]
    spent: list[float]
    peak: int


def reached(policy: JointPolicy[Any], problem: Problem, law: PriceLaw, seeds: int) -> Reached:
    runs = [simulate(policy, problem, law, seed) for seed in range(seeds)]
    rounds = problem.num_rounds
    return Reached(
        [float(run.columns["effective_samples"][-1]) / rounds for run in runs],
        [float(run.columns["spent"].mean()) for run in runs],
        int(max(run.columns["training_size"].max() for run in runs)),
    )


def electricity() -> FloatArray | None:
    """Half-hourly prices of New South Wales, where the data are at hand."""
    beside = Path(__file__).resolve().parents[2] / "shared" / "data"
    path = Path(os.environ.get("TIDEGATE_DATA", beside)) / "streams" / "elec.csv.xz"
    if not path.exists():
        return None
    with lzma.open(path) as packed:
        rows = csv.DictReader(io.TextIOWrapper(packed))
        return np.array([float(row["nswprice"]) for row in rows])


def laws(seeds: int, rounds: int) -> None:
    print(f"{seeds} seeds, {rounds} rounds; Tide's effective samples as a part of the limit,")
    print("and in brackets its spending as a part of the budget")
    cases = list(itertools.product((5, 10, 20), CAPACITIES))
    names = [f"{times} x, {capacity}" for times, capacity in cases]
    print(f"| prices \\ budget, capacity | {' | '.join(names)} |")
    print("|---|" + "---|" * len(cases))
    spent, peak = [], []
    for name, law in LAWS.items():
        prices = distribution(law)
        cells = []
        for budget, capacity in itertools.product(BUDGETS, CAPACITIES):
            problem = the_problem(law, budget, capacity, rounds)
            found = reached(tide(problem), problem, law, seeds)
            limit = optimum(prices, budget, capacity).effective_per_round
            gained = estimate(found.effective)
            share = statistics.fmean(found.spent) / budget
            cells.append(
                f"{gained.mean / limit:.1%} ± {gained.half_width / limit:.1%} ({share:.1%})"
            )
            spent.append(max(found.spent) / budget)
            peak.append(found.peak / capacity)
        print(f"| {name} | {' | '.join(cells)} |", flush=True)
    path = electricity()
    if path is None:
        print("electricity is left out: TIDEGATE_DATA does not say where it is")
    else:
        path = path[:rounds]
        law, cells = RecordedPrices(path), []
        for times, capacity in cases:
            problem = the_problem(law, times * float(path.mean()), capacity, rounds)
            found = reached(tide(problem), problem, law, 1)
            bound = hindsight_bound(path, problem.budget, capacity).effective_per_round
            share = found.spent[0] / problem.budget
            cells.append(f"{found.effective[0] / bound:.1%} ({share:.1%})")
            spent.append(found.spent[0] / problem.budget)
            peak.append(found.peak / capacity)
        print(f"| electricity, of hindsight | {' | '.join(cells)} |", flush=True)
    print(f"spent: at most {max(spent):.2%} of the budget, in any run; ", end="")
    print(f"peak: {min(peak):.0%} to {max(peak):.0%} of the capacity")


@dataclass(frozen=True, eq=False)
class Fading(Tide):
    """Tide that forgets: each price counts for less than the next one."""

    fading: float = 0.98

    def learn(self, state: TideState, quote: Quote) -> TideState:
        """Older prices count less."""
        older = PriceMemory(state.prices.values, self.fading * state.prices.weights)
        return super().learn(replace(state, prices=older), quote)


def fading(problem: Problem) -> JointPolicy[TideState]:
    policy = tide(problem, price_groups=1)
    rule = policy.admission
    if not isinstance(rule, Tide):
        raise TypeError(f"Tide's own rule was expected, got {rule!r}")
    return replace(policy, admission=Fading(**vars(rule)))


def seasonal(seed: int, rounds: int) -> FloatArray:
    """A day of 24 rounds, prices from a tenth of the mean to nearly twice, and noise."""
    draw = generator(seed, PRICES)
    day: FloatArray = 1 + 0.9 * np.sin(2 * np.pi * np.arange(rounds) / 24)
    return 5.5 * day * np.exp(0.1 * draw.normal(size=rounds))


def markov(stay: float) -> Callable[[int, int], FloatArray]:
    """Prices 2 and 9, each of which stays for a while."""

    def path(seed: int, rounds: int) -> FloatArray:
        law = MarkovPrice(2.0, 9.0, stay, stay).rounds(generator(seed, PRICES))
        return np.array([float(price) for price in itertools.islice(law, rounds)])

    return path


def dependence(seeds: int, rounds: int) -> None:
    makers: dict[str, Callable[[Problem], JointPolicy[Any]]] = {
        "constant": lambda problem: constant_admission(problem, HARD),
        "acdpp": lambda problem: acdpp(problem, HARD),
        "tide, independent": lambda problem: tide(problem, price_groups=1),
        "tide, fading": fading,
        "tide": tide,
    }
    paths: dict[str, list[FloatArray]] = {
        f"markov, stay {stay}": [markov(stay)(seed, rounds) for seed in range(seeds)]
        for stay in (0.8, 0.9, 0.95, 0.98)
    }
    paths["seasonal"] = [seasonal(seed, rounds) for seed in range(seeds)]
    trace = electricity()
    if trace is not None:
        starts = np.linspace(0, len(trace) - rounds, seeds).astype(int)
        paths["electricity"] = [trace[start : start + rounds] for start in starts]
    print(f"{seeds} paths of {rounds} rounds, 100 slots, budget 10 x mean price")
    print(f"| prices | in hindsight | {' | '.join(makers)} | tide of hindsight |")
    print("|---|---|" + "---|" * len(makers) + "---|")
    for name, group in paths.items():
        bounds, gains = [], {maker: list[float]() for maker in makers}
        for path in group:
            law = RecordedPrices(path)
            problem = the_problem(law, 10 * float(path.mean()), 100, rounds)
            bounds.append(hindsight_bound(path, problem.budget, 100).effective_per_round)
            for maker, make in makers.items():
                gains[maker] += reached(make(problem), problem, law, 1).effective
        cells = [estimate(gain) for gain in gains.values()]
        shown = " | ".join(f"{one.mean:.2f} ± {one.half_width:.2f}" for one in cells)
        share = statistics.fmean(gains["tide"]) / statistics.fmean(bounds)
        print(f"| {name} | {statistics.fmean(bounds):.2f} | {shown} | {share:.0%} |", flush=True)


def picture(out: Path, first: int = 40, rounds: int = 46) -> None:
    """One slot for a while, under the best rule for the paper's setting."""
    from matplotlib.figure import Figure  # noqa: PLC0415 - an extra

    thresholds = optimum(UniformDistribution(1, 10), 55.0, 100).thresholds
    path = UniformPrice(1, 10).rounds(generator(0, PRICES))
    prices = [float(price) for price in itertools.islice(path, first, first + rounds)]
    ages, age = [], 4
    for price in prices:
        ages.append(age)
        age = 1 if price <= thresholds[age - 1] else age + 1
    limits = [thresholds[one - 1] for one in ages]
    figure = Figure(figsize=(9, 3.6), layout="constrained")
    axes = figure.subplots()
    now = np.arange(1, rounds + 1)
    taken = np.array(prices) <= np.array(limits)
    edges = np.arange(0.5, rounds + 1)
    axes.stairs(limits, edges, fill=True, color="#56B4E9", alpha=0.35)
    axes.stairs(limits, edges, baseline=None, color="#0072B2", linewidth=1.5)
    axes.plot(now[~taken], np.array(prices)[~taken], "o", color="0.6", markersize=5)
    axes.plot(now[taken], np.array(prices)[taken], "o", color="#D55E00", markersize=8)
    axes.set_xlim(0.5, rounds + 0.5)
    axes.set_ylim(0, 10.4)
    axes.set_xlabel("round")
    axes.set_ylabel("price of a sample")
    axes.set_title(
        "One slot: what it would pay rises while its sample ages, until a price dips below",
        loc="left",
        fontsize="medium",
    )
    for mark, colour, size, name in (
        ("o", "#D55E00", 8, "price is low enough: a fresh sample takes the old one's place"),
        ("o", "0.6", 5, "price is too high: the sample is used once more"),
    ):
        axes.plot([], [], mark, color=colour, markersize=size, label=name)
    axes.plot([], [], color="#0072B2", label="threshold for the age of the sample")
    figure.legend(loc="outside lower center", ncols=1, frameon=False, fontsize="small")
    figure.savefig(out, dpi=130)


HARD = ControlOptions(hard_capacity=True)
TABLES = {"laws": laws, "dependence": dependence}


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=[*TABLES, "picture"])
    parser.add_argument("--out", type=Path, default=Path("tide.png"))
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--rounds", type=int, default=1000)
    given = parser.parse_args()
    if given.what == "picture":
        picture(given.out)
    else:
        TABLES[given.what](given.seeds, given.rounds)
