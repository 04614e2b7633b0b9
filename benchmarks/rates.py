"""How cost violation and the regret terms of ACDPP grow with the number of rounds.

    python benchmarks/rates.py                       # T up to 10^5, 20 seeds, 10 minutes
    python benchmarks/rates.py --longest 10000 --seeds 4

One client with 100 slots, budget 55, prices uniform on [1, 10]. For each pair (gamma, phi) and
each T: averages over seeds, adjusted for the luck of the first price; then the slope of a straight
line through log value against log T, over the upper half of the T values, with a 95 % interval
from resampling the seeds. A slope is nan where the average over seeds is 0 or less at one of these
T: the runs stayed within their budget there, and 0 or less is no power of T.
"""

import argparse
import math
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass

import numpy as np

from exact_comparison import comparison_terms
from tidegate._internal.arrays import FloatArray
from tidegate.policies.acdpp import acdpp
from tidegate.prices import UniformPrice
from tidegate.problem import Problem
from tidegate.simulation.rounds import simulate
from tidegate.theory.bounds import regret
from tidegate.theory.guarantees import IntervalEnds
from tidegate.theory.parameters import contraction, plan_constant_admission

PAIRS = ((0.5, 0.5), (0.3, 0.3), (0.7, 0.3), (0.2, 0.8))
QUANTITIES = ("cost violation", "debt Z(T+1)", "regret", "omega 1", "omega 2", "omega 3")


def claimed(quantity: str, gamma: float, phi: float) -> float:
    """The paper's exponent of T; 0 stands for O(1) and for O(log T)."""
    violation = max((1 + gamma) / 2, (gamma + phi) / 2)
    return {
        "cost violation": violation,
        "debt Z(T+1)": violation,
        "regret": max(1 - gamma, phi),
        "omega 1": 0.0,
        "omega 2": phi,
        "omega 3": 0.0,
    }[quantity]


def repaired(quantity: str, gamma: float, phi: float) -> float:
    """The exponent that ``docs/theory.md`` proves; for regret and Ω3 up to √(log T)."""
    regret_terms = 1 - gamma, 2 * phi - gamma, phi, 0.5
    violation = max((1 + gamma) / 2, phi)
    proved = {"regret": max(regret_terms), "omega 1": phi, "omega 2": phi, "omega 3": 0.5}
    proved |= dict.fromkeys(("cost violation", "debt Z(T+1)"), violation)
    return proved[quantity]


def horizons(longest: int) -> list[int]:
    """Two a decade, from 100 on."""
    steps = round(2 * math.log10(longest)) - 4
    return [round(10 ** (2 + step / 2)) for step in range(steps + 1)]


def measure(num_rounds: int, gamma: float, phi: float, seed: int) -> list[float]:
    """The six quantities of one run, and the luck of its first price.

    Cost violation is given before its positive part is taken.

    Its expectation is that of Σ c(t) (Λ(t) - Λ̄): what constant admission overspends,
    Λ̄ Σ (c(t) - c̄), is luck with mean 0 and would drown the rest.
    """
    law = UniformPrice(1.0, 10.0)
    problem = Problem(buffer_capacities=[100], budget=55.0, mean_price=5.5, num_rounds=num_rounds)
    policy = acdpp(problem, penalty_exponent=gamma, contraction_exponent=phi)
    run = simulate(policy, problem, law, seed)
    plan = plan_constant_admission(problem)
    luck = float(np.sum(run.columns["price"] - problem.mean_price))
    ends = IntervalEnds.closing(plan.target_admission, contraction(num_rounds, phi), num_rounds)
    terms = comparison_terms(run.sizes, ends, plan.retention_horizon, 100, problem.learning)
    return [
        float(run.columns["overspend"][-1] - plan.target_admission * luck),
        float(run.columns["cost_debt"][-1]),
        float(regret(run.sizes, 100, problem.learning)[-1]),
        float(terms.reuse[-1]),
        float(terms.interval[-1]),
        float(terms.freshness[-1]),
        float(run.columns["price"][0] - problem.mean_price),
    ]


@dataclass(frozen=True)
class Growth:
    """How one quantity grows, for one pair (gamma, phi)."""

    values: FloatArray
    """At each T, averaged over seeds."""
    slope: float
    low: float
    high: float


def growth(longest: int, seeds: int, gamma: float, phi: float) -> dict[str, Growth]:
    """Values and log-log slopes of every quantity."""
    lengths = horizons(longest)
    with ProcessPoolExecutor() as pool:
        runs = [
            pool.submit(measure, length, gamma, phi, seed)
            for length in reversed(lengths)
            for seed in range(seeds)
        ]
        table = np.array([run.result() for run in runs])
    table = table.reshape(len(lengths), seeds, len(QUANTITIES) + 1)[::-1]
    luck = table[:, :, -1]
    draw = np.random.default_rng(0)
    picks = draw.integers(0, seeds, (500, seeds))
    result = {}
    for index, name in enumerate(QUANTITIES):
        column = table[:, :, index]
        resampled = [_slope(lengths, _means(column[:, pick], luck[:, pick])) for pick in picks]
        low, high = np.nanquantile(resampled, [0.025, 0.975])
        values = _means(column, luck)
        result[name] = Growth(values, _slope(lengths, values), float(low), float(high))
    return result


def _means(values: FloatArray, luck: FloatArray) -> FloatArray:
    """Mean over seeds at each T, less what the first price, known to average 0, explains.

    Round 1 buys T^phi times the target at one price: most of the noise between seeds.
    """
    centred = luck - luck.mean(axis=1, keepdims=True)
    spread = np.maximum((centred**2).sum(axis=1), 1e-12)
    effect = (centred * values).sum(axis=1) / spread
    adjusted: FloatArray = values.mean(axis=1) - effect * luck.mean(axis=1)
    return adjusted


def _slope(lengths: Sequence[int], values: FloatArray) -> float:
    """Slope over the upper half of the T values, where the leading power shows."""
    upper = slice(len(lengths) // 2, None)
    if np.any(values[upper] <= 0):
        return math.nan
    return float(np.polyfit(np.log(np.array(lengths)[upper]), np.log(values[upper]), 1)[0])


def print_growth(longest: int, seeds: int) -> None:
    print(f"T = {', '.join(f'{length:,}' for length in horizons(longest))}")
    print(f"{seeds} seeds; slopes over the upper half of the T values\n")
    print("| gamma | phi | quantity | claimed | repaired | slope | 95 % | at largest T |")
    print("|---|---|---|---|---|---|---|---|")
    for gamma, phi in PAIRS:
        for name, grown in growth(longest, seeds, gamma, phi).items():
            print(
                f"| {gamma} | {phi} | {name} | {claimed(name, gamma, phi):.2f} "
                f"| {repaired(name, gamma, phi):.2f} | {grown.slope:.2f} "
                f"| {grown.low:.2f} to {grown.high:.2f} | {grown.values[-1]:,.1f} |",
                flush=True,
            )
    print("\nnan: an average at one of these T is 0 or less, which is no power of T")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--longest", type=int, default=100_000, help="largest T")
    parser.add_argument("--seeds", type=int, default=20, help="runs for each T")
    options = parser.parse_args()
    print_growth(options.longest, options.seeds)


if __name__ == "__main__":
    main()
