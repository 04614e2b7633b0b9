"""The parts of Flower that are not its public interface, all of them here.

They can change with any release, so the versions that were tested are stated, and any other is
refused when this package is imported.
"""

import importlib.metadata

from packaging.specifiers import SpecifierSet

SUPPORTED_FLOWER = SpecifierSet(">=1.40,<1.42")
"""Tested at both ends."""


def check_flower(version: str) -> None:
    """Refuse a Flower that was not tested."""
    if version not in SUPPORTED_FLOWER:
        raise ImportError(
            f"tidegate.flower was tested with flwr{SUPPORTED_FLOWER}, found {version}; "
            "install tidegate[flower], or a newer tidegate"
        )


check_flower(importlib.metadata.version("flwr"))

# After the check, because these move between versions.
from flwr.app import Message  # noqa: E402
from flwr.proto.node_pb2 import NodeInfo  # noqa: E402
from flwr.supercore.run import Run  # noqa: E402
from flwr.supercore.task_identity import TaskIdentity  # noqa: E402

SERVER_NODE_ID = 1
"""The id that Flower gives the server side of a run."""

__all__ = ["SERVER_NODE_ID", "NodeInfo", "Run", "act_as_server", "check_flower", "name_message"]


def act_as_server(run_id: int) -> None:
    """Let this process make messages as the server of a run."""
    TaskIdentity.run_id = run_id
    TaskIdentity.node_id = SERVER_NODE_ID
    TaskIdentity.task_id = 1


def name_message(message: Message, message_id: str) -> None:
    """Give a message its id, which is a grid's to give."""
    message.metadata.__dict__["_message_id"] = message_id
