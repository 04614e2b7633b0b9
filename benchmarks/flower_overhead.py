"""What AdmissionControl adds to a round of Flower's: same app, same process, no training.

    python benchmarks/flower_overhead.py
    python benchmarks/flower_overhead.py --clients 10 --parameters 61706 --rounds 200

After each round of AdmissionControl(FedAvg), with gates that admit samples at the clients, one
round of bare FedAvg is played on the same grid. Printed are medians: of a bare round, of what the
round beside it took more (and how much of that at the server), and of the ratio of the two with the
middle half of all ratios in brackets.
"""

import argparse
import itertools
import logging
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
from flwr.app import ArrayRecord, ConfigRecord
from flwr.serverapp.strategy import FedAvg
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


class Stopwatch:
    """Plays a bare round after each controlled one, and times both."""

    def __init__(self, grid: LocalGrid) -> None:
        self.bare: list[float] = []
        self.controlled: list[float] = []
        self._grid, self._strategy = grid, FedAvg(fraction_evaluate=0.0)
        self._started = 0.0

    def after_round(self, server_round: int, arrays: ArrayRecord) -> None:
        """Flower calls this at the end of a round."""
        ended = time.perf_counter()
        self._bare_round(server_round, arrays)
        between = time.perf_counter()
        if server_round > 1:  # in the first round nodes introduce themselves
            self.controlled.append(ended - self._started)
            self.bare.append(between - ended)
        self._started = time.perf_counter()

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


def compare(num_clients: int, parameters: int, rounds: int, folder: Path | None) -> list[str]:
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
    mine, bare = np.array(watch.controlled), np.array(watch.bare)
    low, middle, high = np.quantile(mine / bare, [0.25, 0.5, 0.75])
    return [
        f"{num_clients:,}",
        f"{parameters:,}",
        "no" if folder is None else "yes",
        f"{1000 * np.median(bare):.1f}",
        f"{1000 * np.median(mine - bare):+.2f}",
        f"{1000 * (strategy.seconds - wrapped.seconds) / (rounds + 1):+.2f}",
        f"{middle:.3f} ({low:.3f} to {high:.3f})",
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--clients", type=int, nargs="+", default=[10, 100, 1000])
    parser.add_argument("--parameters", type=int, nargs="+", default=[61_706, 6_600_000])
    parser.add_argument("--rounds", type=int, help="of each kind; fewer where a round is long")
    given = parser.parse_args()
    logging.getLogger("flwr").setLevel(logging.ERROR)
    table = Table(
        "clients", "parameters", "checkpoint", "bare ms", "added ms", "at server", "ratio"
    )
    cases = [
        (parameters, count, saved)
        for parameters, count, saved in itertools.product(
            given.parameters, given.clients, (False, True)
        )
        if 4 * parameters * count <= MOST_BYTES
    ]
    for parameters, num_clients, saved in track(cases, "measuring", transient=True):
        # A million parameters take about 1.5 ms a client, a client by itself 0.8 ms.
        seconds = num_clients * (0.8 + 1.5e-6 * parameters) / 1000
        rounds = given.rounds or int(min(max(SECONDS / seconds, 5), 400))
        with tempfile.TemporaryDirectory() as folder:
            where = Path(folder) / "run" if saved else None
            table.add_row(*compare(num_clients, parameters, rounds, where))
    Console().print(table)


if __name__ == "__main__":
    main()
