"""How the control plane grows with the number of clients: time and memory, one run a process.

python benchmarks/scale.py --plot docs/pictures/scale.png

Two modes. Per client: a total is split into whole samples, one number for each client of the round
(ACDPP). Broadcast: one rule for all, and sums come back (Tide). The server's time is what the rule
and the split take; the rest is the fleet itself, which is simulated here and would be on devices.
"""

import argparse
import json
import math
import resource
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from rich.progress import track

from tidegate._internal.arrays import FloatArray
from tidegate._internal.randomness import COHORTS, PRICES, generator
from tidegate.admission.allocation import Allocation
from tidegate.cohorts import Cohorts
from tidegate.policies.presets import make_policy
from tidegate.prices import UniformPrice
from tidegate.problem import Problem
from tidegate.simulation.rounds import begin, play_round
from tidegate.simulation.summary import student_quantile

CAPACITY = 10
MODES = {"acdpp": "per client", "tide": "broadcast"}
SIZES = [10**3, 10**4, 10**5, 10**6, 10**7]
WAYS: list[dict[str, Any]] = [
    {"cohort": 1.0, "own_prices": False, "rounds": 20},
    {"cohort": 1.0, "own_prices": True, "rounds": 20},
    {"cohort": 0.01, "own_prices": False, "rounds": 600},
]
"""Rounds enough for every client to be reached: while buffers fill, a rule has a limit, too, and
that is split like a total."""
PART_OF_FIT = 10**5
"""Below it, what does not depend on clients decides."""


class Stopwatch:
    """Seconds in calls that it was put around."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def around(self, call: Callable[..., Any]) -> Callable[..., Any]:
        """The same call, timed."""

        def timed(*arguments: Any, **named: Any) -> Any:
            started = time.perf_counter()
            try:
                return call(*arguments, **named)
            finally:
                self.seconds += time.perf_counter() - started

        return timed


def peak_bytes() -> int:
    """Most memory that this process ever had."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def measure(
    policy: str, clients: int, cohort: float, rounds: int, *, own_prices: bool
) -> dict[str, float]:
    """Milliseconds a round and bytes a client, in this process."""
    before = peak_bytes()
    problem = Problem(
        buffer_capacities=np.full(clients, CAPACITY),
        budget=5.5 * max(cohort * clients, 1),
        mean_price=5.5,
        num_rounds=max(rounds, 100),
        cohorts=Cohorts(fraction_train=cohort),
    )
    made, server = make_policy(policy, problem), Stopwatch()
    for name in ("learn", "decide", "settle"):
        object.__setattr__(made.admission, name, server.around(getattr(made.admission, name)))
    Allocation.allocate = server.around(Allocation.allocate)  # type: ignore[method-assign]
    state = begin(made, problem)
    size = clients if own_prices else None
    prices = UniformPrice(1, 10).rounds(generator(0, PRICES), size)
    members = problem.cohorts.rounds(generator(0, COHORTS), clients)
    seconds, shares = [], []
    for _ in range(rounds):
        price, who, served = next(prices), next(members), server.seconds
        started = time.perf_counter()
        state, _ = play_round(made, problem, state, price, who)
        seconds.append(time.perf_counter() - started)
        shares.append(server.seconds - served)
    return {
        "milliseconds": 1e3 * float(np.mean(seconds)),
        "slowest": 1e3 * max(seconds),
        "server_milliseconds": 1e3 * float(np.median(shares[rounds // 2 :])),
        "bytes": (peak_bytes() - before) / clients,
        "gigabytes": peak_bytes() / 1e9,
    }


def in_a_process(**setting: Any) -> dict[str, float]:
    """The same in a process of its own, for its memory."""
    command = [sys.executable, __file__, "--one", json.dumps(setting)]
    done = subprocess.run(command, check=True, capture_output=True, text=True)  # noqa: S603
    found: dict[str, float] = json.loads(done.stdout)
    return found


def exponent(sizes: FloatArray, values: FloatArray) -> tuple[float, float]:
    """Slope of log value over log size, and the half-width of its 95 % interval."""
    x, y = np.log(sizes), np.log(values)
    x, y = x - x.mean(), y - y.mean()
    slope = float(x @ y / (x @ x))
    left = float(np.sum((y - slope * x) ** 2))
    degrees = len(x) - 2
    return slope, student_quantile(degrees) * math.sqrt(left / degrees / float(x @ x))


def growth(rows: list[dict[str, Any]], name: str) -> str:
    """The exponent of a column, where there are rows enough for an interval."""
    large = [row for row in rows if row["clients"] >= PART_OF_FIT]
    if len(large) < FEWEST_POINTS:
        return "-"
    of = np.array([row["clients"] for row in large], dtype=np.float64)
    values = np.array([row[name] for row in large]) * (of if name == "bytes" else 1.0)
    slope, half = exponent(of, values)
    return f"{slope:.2f} ± {half:.2f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--one", help=argparse.SUPPRESS)
    parser.add_argument("--largest", type=int, default=10**7)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--plot", type=Path)
    options = parser.parse_args()
    if options.one:
        print(json.dumps(measure(**json.loads(options.one))))
        return
    sizes = [size for size in SIZES if size <= options.largest]
    grid = [
        {"policy": policy, **way, "clients": clients}
        for policy in MODES
        for way in WAYS
        for clients in sizes
    ]
    rows = [
        {**setting, **in_a_process(**setting)}
        for setting in track(grid * options.repeats, "measuring")
    ]
    show(rows, sizes)
    if options.plot is not None:
        draw(rows, sizes, options.plot)


def chosen(rows: list[dict[str, Any]], **wanted: Any) -> list[dict[str, Any]]:
    """Rows with these values."""
    return [row for row in rows if all(row[name] == value for name, value in wanted.items())]


def show(rows: list[dict[str, Any]], sizes: list[int]) -> None:
    """Medians over repeats, and exponents."""
    print("| mode | prices | cohort | clients | ms a round | slowest | server, ms | bytes a client "
          "| GB in all |\n|---|---|---|---|---|---|---|---|---|")  # fmt: skip
    for title, some in groups(rows):
        for clients in sizes:
            same = [row for row in some if row["clients"] == clients]
            middle = [float(np.median([row[name] for row in same])) for name in COLUMNS]
            numbers = " | ".join(f"{value:,.3g}" for value in middle)
            print(f"| {title} | {clients:,} | {numbers} |")
    print("\nExponents of the number of clients, from 100,000 on\n\n"
          "| mode | prices | cohort | time a round | server's time | memory |\n"
          "|---|---|---|---|---|---|")  # fmt: skip
    for title, some in groups(rows):
        fits = [growth(some, name) for name in ("milliseconds", "server_milliseconds", "bytes")]
        print(f"| {title} | {' | '.join(fits)} |")


FEWEST_POINTS = 3
"""For a slope with an interval."""
COLUMNS = ("milliseconds", "slowest", "server_milliseconds", "bytes", "gigabytes")


def groups(rows: list[dict[str, Any]]) -> Iterator[tuple[str, list[dict[str, Any]]]]:
    """Rows that differ in the number of clients alone, under one title."""
    for policy, mode in MODES.items():
        for way in WAYS:
            title = f"{mode} | {'own' if way['own_prices'] else 'one'} | {way['cohort']:.0%}"
            yield title, chosen(rows, policy=policy, **way)


def draw(rows: list[dict[str, Any]], sizes: list[int], path: Path) -> None:
    """Server's time and all memory, by clients."""
    from matplotlib import pyplot as plt  # noqa: PLC0415 - only for a picture

    figure, (left, right) = plt.subplots(1, 2, figsize=(10, 4), layout="constrained")
    for policy, colour in zip(MODES, ("#D55E00", "#0072B2"), strict=True):
        for way, line in ((WAYS[0], "-"), (WAYS[2], "--")):
            some = chosen(rows, policy=policy, **way)
            for axes, name, of in (
                (left, "server_milliseconds", "server_milliseconds"),
                (right, "gigabytes", "bytes"),
            ):
                label = f"{MODES[policy]}, {way['cohort']:.0%} take part: {growth(some, of)}"
                middle = [
                    np.median([row[name] for row in some if row["clients"] == clients])
                    for clients in sizes
                ]
                axes.loglog(sizes, middle, line, color=colour, marker="o", ms=4, label=label)
    left.set(xlabel="clients", ylabel="milliseconds a round", title="What the server does")
    right.set(xlabel="clients", ylabel="GB", title="Memory, with the simulated fleet")
    for axes in (left, right):
        axes.grid(alpha=0.3)
        axes.legend(fontsize=7.5, title="mode: exponent from 10⁵ clients on", title_fontsize=7.5)
    figure.savefig(path, dpi=150)


if __name__ == "__main__":
    main()
