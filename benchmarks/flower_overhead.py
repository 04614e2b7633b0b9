"""What AdmissionControl adds to a round of Flower's: same app, same process, no training.

    python benchmarks/flower_overhead.py
    python benchmarks/flower_overhead.py --clients 10 --parameters 61706 --rounds 200 --json a.json

After each round of AdmissionControl(FedAvg), with gates that admit samples at the clients, one
round of bare FedAvg is played on the same grid. Printed are medians: of a bare round, of what the
round beside it took more (and how much of that at the server), and of the ratio of the two, by the
clock and by the processor's time, which others on the same machine disturb less. In brackets are
95 % intervals of the medians, from the ranks of the pairs.
"""

import argparse
import itertools
import json
import logging
import math
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
from flwr.app import ArrayRecord, ConfigRecord
from flwr.serverapp.strategy import FedAvg
from numpy.typing import NDArray
from rich.console import Console
from rich.progress import track
from rich.table import Table

from tidegate.flower import AdmissionControl, LocalGrid
from tidegate.prices import PricePath, UniformPrice

sys.path.insert(0, str(Path(__file__).parent / "idle_app"))

from idle.client_app import make_app
from idle.server_app import model

SECONDS = 10.0
"""About as long as bare rounds of one case take in all."""
MOST_BYTES = 8e9
"""Of a round's replies, which FedAvg holds all at once; larger cases are left out."""


Clocks = tuple[float, float]
"""Seconds by the clock, and of the processor."""


def clocks() -> Clocks:
    return time.perf_counter(), time.process_time()


class Stopwatch:
    """Plays a bare round after each controlled one, and times both."""

    def __init__(self, grid: LocalGrid) -> None:
        self.marks: list[tuple[Clocks, Clocks, Clocks]] = []
        """Of each pair: when the controlled round began, when it ended and the bare one began, and
        when that ended."""
        self._grid, self._strategy = grid, FedAvg(fraction_evaluate=0.0)
        self._started = clocks()

    def after_round(self, server_round: int, arrays: ArrayRecord) -> None:
        """Flower calls this at the end of a round."""
        ended = clocks()
        self._bare_round(server_round, arrays)
        if server_round > 1:  # in the first round nodes introduce themselves
            self.marks.append((self._started, ended, clocks()))
        self._started = clocks()

    def _bare_round(self, now: int, arrays: ArrayRecord) -> None:
        """What Flower's own loop does in a round."""
        strategy, grid = self._strategy, self._grid
        messages = strategy.configure_train(now, arrays, ConfigRecord(), grid)
        strategy.aggregate_train(now, grid.send_and_receive(messages))
        messages = strategy.configure_evaluate(now, arrays, ConfigRecord(), grid)
        strategy.aggregate_evaluate(now, grid.send_and_receive(messages))


class Timed:
    """Adds up the time that is spent in a strategy's two training hooks."""

    seconds = 0.0

    def configure_train(self, *arguments: Any) -> Any:
        """Timed."""
        started = time.perf_counter()
        messages = super().configure_train(*arguments)  # type: ignore[misc]
        self.seconds += time.perf_counter() - started
        return messages

    def aggregate_train(self, *arguments: Any) -> Any:
        """Timed."""
        started = time.perf_counter()
        aggregated = super().aggregate_train(*arguments)  # type: ignore[misc]
        self.seconds += time.perf_counter() - started
        return aggregated


class TimedFedAvg(Timed, FedAvg):
    """FedAvg with a stopwatch."""


class TimedControl(Timed, AdmissionControl):
    """AdmissionControl with a stopwatch."""


def middle(values: NDArray[np.float64]) -> dict[str, float]:
    """The median, and the ranks between which it lies with 95 % confidence."""
    ranked, half = np.sort(values), 0.98 * math.sqrt(len(values))
    low = max(math.floor(len(values) / 2 - half), 0)
    high = min(math.ceil(len(values) / 2 + half), len(values) - 1)
    return {"median": float(np.median(ranked)), "low": ranked[low], "high": ranked[high]}


def compare(num_clients: int, parameters: int, rounds: int, folder: Path | None) -> dict[str, Any]:
    grid = LocalGrid(make_app(), [{"partition-id": n} for n in range(num_clients)])
    wrapped = TimedFedAvg(fraction_evaluate=0.0)
    strategy = TimedControl(
        wrapped,
        "acdpp",
        budget=5.5 * num_clients,
        prices=PricePath(UniformPrice(1, 10), seed=1),
        folder=folder,
    )
    watch = Stopwatch(grid)
    strategy.start(grid, model(parameters), num_rounds=rounds + 1, evaluate_fn=watch.after_round)
    mine, bare = np.moveaxis(np.diff(np.array(watch.marks), axis=1), (1, 2), (0, 1))
    return {
        "clients": num_clients,
        "parameters": parameters,
        "checkpoint": folder is not None,
        "pairs": len(watch.marks),
        "bare_ms": 1000 * float(np.median(bare[0])),
        "added_ms": 1000 * float(np.median(mine[0] - bare[0])),
        "added_at_server_ms": 1000 * (strategy.seconds - wrapped.seconds) / (rounds + 1),
        "ratio": middle(mine[0] / bare[0]),
        "processor_ratio": middle(mine[1] / bare[1]),
    }


def row(found: dict[str, Any]) -> list[str]:
    ratios = (found["ratio"], found["processor_ratio"])
    return [
        f"{found['clients']:,}",
        f"{found['parameters']:,}",
        "yes" if found["checkpoint"] else "no",
        f"{found['pairs']}",
        f"{found['bare_ms']:.1f}",
        f"{found['added_ms']:+.2f}",
        f"{found['added_at_server_ms']:+.2f}",
        *(f"{one['median']:.3f} ({one['low']:.3f} to {one['high']:.3f})" for one in ratios),
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--clients", type=int, nargs="+", default=[10, 100, 1000])
    parser.add_argument("--parameters", type=int, nargs="+", default=[61_706, 6_600_000])
    parser.add_argument("--rounds", type=int, help="of each kind; fewer where a round is long")
    parser.add_argument("--json", type=Path, help="file to write all figures to")
    parser.add_argument("--no-checkpoint", action="store_true", help="leave out saved runs")
    given = parser.parse_args()
    logging.getLogger("flwr").setLevel(logging.ERROR)
    times = ("bare ms", "added ms", "at server", "ratio", "processor ratio")
    table = Table("clients", "parameters", "checkpoint", "pairs", *times)
    cases = [
        (parameters, count, saved)
        for parameters, count, saved in itertools.product(
            given.parameters, given.clients, (False,) if given.no_checkpoint else (False, True)
        )
        if 4 * parameters * count <= MOST_BYTES
    ]
    all_found = []
    for parameters, num_clients, saved in track(cases, "measuring", transient=True):
        # A million parameters take about 1.5 ms a client, a client by itself 0.8 ms.
        seconds = num_clients * (0.8 + 1.5e-6 * parameters) / 1000
        rounds = given.rounds or int(min(max(SECONDS / seconds, 5), 400))
        with tempfile.TemporaryDirectory() as folder:
            where = Path(folder) / "run" if saved else None
            all_found.append(compare(num_clients, parameters, rounds, where))
        table.add_row(*row(all_found[-1]))
        if given.json is not None:
            given.json.write_text(json.dumps(all_found, indent=2))
    Console().print(table)


if __name__ == "__main__":
    main()
