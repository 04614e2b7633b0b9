"""FedAvg under a budget; the server can be told to stop, and to wait for its nodes."""

import os
import time
from pathlib import Path

import numpy as np
from flwr.app import Array, ArrayRecord, Context
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg

from tidegate.flower import AdmissionControl
from tidegate.prices import PricePath, UniformPrice

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    config = context.run_config

    def after(server_round: int, arrays: ArrayRecord) -> None:
        if server_round and server_round == config["pause-server"]:
            (Path(str(config["signals"])) / "server").write_text(str(os.getpid()))
            while True:  # until it is killed
                time.sleep(0.05)
        if server_round == 3:
            deadline = time.monotonic() + 120
            while len(list(grid.get_node_ids())) < int(config["await-nodes"]):
                if time.monotonic() > deadline:
                    raise TimeoutError("the nodes did not come back")
                time.sleep(0.2)

    strategy = AdmissionControl(
        FedAvg(fraction_evaluate=0.0),
        str(config["policy"]),
        budget=16.5,
        prices=PricePath(UniformPrice(1, 10), seed=1),
        folder=Path(str(config["folder"])),
        run=str(config["run"]),
    )
    strategy.start(
        grid,
        ArrayRecord({"w": Array(np.zeros(3))}),
        num_rounds=int(config["num-server-rounds"]),
        evaluate_fn=after,
    )
