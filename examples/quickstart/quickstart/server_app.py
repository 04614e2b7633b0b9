"""The server: FedAvg under a spending budget."""

from pathlib import Path

from flwr.app import ArrayRecord, Context, MetricRecord
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg

from quickstart.task import LeNet, accuracy, new_model
from tidegate.flower import AdmissionControl
from tidegate.prices import price_feed

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Train for a number of rounds, and say how well the model does after each."""
    config = context.run_config
    seed, folder = int(config["seed"]), str(config["folder"])

    def evaluate(server_round: int, arrays: ArrayRecord) -> MetricRecord:
        model = LeNet()
        model.load_state_dict(arrays.to_torch_state_dict())
        return MetricRecord({"accuracy": accuracy(model, str(config["data"]))})

    strategy = AdmissionControl(
        FedAvg(fraction_evaluate=0.0),
        str(config["policy"]),
        budget=float(config["budget"]),
        prices=price_feed(str(config["price"]), seed),
        folder=Path(folder) if folder else None,
        run=str(config["run"]) or None,
    )
    strategy.start(
        grid,
        initial_arrays=ArrayRecord(new_model(seed).state_dict()),
        num_rounds=int(config["num-server-rounds"]),
        evaluate_fn=evaluate,
    )
