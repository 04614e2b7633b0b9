"""How long one decision of ACDPP and of Tide takes, and ACDPP's solver beside a scan.

python benchmarks/decision.py
"""

import time

import numpy as np

from tidegate._internal.randomness import PRICES, generator
from tidegate.admission.interval import AdmissionInterval
from tidegate.admission.minimise import minimise
from tidegate.admission.objective import Objective
from tidegate.admission.rule import Quote
from tidegate.policies.presets import EXPERIMENTS, make_policy
from tidegate.prices import MarkovPrice, PriceLaw, UniformPrice
from tidegate.problem import LearningConstants
from tidegate.simulation.rounds import begin, play_round
from tidegate.theory.penalty import surrogate_penalty


def in_a_run(name: str, price: PriceLaw) -> None:
    problem = EXPERIMENTS["mnist"].problem()
    policy = make_policy(name, problem)
    state = begin(policy, problem)
    path = price.rounds(generator(0, PRICES))
    decide, whole = [], []
    for now, _ in zip(path, range(problem.num_rounds), strict=False):
        quote = Quote(float(now))
        started = time.perf_counter()
        policy.admission.decide(policy.admission.learn(state.server, quote), quote, 1e9)
        decide.append(time.perf_counter() - started)
        started = time.perf_counter()
        state, _ = play_round(policy, problem, state, float(now))
        whole.append(time.perf_counter() - started)
    print(f"{name}, {price}")
    for what, seconds in (("one decision", decide), ("one whole round", whole)):
        low, middle, high = 1e6 * np.quantile(seconds, [0.05, 0.5, 0.95])
        print(
            f"  {what}: median {middle:.0f} µs (5 % to 95 %: {low:.0f} to {high:.0f} µs), "
            f"mean {1e6 * np.mean(seconds):.0f} µs, longest {1e3 * max(seconds):.0f} ms"
        )


def against_a_scan() -> None:
    learning = LearningConstants()
    print("\ninterval width   evaluations   solver µs   scan of 10^4 points µs   scan / solver")
    for exponent in range(2, 13, 2):
        objective = Objective(0.005, 30.0, 90.0, 5_000.0, learning)
        interval = AdmissionInterval(0.0, 10.0**exponent)
        started = time.perf_counter()
        for _ in range(200):
            minimum = minimise(objective, interval)
        solver = (time.perf_counter() - started) / 200
        points = np.linspace(1e-3, interval.upper, 10_000)
        started = time.perf_counter()
        for _ in range(20):
            np.min(0.005 * points + 30 * surrogate_penalty(90 + points, 5_000 + points, learning))
        scan = (time.perf_counter() - started) / 20
        print(
            f"10^{exponent:<14} {minimum.evaluations:<13} {1e6 * solver:<11.0f} "
            f"{1e6 * scan:<24.0f} {scan / solver:.1f}"
        )


if __name__ == "__main__":
    in_a_run("acdpp", UniformPrice(1, 10))
    in_a_run("tide", UniformPrice(1, 10))
    in_a_run("tide", MarkovPrice(2, 9, 0.95, 0.95))
    against_a_scan()
