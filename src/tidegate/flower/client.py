"""What a ClientApp adds: a gate in front of its training function.

gate = ClientGate(app, open_stream, buffer_capacity=10)

@app.train()
def train(message, context):
    with gate.round(message, context) as now:
        ...  # train on now.samples
        return now.reply(arrays, {"train_loss": loss})
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

from tidegate.client.codec import SampleCodec
from tidegate.client.gate import Acquire, Gate
from tidegate.client.sqlite_store import SqliteStore, store_path
from tidegate.client.store import BooksMovedError, MemoryStore, Store, check_meant_for
from tidegate.client.streams import Stream
from tidegate.errors import ConfigurationError
from tidegate.flower.records import QUERY, attach, expect
from tidegate.wire import Address, Introduction, Order, Receipt

FOLDER = "tidegate-folder"
"""Key of node-config, or else of run-config, that says where a client keeps its buffer."""
IN_MEMORY = ":memory:"
"""In place of a folder: the buffer is gone with its process; for engines that keep theirs."""
OWNER_ONLY_FOLDER = 0o700
NAME = "tidegate-client"
"""Key of node-config that names a node which is not registered by name."""


@dataclass(frozen=True)
class GatedRound:
    """One round at a client, after its order was applied."""

    message: Message
    receipt: Receipt
    gate: Gate

    @cached_property
    def samples(self) -> list[Any]:
        """What the client trains on, oldest first; none if it holds nothing yet."""
        return self.gate.samples()

    def reply(
        self,
        arrays: ArrayRecord | None = None,
        metrics: Mapping[str, int | float | list[int] | list[float]] | None = None,
    ) -> Message:
        """The reply to the server: the model, the metrics and the receipt.

        A client without samples has no model to send: ``reply()`` is then enough.
        """
        content = RecordDict()
        if arrays is not None:
            content["arrays"] = arrays
        content["metrics"] = MetricRecord(
            {**(metrics or {}), "num-examples": self.receipt.occupancy}
        )
        attach(content, self.receipt)
        return Message(content, reply_to=self.message)


class ClientGate:
    """Applies the server's orders, keeps the buffer, and gives receipts.

    Args:
        app: the ClientApp; it also learns to introduce itself to the server.
        open_stream: fresh samples for a node; ``context.node_config`` says which.
        buffer_capacity: B_m, samples that this node stores at most; a number, or a function of the
            node's context.
        acquire: does what costs, once for each admitted sample; see ``tidegate.client.gate``.
        codec: how samples are stored; arrays, numbers, texts and nests of them by default.
    """

    def __init__(
        self,
        app: ClientApp,
        open_stream: Callable[[Context], Stream],
        buffer_capacity: int | Callable[[Context], int],
        *,
        acquire: Acquire | None = None,
        codec: SampleCodec | None = None,
    ) -> None:
        self._open_stream = open_stream
        self._buffer_capacity = buffer_capacity
        self._acquire = acquire
        self._codec = codec
        self._in_memory: dict[tuple[str, str], MemoryStore] = {}
        self._gates: dict[Store, Gate] = {}
        _, action = QUERY.split(".")
        app.query(action)(self._introduce)

    @contextmanager
    def round(self, message: Message, context: Context) -> Iterator[GatedRound]:
        """Apply the order that a message carries, once; what it did is on disk before training."""
        order, address = expect(message.content, Order), expect(message.content, Address)
        with self._store(address, context) as store:
            check_meant_for(store.books(), address)
            gate = self._gate(store, context)
            try:
                receipt = gate.apply(order, address.skip)
            except BooksMovedError:  # another process came first: its receipt is ours
                receipt = gate.apply(order, address.skip)
            yield GatedRound(message, receipt, gate)

    def _introduce(self, message: Message, context: Context) -> Message:
        """Tell the server who this node is, and the last it did in this run."""
        asked = expect(message.content, Address)
        address = Address(run=asked.run, client=asked.client or _own_name(asked, context))
        with self._store(address, context) as store:
            store.void(asked.void_round)
            books = store.books()
            answer = store.answer(books.last_round)
        introduction = Introduction(
            run=books.run,
            client=books.client,
            buffer_capacity=books.buffer_capacity,
            buffer_id=books.buffer_id,
            void_round=books.void_round,
        )
        newest = [] if answer is None else [answer[1]]
        content = RecordDict()
        attach(content, introduction, *newest)
        return Message(content, reply_to=message)

    @contextmanager
    def _store(self, address: Address, context: Context) -> Iterator[Store]:
        """The node's buffer in this run; a file is open only while a message is handled."""
        folder = context.node_config.get(FOLDER) or context.run_config.get(FOLDER)
        if not folder:
            raise ConfigurationError(
                f"{address.client} does not know where to keep its buffer: give its SuperNode "
                f"--node-config '{FOLDER}=\"/var/lib/tidegate\"', or all nodes of one machine "
                f"the same {FOLDER} in the run-config"
            )
        capacity = self._buffer_capacity
        if callable(capacity):
            capacity = capacity(context)
        if capacity < 1:
            raise ConfigurationError(
                f"buffer_capacity of {address.client} must be at least 1, got {capacity}; a client "
                "that stores nothing has nothing to train on"
            )
        run, client = address.run, address.client
        if folder == IN_MEMORY:
            if (run, client) not in self._in_memory:
                self._in_memory[run, client] = MemoryStore(run, client, capacity, self._codec)
            yield self._in_memory[run, client]
            return
        path = store_path(Path(str(folder)).expanduser(), run, client)
        path.parent.mkdir(mode=OWNER_ONLY_FOLDER, parents=True, exist_ok=True)
        store = SqliteStore(path, run, client, capacity, self._codec)
        try:
            yield store
        finally:
            store.close()

    def _gate(self, store: Store, context: Context) -> Gate:
        """The gate of a store; in one process it is kept, with its stream."""
        gate = self._gates.get(store)
        if gate is None:
            gate = Gate(store, self._open_stream(context), self._acquire)
            if isinstance(store, MemoryStore):
                self._gates[store] = gate
        return gate


def _own_name(asked: Address, context: Context) -> str:
    """What a node calls itself where the server has no name for it."""
    config = context.node_config
    if config.get(NAME):
        return str(config[NAME])
    if "partition-id" in config:
        return f"partition-{config['partition-id']}"
    if asked.fingerprint:
        return asked.fingerprint
    raise ConfigurationError(
        "this node has no name: register its SuperNode with --name, or give it "
        f"--node-config '{NAME}=\"site-0\"'; node ids do not survive a restart"
    )
