"""What AdmissionControl adds to a round of Flower's: same app, same process, no training.

    python benchmarks/flower_overhead.py
    python benchmarks/flower_overhead.py --clients 10 --parameters 61706 --blocks 9

Bare FedAvg and AdmissionControl(FedAvg) take turns, a block of rounds each, in one process; each
block gives the median of its rounds, and each pair of neighbouring blocks a ratio. Printed are the
medians over the blocks, and the lowest and highest ratio.
"""

import argparse
import logging
import statistics
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from flwr.app import Array, ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp.strategy import FedAvg, Strategy
from rich.console import Console
from rich.progress import track
from rich.table import Table

from tidegate.flower import AdmissionControl, ClientGate, LocalGrid
from tidegate.flower.records import KEYS
from tidegate.prices import PricePath, UniformPrice
from tidegate.streams import IndexedStream
from tidegate.wire import Order

LAYERS = 10
"""Arrays that a model is made of; LeNet has ten."""


def make_app() -> ClientApp:
    """Returns the model as it came; with an order, it also admits and gives a receipt."""
    app = ClientApp()
    gate = ClientGate(app, lambda context: IndexedStream(range(10**6)), buffer_capacity=10)

    @app.train()
    def train(message: Message, context: Context) -> Message:
        arrays = message.content.array_records["arrays"]
        if KEYS[Order] in message.content:
            with gate.round(message, context) as now:
                return now.reply(arrays)
        metrics = MetricRecord({"num-examples": 1})
        return Message(RecordDict({"arrays": arrays, "metrics": metrics}), reply_to=message)

    return app


def model(parameters: int) -> ArrayRecord:
    sizes = [parameters // LAYERS] * (LAYERS - 1)
    sizes.append(parameters - sum(sizes))
    draw = np.random.default_rng(0)
    return ArrayRecord(
        {f"layer-{n}": Array(draw.random(size, np.float32)) for n, size in enumerate(sizes)}
    )


def round_seconds(strategy: Strategy, grid: LocalGrid, arrays: ArrayRecord, rounds: int) -> float:
    """Median duration of a round; the first, in which nodes introduce themselves, is left out."""
    ends: list[float] = []
    strategy.start(
        grid,
        arrays,
        num_rounds=rounds + 1,
        evaluate_fn=lambda now, arrays: ends.append(time.perf_counter()),
    )
    return float(np.median(np.diff(ends)[1:]))


def strategies(num_clients: int, folder: Path) -> Iterator[Strategy]:
    """Bare, controlled, and controlled with a checkpoint after every round."""
    common = {"budget": 5.5 * num_clients, "prices": PricePath(UniformPrice(1, 10), 1)}
    bare = FedAvg(fraction_evaluate=0.0)
    yield bare
    yield AdmissionControl(bare, "acdpp", **common)  # type: ignore[arg-type]
    yield AdmissionControl(bare, "acdpp", folder=folder, **common)  # type: ignore[arg-type]


def compare(num_clients: int, parameters: int, blocks: int, rounds: int) -> list[str]:
    arrays, app = model(parameters), make_app()
    seconds: list[list[float]] = []
    for _ in track(
        range(blocks), f"{num_clients} clients, {parameters} parameters", transient=True
    ):
        with tempfile.TemporaryDirectory() as folder:
            grid = LocalGrid(app, [{"partition-id": n} for n in range(num_clients)])
            seconds.append(
                [
                    round_seconds(strategy, grid, arrays, rounds)
                    for strategy in strategies(num_clients, Path(folder) / "run")
                ]
            )
    bare, *others = zip(*seconds, strict=True)
    cells = [f"{num_clients:,}", f"{parameters:,}", f"{1000 * statistics.median(bare):.1f}"]
    for other in others:
        ratios = [mine / plain for mine, plain in zip(other, bare, strict=True)]
        added = statistics.median(mine - plain for mine, plain in zip(other, bare, strict=True))
        cells.append(f"{1000 * added:+.1f}")
        cells.append(f"{statistics.median(ratios):.3f} ({min(ratios):.3f} to {max(ratios):.3f})")
    return cells


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--clients", type=int, nargs="+", default=[10, 100, 1000])
    parser.add_argument("--parameters", type=int, nargs="+", default=[61_706, 6_600_000])
    parser.add_argument("--blocks", type=int, default=5)
    parser.add_argument("--rounds", type=int, default=8, help="rounds in a block of 10 clients")
    given = parser.parse_args()
    logging.getLogger("flwr").setLevel(logging.ERROR)
    table = Table(
        "clients", "parameters", "bare ms", "added ms", "ratio", "+ checkpoint ms", "ratio"
    )
    for parameters in given.parameters:
        for num_clients in given.clients:
            heavy = num_clients * parameters > 1e8
            rounds = 2 if heavy else max(given.rounds * 10 // num_clients, 3)
            table.add_row(*compare(num_clients, parameters, given.blocks, rounds))
    Console().print(table)


if __name__ == "__main__":
    main()
