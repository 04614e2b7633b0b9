"""Everything that we use of Flower beyond its public interface.

It can change with any release. What a release no longer has fails where it is used, and the error
says what works without it: ``flwr run`` needs less of it than the grid in this process does.
"""

import importlib
import importlib.metadata
import inspect
import logging
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, ClassVar, Self

import flwr.app
from flwr.app import Context, Message, RecordDict
from flwr.serverapp import Grid
from flwr.serverapp.strategy import Strategy
from numpy.typing import NDArray
from packaging.version import Version

from tidegate.errors import ConfigurationError
from tidegate.runs.server_log import RUN_STOPPED, in_words

if TYPE_CHECKING:
    from flwr.proto.node_pb2 import NodeInfo
    from flwr.supercore.run import Run

OLDEST_FLOWER = "1.40.0"
NEWEST_TRIED = "1.42.0"
"""Newer versions run with a warning."""

TOO_OLD = "Flower %s is installed, and Tidegate needs %s or newer: pip install --upgrade flwr"
NOT_TRIED = (
    "Flower %s is newer than %s, the newest version that this Tidegate was tried with; the run "
    "continues. If something fails, install a newer Tidegate, or flwr==%s"
)
NO_APP_NAME = (
    "Flower %s no longer gives the name of the app (Run.fab_id): the run is saved without it, so "
    "another app that starts with this folder is not refused; give an absolute folder"
)
IN_PROCESS = (
    "the grid in this process (tidegate run, LocalGrid)",
    "flwr run needs no such grid, on Flower's Simulation engine or on a deployment",
)
"""What needs most private parts of Flower, and what works without them."""

SERVER_NODE_ID = 1
"""The id that Flower gives the server side of a run."""
CLIENT_RAISED = 2
"""Flower's error code for a ClientApp that raised."""
MOD_FAILED = 6
"""Flower's error code for a mod that could not do its work."""
NO_REPLY = (3, 4, 5)
"""Flower's error codes for a message, a reply or a node that is not available."""
UNAUTHORIZED = 401
"""The SuperLink's answer to a server app whose run was stopped: its token is no longer valid."""
LOGGER = "flwr"
"""The logger of Flower and of everything that runs on it."""
LATER_ARGUMENTS = {"should_stop": "1.43"}
"""Arguments of ``Strategy.start`` that came after ``OLDEST_FLOWER``, and with which version."""

NUMPY = "numpy.ndarray"
"""What Flower calls arrays that ``np.save`` wrote."""

AWAITED = re.compile(
    r"Waiting\s+for\s+nodes\s+to\s+connect:\s+\d+\s+connected\s+\(minimum\s+required:\s+(\d+)\)"
)
"""A line of Flower's log, as ``flwr log`` shows it."""

__all__ = [
    "CLIENT_RAISED",
    "LOGGER",
    "MOD_FAILED",
    "NEWEST_TRIED",
    "NO_REPLY",
    "NUMPY",
    "OLDEST_FLOWER",
    "SERVER_NODE_ID",
    "Array",
    "NodeInfo",
    "OwnGrid",
    "Run",
    "act_as_server",
    "app_of",
    "check_flower",
    "check_later_arguments",
    "delivered",
    "ends_an_app",
    "flower_version",
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

logger = logging.getLogger(__name__)


def flower_version() -> str:
    """Return the version of Flower that is installed, a nightly build among them."""
    for name in ("flwr", "flwr-nightly"):
        with suppress(importlib.metadata.PackageNotFoundError):
            return importlib.metadata.version(name)
    return "of unknown version"


def check_flower(version: str) -> None:
    """Refuse a Flower that is too old for a run; warn of one that was not tried yet."""
    try:
        installed = Version(version)
    except ValueError:
        return
    if installed < Version(OLDEST_FLOWER):
        raise ConfigurationError(TOO_OLD % (version, OLDEST_FLOWER))
    if installed > Version(NEWEST_TRIED):
        logger.warning(NOT_TRIED, version, NEWEST_TRIED, NEWEST_TRIED)


def check_later_arguments(later: Mapping[str, Any]) -> None:
    """Refuse arguments that ``Strategy.start`` of the installed Flower does not have."""
    takes = inspect.signature(Strategy.start).parameters
    for name in later.keys() - takes.keys():
        since = LATER_ARGUMENTS.get(name)
        remedy = (
            "check its spelling, or install a newer flwr"
            if since is None
            else f"it came with Flower {since}: install flwr>={since}, or leave it out"
        )
        raise ConfigurationError(
            f"start() has no argument {name!r} in Flower {flower_version()}; {remedy}"
        )


@contextmanager
def _needed(part: str, purpose: str, otherwise: str) -> Iterator[None]:
    """Say by name what a private part of Flower is needed for, if it is not what it was."""
    try:
        yield
    except (ImportError, AttributeError, RuntimeError, TypeError, ValueError) as changed:
        raise ConfigurationError(
            f"{purpose} needs {part}, which Flower {flower_version()} does not have as "
            f"{NEWEST_TRIED} had it ({in_words(changed)}); install flwr<={NEWEST_TRIED}, or a "
            f"newer Tidegate; {otherwise}"
        ) from changed


def _class(module: str, name: str) -> Any:
    """Return a private class that other modules name as a type; ``object`` if it moved."""
    try:
        return getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError):
        return object


if not TYPE_CHECKING:
    NodeInfo = _class("flwr.proto.node_pb2", "NodeInfo")
    Run = _class("flwr.supercore.run", "Run")


class OwnGrid(Grid):
    """A grid of ours; it cannot be made once Flower asks every grid for more than it has."""

    purpose: ClassVar[tuple[str, str]] = IN_PROCESS
    """What it is, and what works without it."""

    def __new__(cls, *_: object, **__: object) -> Self:
        """Say by name what Flower asks for, before Python does without a remedy."""
        if missing := sorted(cls.__abstractmethods__):
            with _needed("a Grid with no further abstract methods", *cls.purpose):
                raise TypeError(f"Grid.{missing[0]}() is new")
        return super().__new__(cls)


class Array(flwr.app.Array):
    """Flower's array, which knows where its numbers lie.

    It has the name of Flower's own class, because Flower marks what it sends by that name.

    Args:
        array: Flower's own.
        values: its numbers, in its own bytes.
    """

    def __init__(self, array: flwr.app.Array, values: NDArray[Any]) -> None:
        self.__dict__.update(array.__dict__)  # a tenth of the time of Flower's own
        self._seen = array.data, values

    def numpy(self) -> NDArray[Any]:
        """Return the array as a NumPy array; a copy, as with Flower's own."""
        data, values = self._seen
        if data is self.data and self.stype == NUMPY:
            copied: NDArray[Any] = values.copy(order="K")
            return copied
        return super().numpy()

    def __eq__(self, other: object) -> bool:
        """Return whether two arrays are the same, this one or Flower's own."""
        if not isinstance(other, flwr.app.Array):
            return NotImplemented
        mine, its = ((array.dtype, array.shape, array.stype, array.data) for array in (self, other))
        return mine == its

    __hash__ = None  # type: ignore[assignment]


def is_client_fn(call_next: Callable[[Message, Context], Message]) -> bool:
    """Return whether a mod is followed, after further mods, by the handler of a ``client_fn``.

    False if this Flower calls mods otherwise: its own error then stands for ours.
    """
    inner: object = call_next
    while getattr(inner, "__qualname__", "").startswith("make_ffn."):
        code, closure = getattr(inner, "__code__", None), getattr(inner, "__closure__", None)
        held = dict(zip(getattr(code, "co_freevars", ()), closure or (), strict=False))
        if "_ffn" not in held:
            return False
        inner = held["_ffn"].cell_contents
    return getattr(inner, "__qualname__", "") == "ClientApp.__init__.<locals>.ffn"


def act_as_server(run_id: int) -> None:
    """Let this process create messages as the server of a run."""
    with _needed("flwr.supercore.task_identity.TaskIdentity", *IN_PROCESS):
        identity = importlib.import_module("flwr.supercore.task_identity").TaskIdentity
        identity.run_id = run_id
        identity.node_id = SERVER_NODE_ID
        identity.task_id = 1
        sent = Message(RecordDict(), SERVER_NODE_ID + 1, "train").metadata
        if (sent.run_id, sent.src_node_id) != (run_id, SERVER_NODE_ID):
            raise ValueError(f"a message comes from node {sent.src_node_id} of run {sent.run_id}")


def run_of(run_id: int, app: str) -> "Run":
    """Return a run in this process, for an app that may have no name."""
    with _needed("flwr.supercore.run.Run.create_empty", *IN_PROCESS):
        run: Run = importlib.import_module("flwr.supercore.run").Run.create_empty(run_id)
        run.fab_id = app
    return run


def app_of(run: "Run") -> str:
    """Return the app of a run as ``publisher/name``, or "" if it was not packaged.

    Only guards against mistakes need it, so a run continues without it.
    """
    try:
        return run.fab_id
    except AttributeError:
        logger.warning(NO_APP_NAME, flower_version())
        return ""


def name_message(message: Message, message_id: str) -> None:
    """Give a message its id, as a grid does."""
    with _needed("Metadata._message_id", *IN_PROCESS):
        message.metadata.__dict__["_message_id"] = message_id
        if message.metadata.message_id != message_id:
            raise ValueError(f"the id of a message stays {message.metadata.message_id!r}")


def delivered(message: Message, content: RecordDict) -> Message:
    """Return a message as a client gets it, with content of its own."""
    with _needed("Message(content, metadata=...)", *IN_PROCESS):
        return Message(content, metadata=message.metadata)  # type: ignore[call-overload, no-any-return]


def round_in(record: logging.LogRecord) -> tuple[int, int] | None:
    """Return the round that starts and the number of rounds, if this log record announces one."""
    if record.msg != "[ROUND %s/%s]" or not isinstance(record.args, tuple):
        return None
    round_number, rounds = (int(str(number)) for number in record.args)
    return round_number, rounds


def rounds_asked(record: logging.LogRecord) -> int | None:
    """Return how many rounds a strategy starts with, if this log record says so."""
    if "Number of rounds: %d" not in str(record.msg) or not isinstance(record.args, tuple):
        return None
    return int(str(record.args[0]))


def nodes_awaited(record: logging.LogRecord) -> tuple[int, int] | None:
    """Return how many nodes are connected and awaited, if this log record says so."""
    waits = str(record.msg).startswith("Waiting for nodes to connect: %d connected")
    if not waits or not isinstance(record.args, tuple):
        return None
    there, wanted = (int(str(number)) for number in record.args[:2])
    return there, wanted


def nodes_required(log: str) -> int | None:
    """Return how many nodes a strategy waits for, or has waited for, by a run's log.

    >>> nodes_required("Waiting for nodes to connect: 1 connected (minimum required: 2).")
    2
    """
    numbers = AWAITED.findall(log)
    return int(numbers[-1]) if numbers else None


def why_it_ends(wrong: Exception) -> str:
    """Return in words why an exception ends a server app."""
    status = getattr(getattr(wrong, "response", None), "status_code", None)
    return RUN_STOPPED if status == UNAUTHORIZED else in_words(wrong)


def ends_an_app(wrong: Exception) -> bool:
    """Return whether this is how Flower ends an app, such as for replies that are not alike."""
    return any(kind.__name__ == "AppExitException" for kind in type(wrong).__mro__)


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
