"""FedAvg with one client, which may fill its buffer in three rounds."""

from pathlib import Path

import numpy as np
from flwr.app import Array, ArrayRecord, Context
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg

from tidegate.flower import AdmissionControl

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    config = context.run_config
    wrapped = FedAvg(
        fraction_evaluate=0.0, min_train_nodes=1, min_evaluate_nodes=0, min_available_nodes=1
    )
    strategy = AdmissionControl(
        wrapped,
        "tide",
        budget=float(config["images"]) / 3,
        prices=1.0,
        run=str(config["run"]),
        folder=Path(str(config["folder"])),
    )
    model = ArrayRecord({"mean": Array(np.zeros(3, np.float32))})
    rounds = int(config["num-server-rounds"])
    strategy.start(grid, model, num_rounds=rounds)
