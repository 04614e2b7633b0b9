"""The server."""

import torch
from flwr.app import ArrayRecord, Context
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg

from batch_norm.task import accuracy, new_network

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Average for a number of rounds; save the network, and how well it does."""
    network = new_network()
    arrays = ArrayRecord(network.state_dict())
    strategy = FedAvg(fraction_evaluate=0.0)
    # Start strategy
    rounds = int(context.run_config["num-server-rounds"])
    result = strategy.start(grid, arrays, num_rounds=rounds)
    network.load_state_dict(result.arrays.to_torch_state_dict())
    saved = {"network": network.state_dict(), "accuracy": accuracy(network)}
    torch.save(saved, str(context.run_config["model"]))
