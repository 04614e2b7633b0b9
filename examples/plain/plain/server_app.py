"""The server."""

import numpy as np
from flwr.app import ArrayRecord, Context
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Average for a number of rounds."""
    arrays = ArrayRecord([np.zeros((64, 10)), np.zeros(10)])
    strategy = FedAvg(fraction_evaluate=0.0)
    strategy.start(grid, arrays, num_rounds=int(context.run_config["num-server-rounds"]))
