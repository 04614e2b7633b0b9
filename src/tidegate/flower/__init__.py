"""Tidegate for Flower: add orders to a strategy's messages and take receipts off the replies.

``AdmissionControl`` wraps any Flower strategy on the server, and ``ClientGate`` is a mod for the
ClientApp. This is the only folder that imports flwr.
"""

from tidegate.flower.client import ClientGate
from tidegate.flower.control_settings import ClientTrust, Deployment, Planning
from tidegate.flower.folded_fedavg import FoldedFedAvg
from tidegate.flower.local_grid import LocalGrid, run_in_process
from tidegate.flower.log_lines import log_to_flower
from tidegate.flower.strategy import AdmissionControl
from tidegate.server.shards import Shard

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
