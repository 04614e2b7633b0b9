"""Plays rounds and writes down how long each took, and the memory of it all."""

import json
import resource
import time
from pathlib import Path

import numpy as np
from flwr.app import Array, ArrayRecord, Context
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg, Strategy

from tidegate.flower import AdmissionControl, FoldedFedAvg
from tidegate.prices import PricePath, UniformPrice

LAYERS = 10
"""Arrays that a model is made of; LeNet has ten."""

app = ServerApp()


def model(parameters: int) -> ArrayRecord:
    sizes = [parameters // LAYERS] * (LAYERS - 1)
    sizes.append(parameters - sum(sizes))
    draw = np.random.default_rng(0)
    return ArrayRecord(
        {f"layer-{n}": Array(draw.random(size, np.float32)) for n, size in enumerate(sizes)}
    )


@app.main()
def main(grid: Grid, context: Context) -> None:
    config, ends = context.run_config, []
    clients = int(config["clients"])
    make = FoldedFedAvg if config["strategy"] == "folded" else FedAvg
    strategy: Strategy = make(fraction_evaluate=0.0, min_available_nodes=clients)
    if config["strategy"] != "bare":
        prices = PricePath(UniformPrice(1, 10), seed=1)
        strategy = AdmissionControl(strategy, "acdpp", budget=5.5 * clients, prices=prices)
    strategy.start(
        grid,
        model(int(config["parameters"])),
        num_rounds=int(config["num-server-rounds"]),
        evaluate_fn=lambda now, arrays: ends.append(time.perf_counter()),
    )
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    found = {"seconds": np.diff(ends).tolist(), "peak_bytes": peak}
    Path(str(config["out"])).write_text(json.dumps(found))
