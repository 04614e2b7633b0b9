"""The server: FedAvg under a budget for labels and a cap on uses."""

from pathlib import Path

from flwr.app import Array, ArrayRecord, Context, MetricRecord
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg

from showcase.data import load
from showcase.task import accuracy, features, new_model
from tidegate.flower import AdmissionControl, Planning

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Train for a number of rounds, and say how well the model does after each."""
    config = context.run_config
    windows, labels = load(str(config["data"])).test(len(list(grid.get_node_ids())))
    values = features(windows)

    def evaluate(server_round: int, arrays: ArrayRecord) -> MetricRecord:
        model = {name: array.numpy() for name, array in arrays.items()}
        return MetricRecord({"accuracy": accuracy(model, values, labels)})

    strategy = AdmissionControl(
        FedAvg(fraction_evaluate=0.0),
        "tide",
        budget=float(config["budget"]),
        prices=float(config["price"]),
        folder=Path(str(config["folder"])),
        run=str(config["run"]) or None,
        planning=Planning(most_uses=int(config["most-uses"])),
    )
    strategy.start(
        grid,
        initial_arrays=ArrayRecord({name: Array(value) for name, value in new_model().items()}),
        num_rounds=int(config["num-server-rounds"]),
        evaluate_fn=evaluate,
    )
