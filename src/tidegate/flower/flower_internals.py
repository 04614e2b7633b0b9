"""Everything that we use of Flower beyond its public interface.

It can change with any release. This module therefore states which versions were tested, and refuses
all others on import.
"""

import importlib.metadata
import logging
import re
from collections.abc import Callable, Mapping

from packaging.specifiers import SpecifierSet

SUPPORTED_FLOWER = SpecifierSet(">=1.40,<1.42")
"""Tested at both ends."""


def check_flower(version: str) -> None:
    """Refuse a version of Flower that was not tested."""
    if version not in SUPPORTED_FLOWER:
        raise ImportError(
            f"tidegate.flower was tested with flwr{SUPPORTED_FLOWER}, but {version} is installed; "
            "install tidegate[flower], or a newer tidegate"
        )


check_flower(importlib.metadata.version("flwr"))

# After the check, because these move between versions.
from flwr.app import Context, Message  # noqa: E402
from flwr.proto.node_pb2 import NodeInfo  # noqa: E402
from flwr.supercore.run import Run  # noqa: E402
from flwr.supercore.task_identity import TaskIdentity  # noqa: E402

from tidegate.runs.server_log import RUN_STOPPED, in_words  # noqa: E402

SERVER_NODE_ID = 1
"""The id that Flower gives the server side of a run."""
CLIENT_RAISED = 2
"""Flower's error code for a ClientApp that raised."""
NO_REPLY = (3, 4, 5)
"""Flower's error codes for a message, a reply or a node that is not available."""
UNAUTHORIZED = 401
"""The SuperLink's answer to a server app whose run was stopped: its token is no longer valid."""
LOGGER = "flwr"
"""The logger of Flower and of everything that runs on it."""

AWAITED = re.compile(
    r"Waiting\s+for\s+nodes\s+to\s+connect:\s+\d+\s+connected\s+\(minimum\s+required:\s+(\d+)\)"
)
"""A line of Flower's log, as ``flwr log`` shows it."""

__all__ = [
    "CLIENT_RAISED",
    "LOGGER",
    "NO_REPLY",
    "SERVER_NODE_ID",
    "NodeInfo",
    "Run",
    "act_as_server",
    "app_of",
    "check_flower",
    "is_client_fn",
    "is_last_record",
    "metrics_in",
    "name_message",
    "nodes_awaited",
    "nodes_required",
    "round_in",
    "rounds_asked",
    "run_of",
    "says_stopped",
    "why_it_ends",
]


def is_client_fn(call_next: Callable[[Message, Context], Message]) -> bool:
    """Return whether a mod is followed, after further mods, by the handler of a ``client_fn``."""
    inner: object = call_next
    while getattr(inner, "__qualname__", "").startswith("make_ffn."):
        held = dict(zip(inner.__code__.co_freevars, inner.__closure__, strict=True))  # type: ignore[attr-defined]
        inner = held["_ffn"].cell_contents
    return getattr(inner, "__qualname__", "") == "ClientApp.__init__.<locals>.ffn"


def act_as_server(run_id: int) -> None:
    """Let this process create messages as the server of a run."""
    TaskIdentity.run_id = run_id
    TaskIdentity.node_id = SERVER_NODE_ID
    TaskIdentity.task_id = 1


def run_of(run_id: int, app: str) -> Run:
    """Return a run in this process, for an app that may have no name."""
    run = Run.create_empty(run_id)
    run.fab_id = app
    return run


def app_of(run: Run) -> str:
    """Return the app of a run as ``publisher/name``, or "" if it was not packaged."""
    return run.fab_id


def name_message(message: Message, message_id: str) -> None:
    """Give a message its id, as a grid does."""
    message.metadata.__dict__["_message_id"] = message_id


def round_in(record: logging.LogRecord) -> tuple[int, int] | None:
    """Return the round that starts and the number of rounds, if this log record announces one."""
    if record.msg != "[ROUND %s/%s]" or not isinstance(record.args, tuple):
        return None
    now, rounds = (int(str(number)) for number in record.args)
    return now, rounds


def rounds_asked(record: logging.LogRecord) -> int | None:
    """Return how many rounds a strategy starts with, if this log record says so."""
    if "Number of rounds: %d" not in str(record.msg) or not isinstance(record.args, tuple):
        return None
    return int(str(record.args[0]))


def nodes_awaited(record: logging.LogRecord) -> tuple[int, int] | None:
    """Return how many nodes are connected and awaited, if this log record says so."""
    told = str(record.msg).startswith("Waiting for nodes to connect: %d connected")
    if not told or not isinstance(record.args, tuple):
        return None
    there, wanted = (int(str(number)) for number in record.args)
    return there, wanted


def nodes_required(log: str) -> int | None:
    """Return how many nodes a strategy waits for, or has waited for, by a run's log.

    >>> nodes_required("Waiting for nodes to connect: 1 connected (minimum required: 2).")
    2
    """
    found = AWAITED.findall(log)
    return int(found[-1]) if found else None


def why_it_ends(wrong: Exception) -> str:
    """Return in words why an exception ends a server app."""
    status = getattr(getattr(wrong, "response", None), "status_code", None)
    return RUN_STOPPED if status == UNAUTHORIZED else in_words(wrong)


def says_stopped(record: logging.LogRecord) -> bool:
    """Return whether this log record says that the SuperLink no longer knows the run's process.

    After ``flwr stop`` a server app finds its heartbeat refused, tries to deliver its result, and
    ends without an exception.
    """
    return "push task output" in str(record.msg) and f"'{UNAUTHORIZED} " in str(record.args)


def metrics_in(record: logging.LogRecord) -> Mapping[str, object]:
    """Return the metrics in this log record; none if it has none."""
    return (
        record.args
        if "MetricRecord" in str(record.msg) and isinstance(record.args, Mapping)
        else {}
    )


def is_last_record(record: logging.LogRecord) -> bool:
    """Return whether this log record says that the strategy has finished."""
    return str(record.msg).startswith("Strategy execution finished")
