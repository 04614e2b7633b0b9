"""Tide where prices are known ahead, are forecast, or change for good.

python benchmarks/tide_prices.py known
python benchmarks/tide_prices.py errors
python benchmarks/tide_prices.py change
"""

import argparse
import itertools
import math
import statistics
import time
from dataclasses import replace

import numpy as np

from tide import CAPACITIES, electricity, reached, the_problem
from tidegate._internal.arrays import FloatArray
from tidegate._internal.randomness import PRICES, generator
from tidegate.admission.price_memory import EVERY, rounds_since_change
from tidegate.admission.rule import Quote
from tidegate.admission.tide import RECENT, Tide, TideState
from tidegate.policies import JointPolicy
from tidegate.policies.tide import tide
from tidegate.prices import RecordedPrices
from tidegate.problem import Problem
from tidegate.simulation.rounds import begin, play_round, simulate
from tidegate.simulation.summary import estimate
from tidegate.theory.distribution import UniformDistribution
from tidegate.theory.hindsight import hindsight_bound
from tidegate.theory.slot_rule import best_rule

ERRORS = (0.0, 0.05, 0.2, 0.5, 1.0)
"""Of forecasts: standard deviations of the logarithm."""


def known(seeds: int, rounds: int) -> None:
    """Electricity, days and weeks: what prices that are known ahead are worth."""
    print(f"{rounds} rounds; Tide's effective samples as a part of the bound in hindsight, and in")
    print("brackets its spending as a part of the budget; then processor time of a decision: 99 %")
    print("of them take at most this, and the slowest")
    cases = list(itertools.product((5, 10, 20), CAPACITIES))
    names = [f"{times} x, {capacity}" for times, capacity in cases]
    print(f"| prices, known ahead | {' | '.join(names)} | a decision |")
    print("|---|" + "---|" * (len(cases) + 1))
    trace = electricity()
    paths = {"day": season(0, rounds, 1), "week": season(0, rounds, 7)}
    if trace is not None:
        paths = {"electricity": trace[:rounds]} | paths
    for name, path in paths.items():
        law, bounds = RecordedPrices(path), {}
        for ahead in (0, 16, 48):
            cells, times_taken = [], list[float]()
            for times, capacity in cases:
                given = the_problem(law, times * float(path.mean()), capacity, rounds)
                problem = replace(given, known_ahead=ahead)
                if (times, capacity) not in bounds:
                    bound = hindsight_bound(path, problem.budget, capacity)
                    bounds[times, capacity] = bound.effective_per_round
                policy, took = timed(tide(problem))
                found = reached(policy, problem, law, 1)
                times_taken += took
                part = found.effective[0] / bounds[times, capacity]
                cells.append(f"{part:.1%} ({found.spent[0] / problem.budget:.1%})")
            usual, most = 1000 * np.quantile(times_taken, [0.99, 1.0])
            told = f"{usual:.0f}, {most:.0f} ms"
            print(f"| {name}, {ahead} | {' | '.join(cells)} | {told} |", flush=True)


def errors(seeds: int, rounds: int) -> None:
    """Forecasts of 48 prices that err, each by a factor of its own, in every round anew."""
    print(f"{rounds} rounds, 100 slots, budget 10 x mean price; Tide's effective samples as a part")
    print("of those that it gains without forecasts")
    print("| prices | 0 % | 5 % | 20 % | 50 % | 100 % |")
    print("|---|" + "---|" * len(ERRORS))
    trace = electricity()
    paths = {"day": season(0, rounds, 1), "week": season(0, rounds, 7)}
    paths["independent"] = np.random.default_rng(0).uniform(1, 10, rounds)
    if trace is not None:
        paths = {"electricity": trace[:rounds]} | paths
    for name, path in paths.items():
        law = RecordedPrices(path)
        problem = the_problem(law, 10 * float(path.mean()), 100, rounds)
        blind = reached(tide(problem), problem, law, 1).effective[0]
        cells = [f"{forecast(problem, path, 48, error, seeds) / blind:.1%}" for error in ERRORS]
        print(f"| {name} | {' | '.join(cells)} |", flush=True)


def forecast(problem: Problem, path: FloatArray, ahead: int, error: float, seeds: int) -> float:
    """Effective samples a round where forecasts err by so much, on average over seeds."""
    gained = []
    for seed in range(seeds):
        draw, policy = np.random.default_rng(seed), tide(problem)
        state = begin(policy, problem)
        for now, price in enumerate(path.tolist()):
            coming = path[now + 1 : now + 1 + ahead]
            told = coming * np.exp(draw.normal(-(error**2) / 2, error, len(coming)))
            state, row = play_round(policy, problem, state, price, ahead=tuple(told.tolist()))
        gained.append(row.effective_samples / len(path))
    return statistics.fmean(gained)


def season(seed: int, rounds: int, days: int) -> FloatArray:
    """Days of 48 half-hours; of seven, the last two cost half."""
    draw = generator(seed, PRICES)
    now = np.arange(rounds)
    path: FloatArray = 5.5 * (1 + 0.6 * np.sin(2 * np.pi * now / 48))
    if days == 7:
        path = path * np.where(now // 48 % 7 >= 5, 0.5, 1.0)
    return path * np.exp(0.2 * draw.normal(size=rounds))


def timed(policy: JointPolicy[TideState]) -> tuple[JointPolicy[TideState], list[float]]:
    """A policy that notes how long each decision takes, and these notes, in seconds."""
    took: list[float] = []

    class Timed(Tide):
        def learn(self, state: TideState, quote: Quote) -> TideState:
            began = time.thread_time()
            after = super().learn(state, quote)
            took.append(time.thread_time() - began)
            return after

    rule = policy.admission
    if not isinstance(rule, Tide):
        raise TypeError(f"Tide's own rule was expected, got {rule!r}")
    return replace(policy, admission=Timed(**vars(rule))), took


def change(seeds: int, rounds: int) -> None:
    """The level of prices is another one from the middle of a run on."""
    print(f"{seeds} seeds, {rounds} rounds, prices uniform on [1, 10] before the middle; effective")
    print("samples as a part of what rules gain that know both laws, and the difference of the two")
    print("| budget, slots | after the middle | forgets nothing | tide | difference | noticed |")
    print("|---|---|---|---|---|---|")
    for budget, slots in ((55.0, 100), (55.0, 500), (27.5, 20)):
        for name, factor in (("x 2", 2.0), ("x 0.5", 0.5), ("x 5", 5.0), ("x 1", 1.0)):
            best, gains, noticed = slots * knowing_both(factor, budget / slots), [], 0
            for seed in range(seeds):
                path = np.random.default_rng(seed).uniform(1, 10, rounds)
                path[rounds // 2 :] *= factor
                law = RecordedPrices(path)
                problem = the_problem(law, budget, slots, rounds)
                policies = stubborn(problem), tide(problem)
                runs = [simulate(one, problem, law, seed) for one in policies]
                gains.append([float(run.columns["effective_samples"][-1]) for run in runs])
                noticed += runs[1].final.server.changed > 0
            parts = np.array(gains).T / rounds / best
            told = [estimate(part.tolist()) for part in (*parts, parts[1] - parts[0])]
            cells = " | ".join(f"{one.mean:.1%} ± {one.half_width:.1%}" for one in told)
            print(f"| {budget:g}, {slots} | {name} | {cells} | {noticed} of {seeds} |", flush=True)
    alarms, tried = 0, 0
    for seed in range(2 * seeds):
        path, now = np.random.default_rng(1000 + seed).uniform(1, 10, 10 * rounds), 0
        tried += len(path)
        for now in range(EVERY, len(path), EVERY):
            alarms += rounds_since_change(path[max(0, now - RECENT) : now]) is not None
    print(f"false alarms with independent prices: {alarms} in {tried:,} rounds")


class Remembering(TideState):
    """To which all prices seen count the same, whatever comes after."""

    def of_the_present_level(self) -> TideState:
        """The same, always."""
        return self


class Stubborn(Tide):
    """Tide that forgets nothing."""

    def start(self) -> TideState:
        """Nothing seen."""
        return Remembering(**vars(super().start()))


def stubborn(problem: Problem) -> JointPolicy[TideState]:
    policy = tide(problem)
    rule = policy.admission
    if not isinstance(rule, Tide):
        raise TypeError(f"Tide's own rule was expected, got {rule!r}")
    return replace(policy, admission=Stubborn(**vars(rule)))


def knowing_both(factor: float, allowed: float) -> float:
    """Effective samples a slot and round if both laws are known: one multiplier for both halves."""
    low, high = 1e-4, 1e4
    for _ in range(80):
        middle = math.sqrt(low * high)
        rules = [
            best_rule(UniformDistribution(times, 10 * times), middle) for times in (1.0, factor)
        ]
        if statistics.fmean(rule.spent for rule in rules) > allowed:
            low = middle
        else:
            high = middle
    return 1 / statistics.fmean(rule.growth for rule in rules)


TABLES = {"known": known, "errors": errors, "change": change}


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=TABLES)
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--rounds", type=int, default=1000)
    given = parser.parse_args()
    TABLES[given.what](given.seeds, given.rounds)
