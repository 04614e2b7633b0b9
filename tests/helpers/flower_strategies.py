"""Flower's strategies that average arrays, each as it is used in tests."""

from collections.abc import Callable, Mapping
from typing import Any

from flwr.serverapp.strategy import (
    Bulyan,
    FedAdagrad,
    FedAdam,
    FedAvg,
    FedAvgM,
    FedMedian,
    FedProx,
    FedTrimmedAvg,
    FedYogi,
    Krum,
    MultiKrum,
    QFedAvg,
    Strategy,
)

QUIET: dict[str, Any] = {"fraction_evaluate": 0.0}

AVERAGING: Mapping[str, Callable[[], Strategy]] = {
    "FedAvg": lambda: FedAvg(**QUIET),
    "FedProx": lambda: FedProx(**QUIET, proximal_mu=0.1),
    "FedAdam": lambda: FedAdam(**QUIET),
    "FedAdagrad": lambda: FedAdagrad(**QUIET),
    "FedYogi": lambda: FedYogi(**QUIET),
    "FedAvgM": lambda: FedAvgM(**QUIET, server_momentum=0.5),
    "FedMedian": lambda: FedMedian(**QUIET),
    "FedTrimmedAvg": lambda: FedTrimmedAvg(**QUIET, beta=0.25),  # one of four or five at each end
    "Krum": lambda: Krum(**QUIET, num_malicious_nodes=1),
    "MultiKrum": lambda: MultiKrum(**QUIET, num_malicious_nodes=1, num_nodes_to_select=2),
    "Bulyan": lambda: Bulyan(**QUIET, num_malicious_nodes=0),
    "QFedAvg": lambda: QFedAvg(**QUIET, client_learning_rate=0.1, q=0.1, train_loss_key="loss"),
}
