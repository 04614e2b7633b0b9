"""Tidegate on Flower: orders and receipts on Flower's messages, around any Flower strategy.

The only folder that imports flwr.
"""

import tidegate.flower.flower_internals  # noqa: F401 - first, because it refuses a Flower it does not know

# isort: split
from tidegate.flower.client import ClientGate, GatedRound
from tidegate.flower.control_settings import ClientTrust, Deployment, Planning
from tidegate.flower.folded_fedavg import FoldedFedAvg
from tidegate.flower.local_grid import LocalGrid, run_in_process
from tidegate.flower.strategy import AdmissionControl
from tidegate.server.shards import Shard

__all__ = [
    "AdmissionControl",
    "ClientGate",
    "ClientTrust",
    "Deployment",
    "FoldedFedAvg",
    "GatedRound",
    "LocalGrid",
    "Planning",
    "Shard",
    "run_in_process",
]
