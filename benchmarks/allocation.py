"""Whole samples for ten million clients in one call: time, memory, and the largest error.

python benchmarks/allocation.py
"""

import resource
import time

import numpy as np

from tidegate.admission.allocation import Allocation

CLIENTS = 10_000_000
CALLS = 7


def peak_gigabytes() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20


def main() -> None:
    draw = np.random.default_rng(0)
    capacities = draw.integers(8, 13, CLIENTS)
    shares = capacities / capacities.sum()
    noise = draw.random(CLIENTS)
    del capacities
    before = peak_gigabytes()
    allocation = Allocation.start(shares)
    seconds, plain, worst = [], [], 0.0
    for total in draw.uniform(0, 2 * CLIENTS, CALLS):
        started = time.perf_counter()
        _, allocation = allocation.allocate(float(total))
        seconds.append(time.perf_counter() - started)
        worst = max(worst, float(np.abs(allocation.ordered - shares * allocation.owed).max()))
        started = time.perf_counter()
        np.sort(noise)
        plain.append(time.perf_counter() - started)
    print(f"{CLIENTS:,} clients, {CALLS} calls")
    print(f"seconds a call: median {np.median(seconds):.2f}, slowest {max(seconds):.2f}")
    print(
        f"beside sorting as many random floats: {np.median(seconds) / np.median(plain):.2f} times"
    )
    print(f"peak memory: {peak_gigabytes():.2f} GiB, {before:.2f} GiB before the first call")
    print(f"kept between rounds: 24 bytes a client; largest error {worst:.3f} samples")


if __name__ == "__main__":
    main()
