"""Tide under a budget for six clients, on one server or on three that meet in PostgreSQL."""

import time
from pathlib import Path

import numpy as np
from flwr.app import Array, ArrayRecord, Context
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg

from tidegate.flower import AdmissionControl, Shard
from tidegate.integrations.postgres import PostgresMeeting
from tidegate.prices import PricePath, UniformPrice

BUDGET = 330.0
SLOTS = {"east": 200, "north": 200, "west": 200}
RUN = "six-clients"

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    config = context.run_config
    name = str(config["shard"])
    clients = int(config["clients"])

    def wait_for_all(server_round: int, arrays: ArrayRecord) -> None:
        deadline = time.monotonic() + 600
        while len(list(grid.get_node_ids())) < clients:
            if time.monotonic() > deadline:
                raise TimeoutError("a node did not come back")
            time.sleep(0.1)

    strategy = AdmissionControl(
        FedAvg(fraction_evaluate=0.0, min_available_nodes=clients, min_train_nodes=clients),
        "tide",
        budget=BUDGET,
        prices=PricePath(UniformPrice(1, 10), seed=1),
        folder=Path(str(config["folder"])),
        run=RUN,
        shard=Shard(name, SLOTS, PostgresMeeting()) if name else None,
    )
    strategy.start(
        grid,
        ArrayRecord({"w": Array(np.zeros(3))}),
        num_rounds=int(config["num-server-rounds"]),
        timeout=float(config["timeout"]),
        evaluate_fn=wait_for_all,
    )
