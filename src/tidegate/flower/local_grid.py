"""A grid in this process: it calls the ClientApp directly, with no Ray and no other process.

The app is the one that runs on Flower's Simulation and Deployment engines, unchanged.
"""

import itertools
import logging
import traceback
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

from flwr.app import ConfigRecord, Context, Error, Message, RecordDict, UserConfigValue
from flwr.clientapp import ClientApp
from flwr.serverapp import ServerApp

from tidegate._internal.arguments import shown
from tidegate.client.device_file import OWNER_ONLY_FOLDER, DeviceFile
from tidegate.errors import ConfigurationError
from tidegate.flower.flower_internals import (
    CLIENT_RAISED,
    SERVER_NODE_ID,
    OwnGrid,
    Run,
    act_as_server,
    delivered,
    name_message,
    run_of,
)
from tidegate.flower.node_buffer import FOLDER, IN_MEMORY, keep_open
from tidegate.flower.records import asks_who
from tidegate.flower.users_trace import users_trace
from tidegate.server.fleet_round import FleetRound

BUFFERS = "clients.sqlite"
"""The file of all buffers of a run in this process."""
NODE_FAILED = "node %s failed: %s"
NO_MESSAGE = (
    "the app's %s function returned %s; it must return a Message, such as "
    "Message(RecordDict({'metrics': metrics}), reply_to=message)"
)
LONGEST_REASON = 500
"""Characters of an error that a server repeats where a node does not introduce itself."""

logger = logging.getLogger(__name__)


@dataclass
class PlayedRun:
    """A run of ``AdmissionControl`` on a grid in this process, during and after play."""

    name: str
    folder: Path | None
    """Where it is saved."""
    rounds_before: int
    """Rounds of earlier starts."""
    rounds: list[FleetRound]
    """What each round did, including these."""
    in_vain: int = 0
    """The last rounds of this start, in which no client's model was used."""
    has_ended: bool = False
    """Whether all of its rounds were played."""
    metrics: Mapping[str, Any] = field(default_factory=dict)
    """What the server measured of the last model."""


@dataclass
class Answers:
    """What happened on a grid: messages to clients by type, such as ``train``, and runs."""

    sent: Counter[str] = field(default_factory=Counter)
    failed: Counter[str] = field(default_factory=Counter)
    errors: list[str] = field(default_factory=list)
    """With which clients failed, each once."""
    runs: list[PlayedRun] = field(default_factory=list)

    def note(self, kind: str, error: str) -> None:
        """Note that a client failed to answer a message."""
        self.failed[kind] += 1
        if error not in self.errors:
            self.errors.append(error)


class LocalGrid(OwnGrid):
    """A grid whose nodes are function calls in this process.

    Nodes keep their buffers in the ``tidegate-folder`` of their node-config or run-config;
    otherwise beside the run, if its server saves it; otherwise in memory.
    """

    def __init__(
        self,
        client_app: ClientApp,
        node_configs: Sequence[Mapping[str, UserConfigValue]],
        run_config: Mapping[str, UserConfigValue] | None = None,
        *,
        run_id: int = 1,
        app: str = "",
        answers: Answers | None = None,
    ) -> None:
        self._client_app = client_app
        config = dict(run_config or {})
        folder = config.get(FOLDER) or IN_MEMORY
        self._contexts = {
            node_id: Context(
                run_id=run_id,
                node_id=node_id,
                node_config={FOLDER: folder, **node_config},
                state=RecordDict(),
                run_config=config,
            )
            for node_id, node_config in enumerate(node_configs, start=SERVER_NODE_ID + 1)
        }
        self._file = DeviceFile(None, is_shared=True)
        for context in self._contexts.values():
            if context.node_config[FOLDER] == IN_MEMORY:
                keep_open(context, self._file)
        is_placed = bool(config.get(FOLDER)) or any(FOLDER in node for node in node_configs)
        self._movable = [] if is_placed else list(self._contexts.values())
        """Contexts of nodes whose buffers may be kept beside the run."""
        self._message_ids = map(str, itertools.count(1))
        self._replies: dict[str, Message] = {}
        self._failures: set[str] = set()
        self.answers = Answers() if answers is None else answers
        self.set_run(run_of(run_id, app))

    @property
    def num_nodes(self) -> int:
        """Number of nodes, online or not; it never grows."""
        return len(self._contexts)

    def keep_buffers(self, folder: Path) -> None:
        """Keep all buffers in one file in this folder, unless a config names another folder."""
        if not self._movable:
            return
        folder.mkdir(mode=OWNER_ONLY_FOLDER, parents=True, exist_ok=True)
        self._file = DeviceFile(folder / BUFFERS, is_shared=True)
        for context in self._movable:
            context.node_config[FOLDER] = str(folder)  # for copies of the context
            keep_open(context, self._file)

    def sync_buffers(self) -> None:
        """Have on disk what clients have changed: before the server's books rely on it."""
        self._file.sync()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def set_run(self, run: Run) -> None:
        """Set the run that the grid serves."""
        self._run = run
        act_as_server(run.run_id)

    @property
    def run(self) -> Run:
        """The run that the grid serves."""
        return self._run

    def create_message(
        self,
        content: RecordDict,
        message_type: str,
        dst_node_id: int,
        group_id: str,
        ttl: float | None = None,
    ) -> Message:
        """Create a message; Flower asks every grid for this."""
        return Message(content, dst_node_id, message_type, ttl=ttl, group_id=group_id)

    def get_node_ids(self) -> list[int]:
        """Return the ids of all nodes."""
        return list(self._contexts)

    def push_messages(self, messages: Iterable[Message]) -> list[str]:
        """Call the ClientApp for each message, one after another."""
        message_ids = []
        for message in messages:
            message_id = self._name(message)
            self._replies[message_id] = self._answer(message)
            message_ids.append(message_id)
        return message_ids

    def pull_messages(self, message_ids: Iterable[str]) -> list[Message]:
        """Return the replies to these messages, each once."""
        return [
            self._replies.pop(message_id)
            for message_id in message_ids
            if message_id in self._replies
        ]

    def send_and_receive(
        self, messages: Iterable[Message], *, timeout: float | None = None
    ) -> list[Message]:
        """Send messages and return their replies; a function call needs no timeout."""
        return self.pull_messages(self.push_messages(messages))

    def one_by_one(self, messages: Iterable[Message]) -> Iterator[Message]:
        """Yield replies one at a time; each is computed when it is taken."""
        sent = list(messages)
        for message in sent:
            self._name(message)
        return map(self._answer, sent)

    def _name(self, message: Message) -> str:
        message_id = next(self._message_ids)
        name_message(message, message_id)
        return message_id

    def _answer(self, message: Message) -> Message:
        """Return the ClientApp's reply; if it raises, an error reply like Flower's."""
        arrived = delivered(message, _own_copy(message.content))
        node_id = message.metadata.dst_node_id
        kind = message.metadata.message_type.partition(".")[0]
        kind = "introduction" if asks_who(message.content) else kind
        self.answers.sent[kind] += 1
        try:
            reply = self._client_app(arrived, self._contexts[node_id])
            if not isinstance(reply, Message):
                raise ConfigurationError(NO_MESSAGE % (kind, shown(reply)))  # noqa: TRY301 - as if the app had raised it
        except Exception as failure:
            reason = f"{type(failure).__name__}: {failure}"
            self.answers.note(kind, reason)
            new = self._is_new(failure)
            level = logging.ERROR if new else logging.INFO
            trace = users_trace(failure) if new else None
            logger.log(level, NODE_FAILED, node_id, reason, exc_info=trace)
            return Message(Error(code=CLIENT_RAISED, reason=reason), reply_to=message)
        if reply.has_error():
            self.answers.note(kind, reply.error.reason or "an error without a reason")
        return reply

    def _is_new(self, failure: Exception) -> bool:
        """Note where a failure was raised; a line of code is shown with its traceback only once."""
        frames = traceback.walk_tb(failure.__traceback__)
        lines = [f"{frame.f_code.co_filename}:{line}" for frame, line in frames]
        place = " ".join([type(failure).__name__, *lines])
        seen = place in self._failures
        self._failures.add(place)
        return not seen


def _own_copy(content: RecordDict) -> RecordDict:
    """Copy content that a client may change; arrays are shared."""
    own = content.copy()
    for key, record in content.items():
        if isinstance(record, ConfigRecord):
            own[key] = record.copy()
    return own


def run_in_process(
    server_app: ServerApp,
    client_app: ClientApp,
    *,
    num_clients: int,
    run_config: Mapping[str, UserConfigValue] | None = None,
    app: str = "",
    answers: Answers | None = None,
) -> Answers:
    """Run a Flower app in this process, with nodes configured as in Flower's simulation.

    Args:
        server_app: the ServerApp.
        client_app: the ClientApp.
        num_clients: number of nodes; each gets its partition-id and num-partitions.
        run_config: of the server and all nodes.
        app: the app's name, ``publisher/name``, if it has one.
        answers: is filled while the app runs, for whoever follows it; by default a new one.

    Returns:
        How many messages clients were sent, how many failed, and which runs were played.
    """
    node_configs = [
        {"partition-id": number, "num-partitions": num_clients} for number in range(num_clients)
    ]
    grid = LocalGrid(client_app, node_configs, run_config, app=app, answers=answers)
    context = Context(
        run_id=grid.run.run_id,
        node_id=SERVER_NODE_ID,
        node_config={},
        state=RecordDict(),
        run_config=dict(run_config or {}),
    )
    with grid:
        server_app(grid, context)
    return grid.answers
