"""A node's buffer in a run: its place, its name, and the gate in front of it."""

import logging
import weakref
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from flwr.app import Context

from tidegate._internal.arguments import check_function, check_kind, check_whole_number
from tidegate.client.buffer_files import users_folder
from tidegate.client.buying import Acquire, Subject
from tidegate.client.codec import SampleCodec
from tidegate.client.device_file import OWNER_ONLY_FOLDER, DeviceFile, store_path
from tidegate.client.gate import Gate, check_one_source
from tidegate.client.limits import duration
from tidegate.client.store import Store
from tidegate.client.streams import Indexed, IndexedStream, Stream
from tidegate.client.supplier import Supplier
from tidegate.errors import ConfigurationError
from tidegate.selection import Selection
from tidegate.wire import LARGEST_CAPACITY, Address

FOLDER = "tidegate-folder"
"""Key of node-config, or else of run-config, that says where a client keeps its buffer."""
IN_MEMORY = ":memory:"
"""A value of ``tidegate-folder``: the buffer lives as long as its process, for engines that keep
theirs."""
_FILES: dict[int, DeviceFile] = {}
"""By the id of a context that lives in this process as long as its run, the file that it shares
with the others; copies are not among them."""
NAME = "tidegate-client"
"""Key of node-config that names a node which is not registered with a name."""

NOT_DATA = (str, bytes, tuple, Mapping)
"""Types with a length and an index whose items are not samples."""

STREAMS = ("take", "seek", "cursor")
"""Attributes of every stream."""
OPENS = "such as lambda context: data, which returns a node's data set or stream"


NOT_RANKED = (
    "ClientGate has a selection and no worth function, so each client chooses among its candidates "
    "at random; pass worth=... to rank them"
)

logger = logging.getLogger(__name__)


@dataclass
class _Open:
    """What stays open for a node of this process; its gate reads the stream on where it was."""

    whose: tuple[DeviceFile, str, str, int]
    """The file, the run, the client and its capacity."""
    store: Store
    gate: Gate | None = None


def tell_if_random(selection: object, *, is_ranked: bool) -> None:
    """Warn of a selection that has nothing to choose by."""
    if isinstance(selection, Selection) and selection.random_share < 1 and not is_ranked:
        logger.warning(NOT_RANKED)


class NodeBuffers:
    """Opens the buffer of the node that a context belongs to."""

    def __init__(  # noqa: PLR0913 - as many as a gate has parts
        self,
        open_stream: Callable[[Context], Stream | Indexed],
        buffer_capacity: int | Callable[[Context], int],
        acquire: Acquire | None,
        codec: SampleCodec | None,
        selection: Selection | Callable[[Context], Selection | None] | None,
        *,
        supplier: Callable[[Context], Supplier | None] | None = None,
        give_up_after: int | None = None,
        keep_at_most: str | None = None,
        subject: Subject | None = None,
    ) -> None:
        check_function("open_stream", open_stream, ("a context",), OPENS)
        if callable(buffer_capacity):
            remedy = "such as lambda context: 100, or give a number"
            check_function("buffer_capacity", buffer_capacity, ("a context",), remedy)
        else:
            _check_capacity("buffer_capacity", buffer_capacity)
        if acquire is not None:
            remedy = "it returns the sample to store"
            check_function("acquire", acquire, ("a sample", "its key"), remedy)
        if callable(selection):
            remedy = "it returns a Selection, or None for samples as they come"
            check_function("selection", selection, ("a context",), remedy)
        else:
            _check_selection("selection", selection)
        check_one_source(acquire, supplier)
        if supplier is not None:
            remedy = "it returns the node's supplier (tidegate.client.supplier.Supplier)"
            check_function("supplier", supplier, ("a context",), remedy)
        if give_up_after is not None:
            remedy = "leave it out to wait as long as it takes"
            check_whole_number("give_up_after", give_up_after, remedy=remedy)
        if keep_at_most is not None:
            duration(keep_at_most)
        if subject is not None:
            remedy = "it returns a text, whom or what the sample is about"
            check_function("subject", subject, ("a sample",), remedy)
        self._subject = subject
        self._supplier = supplier
        self._give_up_after = give_up_after
        self._keep_at_most = keep_at_most
        self._open_stream = open_stream
        self._buffer_capacity = buffer_capacity
        self._acquire = acquire
        self._codec = codec
        self._selection = selection
        self._open: dict[int, _Open] = {}
        """By the id of a node's context, as long as the context lives."""

    @contextmanager
    def store(self, address: Address, context: Context) -> Iterator[Store]:
        """Open the node's buffer in a run; a file is open only while a message is handled."""
        capacity = self._capacity(address.client, context)
        folder = buffer_folder(context)
        if folder is None or id(context) in _FILES:
            yield self._opened(address, context, capacity).store
            return
        path = store_path(folder, address.run, address.client)
        path.parent.mkdir(mode=OWNER_ONLY_FOLDER, parents=True, exist_ok=True)
        store = Store(path, address.run, address.client, capacity, self._codec)
        try:
            yield store
        finally:
            store.close()

    def gate(self, store: Store, context: Context) -> Gate:
        """Return the gate of an open buffer."""
        opened = self._open.get(id(context))
        if opened is None or opened.store is not store:
            return self._new_gate(store, context)
        if opened.gate is None:
            opened.gate = self._new_gate(store, context)
        return opened.gate

    def selection(self, context: Context) -> Selection | None:
        """Return how the node chooses among candidates; None if it does not."""
        choose = self._selection
        if not callable(choose):
            return choose
        selection = choose(context)
        _check_selection("the result of selection", selection)
        return selection

    def _new_gate(self, store: Store, context: Context) -> Gate:
        stream = as_stream(self._open_stream(context))
        supplier = None if self._supplier is None else self._supplier(context)
        selection = self.selection(context)
        return Gate(
            store,
            stream,
            self._acquire,
            selection,
            supplier,
            self._give_up_after,
            self._keep_at_most,
            self._subject,
        )

    def _opened(self, address: Address, context: Context, capacity: int) -> _Open:
        """Return what stays open for a node: one buffer, for the run that it serves."""
        run, client, place = address.run, address.client, id(context)
        file, opened = _FILES[place], self._open.get(place)
        if opened is None:
            weakref.finalize(context, self._open.pop, place, None)
        whose = file, run, client, capacity
        if opened is None or opened.whose != whose:
            opened = _Open(whose, Store(*whose, self._codec))
            self._open[place] = opened
        return opened

    def _capacity(self, client: str, context: Context) -> int:
        setting = self._buffer_capacity
        if not callable(setting):
            return setting  # checked when the gate was made
        capacity = setting(context)
        _check_capacity(f"buffer_capacity of {client}", capacity)
        return capacity


def _check_capacity(name: str, capacity: object) -> None:
    remedy = "a client that stores nothing has nothing to train on"
    check_whole_number(name, capacity, most=LARGEST_CAPACITY, remedy=remedy)


def _check_selection(name: str, value: object) -> None:
    if value is not None:
        example = "such as Selection(candidates=20, backlog=100), or None for samples as they come"
        check_kind(name, value, Selection, example)


def keep_open(context: Context, file: DeviceFile) -> None:
    """Let a node keep its buffer in a file that is open: its context lives as long as its run."""
    place = id(context)
    if place not in _FILES:
        weakref.finalize(context, _FILES.pop, place, None)
    _FILES[place] = file


def buffer_folder(context: Context) -> Path | None:
    """Return where a node keeps its samples; None if that is a file which is open already.

    The node-config comes first, then the run-config, then a folder of the user that the node runs
    as: ``$XDG_STATE_HOME/tidegate``, or ``~/.local/state/tidegate``.
    """
    folder = context.node_config.get(FOLDER) or context.run_config.get(FOLDER)
    if folder == IN_MEMORY:
        if id(context) not in _FILES:
            raise ConfigurationError(
                f"{FOLDER} = {IN_MEMORY!r} works only under `tidegate run`: every other engine "
                "handles each message in a new process or copy, and would lose the samples after "
                f"each round. Set {FOLDER} to a folder, or leave it out"
            )
        return None
    if folder:
        return Path(str(folder)).expanduser()
    return users_folder()


def as_stream(opened: Any) -> Stream:
    """Return a stream unchanged; wrap a data set with a length and an index as a stream.

    A tuple is not taken as a data set: functions that load several data sets return one.
    """
    missing = [name for name in STREAMS if not hasattr(opened, name)]
    if not missing:
        stream: Stream = opened
        return stream
    indexed = hasattr(opened, "__getitem__") and hasattr(opened, "__len__")
    if indexed and not isinstance(opened, NOT_DATA) and not hasattr(opened, "iloc"):
        return IndexedStream(opened)  # arrays and Hugging Face's data sets have a take, too
    returned = f"open_stream returned a {type(opened).__name__}"
    if "take" not in missing and not indexed:
        raise ConfigurationError(
            f"{returned}, which has no {' and no '.join(missing)}; a stream has "
            f"{', '.join(STREAMS)} (tidegate.client.streams.Stream)"
        )
    raise ConfigurationError(
        f"{returned}; it must return a stream (tidegate.client.streams) or a data set of which "
        "each item is one sample, such as a list: list(zip(x, y)) for arrays x and y, "
        "loader.dataset for a DataLoader"
    )


def own_name(question: Address, context: Context) -> str:
    """Return a node's own name, for a server that has no name for it."""
    config = context.node_config
    if config.get(NAME):
        return str(config[NAME])
    if "partition-id" in config:
        return f"partition-{config['partition-id']}"
    if question.fingerprint:
        return question.fingerprint
    raise ConfigurationError(
        "this node has no name: register its SuperNode with --name, or give it "
        f"--node-config '{NAME}=\"site-0\"'; node ids do not survive a restart"
    )
