"""Tidegate for Flower: add orders to a strategy's messages and take receipts off the replies.

``AdmissionControl`` wraps any Flower strategy on the server, and ``ClientGate`` is a mod for the
ClientApp. This is the only folder that imports flwr. A client loads nothing of the server's.
"""

from typing import TYPE_CHECKING

from tidegate._internal.later import imported_later
from tidegate.flower.flower_log import log_to_flower

if TYPE_CHECKING:
    from tidegate.flower.client import ClientGate
    from tidegate.flower.control_settings import ClientTrust, Deployment, Planning
    from tidegate.flower.folded_fedavg import FoldedFedAvg
    from tidegate.flower.local_grid import LocalGrid, run_in_process
    from tidegate.flower.strategy import AdmissionControl
    from tidegate.server.shards import Shard
else:
    __getattr__ = imported_later(
        __name__,
        {
            "tidegate.flower.client": ["ClientGate"],
            "tidegate.flower.control_settings": ["ClientTrust", "Deployment", "Planning"],
            "tidegate.flower.folded_fedavg": ["FoldedFedAvg"],
            "tidegate.flower.local_grid": ["LocalGrid", "run_in_process"],
            "tidegate.flower.strategy": ["AdmissionControl"],
            "tidegate.server.shards": ["Shard"],
        },
    )

__all__ = [
    "AdmissionControl",
    "ClientGate",
    "ClientTrust",
    "Deployment",
    "FoldedFedAvg",
    "LocalGrid",
    "Planning",
    "Shard",
    "run_in_process",
]
log_to_flower()
