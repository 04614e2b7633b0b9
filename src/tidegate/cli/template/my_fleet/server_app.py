"""The server: FedAvg under a spending budget."""

from pathlib import Path

from flwr.app import Array, ArrayRecord, Context, MetricRecord
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg

from tidegate.flower import AdmissionControl, Planning
from tidegate.prices import price_feed

from .task import new_model, score

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Train for a number of rounds, and evaluate the model after each."""
    config = context.run_config
    folder = str(config["folder"])

    def evaluate(server_round: int, arrays: ArrayRecord) -> MetricRecord:
        model = {name: array.numpy() for name, array in arrays.items()}
        return MetricRecord({**score(model)})

    strategy = AdmissionControl(
        FedAvg(),
        str(config["policy"]),
        budget=float(config["budget"]),
        prices=price_feed(str(config["price"]), seed=int(config["seed"])),
        folder=Path(folder) if folder else None,
        run=str(config["run"]) or None,
        planning=Planning(most_uses=int(config["most-uses"]) or None),
    )
    strategy.start(
        grid,
        initial_arrays=ArrayRecord({name: Array(value) for name, value in new_model().items()}),
        num_rounds=int(config["num-server-rounds"]),
        evaluate_fn=evaluate,
    )
