"""A node's buffer in a run: its place, its name, and the gate in front of it."""

import logging
import reprlib
import weakref
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias, TypeVar

from flwr.app import Context

from tidegate._internal.arguments import (
    check_function,
    check_kind,
    check_number,
    check_whole_number,
    shown,
)
from tidegate.client.beginning import earlier_samples
from tidegate.client.buffer_files import users_folder
from tidegate.client.codec import SampleCodec
from tidegate.client.device_file import OWNER_ONLY_FOLDER, DeviceFile, store_path
from tidegate.client.gate import Gate
from tidegate.client.store import Store
from tidegate.client.streams import Indexed, IndexedStream, Stream
from tidegate.client.supplier import Supplier
from tidegate.errors import ConfigurationError, SupplierError, TidegateError
from tidegate.selection import Selection
from tidegate.wire import LARGEST_AMOUNT, LARGEST_CAPACITY, Address

FOLDER = "tidegate-folder"
"""Key of node-config, or else of run-config, that says where a client keeps its buffer."""
IN_MEMORY = ":memory:"
"""A value of ``tidegate-folder``: the buffer lives as long as its process, for engines that keep
theirs."""
_FILES: dict[int, DeviceFile] = {}
"""By the id of a context that lives in this process as long as its run, the file that it shares
with the others; copies are not among them."""
AS_THEY_COME = "tidegate-as-they-come"
"""Key of run-config: true makes every node take samples as they come, and let the oldest go,
whatever its gate says; ``tidegate run --beside`` compares with that."""
NAME = "tidegate-client"
"""Key of node-config that names a node which is not registered with a name."""

NOT_DATA = (str, bytes, tuple, Mapping)
"""Types with a length and an index whose items are not samples."""

STREAMS = ("take", "seek", "cursor")
"""Attributes of every stream."""
Setting = TypeVar("Setting")
OfNode: TypeAlias = Setting | Callable[[Context], Setting]
"""A setting of all nodes, or a function of the node's context."""
OF_NODE = "it returns the setting of a node; or give one for all"
RETURNS_SUPPLIER = "it returns the node's supplier (tidegate.client.supplier.Supplier)"
PARTS = ("ask", "collect", "cancel", "complete")
"""Methods of every supplier."""
OPENS = "such as lambda context: data, which returns a node's data set or stream"


NOT_RANKED = (
    "ClientGate has a selection and no worth function, so each client chooses among its candidates "
    "at random; pass worth=... to rank them"
)

logger = logging.getLogger(__name__)


@dataclass
class _Open:
    """What stays open for a node of this process; its gate reads the stream on where it was."""

    whose: tuple[DeviceFile, str, str, int, int]
    """The file, the run, the client, its capacity, and how many samples train."""
    store: Store
    gate: Gate | None = None


def tell_if_random(selection: object, *, is_ranked: bool) -> None:
    """Warn of a selection that has nothing to choose by."""
    if isinstance(selection, Selection) and selection.random_share < 1 and not is_ranked:
        logger.warning(NOT_RANKED)


class NodeBuffers:
    """Opens the buffer of the node that a context belongs to."""

    def __init__(  # noqa: PLR0913 - as many as may differ by node, or belong to a buffer
        self,
        open_stream: Callable[[Context], Stream | Indexed],
        buffer_capacity: OfNode[int],
        *,
        train_on: OfNode[int] | None,
        begin_with: str | Path | None,
        keep_bought: bool,
        spend_at_most: OfNode[float | None],
        codec: SampleCodec | None,
        selection: OfNode[Selection | None],
        supplier: Callable[[Context], Supplier | None] | None,
        make_gate: Callable[..., Gate],
    ) -> None:
        check_function("open_stream", open_stream, ("a context",), OPENS)
        for name, setting, check in (
            ("buffer_capacity", buffer_capacity, _check_capacity),
            ("train_on", train_on, _check_training),
            ("spend_at_most", spend_at_most, _check_ceiling),
            ("selection", selection, _check_selection),
        ):
            if callable(setting):
                check_function(name, setting, ("a context",), OF_NODE)
            else:
                check(name, setting)
        _check_beginning("begin_with", begin_with)
        if supplier is not None:
            check_function("supplier", supplier, ("a context",), RETURNS_SUPPLIER)
        self._open_stream = named("open_stream", open_stream)
        self._buffer_capacity, self._train_on = buffer_capacity, train_on
        self._spend_at_most = spend_at_most
        self._begin_with, self._keep_bought = begin_with, keep_bought
        self._codec = codec
        self._selection = selection
        self._supplier = supplier
        self._make_gate = make_gate
        self._open: dict[int, _Open] = {}
        """By the id of a node's context, as long as the context lives."""

    @contextmanager
    def store(self, address: Address, context: Context) -> Iterator[Store]:
        """Open the node's buffer in a run; a file is open only while a message is handled."""
        sizes = self._sizes(context)
        folder = buffer_folder(context)
        if folder is None or id(context) in _FILES:
            yield self._opened(address, context, *sizes).store
            return
        path = store_path(folder, address.run, address.client)
        try:
            path.parent.mkdir(mode=OWNER_ONLY_FOLDER, parents=True, exist_ok=True)
        except OSError as wrong:
            raise SupplierError(
                "this node",
                f"cannot keep its samples in {path.parent} ({wrong.strerror}); let its user write "
                f"there, or set {FOLDER} to another folder",
            ) from None
        capacity, train_on = sizes
        store = self._new_store(path, folder, address, capacity, train_on)
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
        if context.run_config.get(AS_THEY_COME):
            return None
        return _of_node("selection", self._selection, context, _check_selection)

    def _new_gate(self, store: Store, context: Context) -> Gate:
        supplier = None if self._supplier is None else named("supplier", self._supplier)(context)
        for name in PARTS if supplier is not None else ():
            if not callable(getattr(supplier, name, None)):
                raise ConfigurationError(
                    f"supplier returned {shown(supplier)}, which has no {name}(); "
                    f"{RETURNS_SUPPLIER}, or None"
                )
        ungrouped = {"group": None} if context.run_config.get(AS_THEY_COME) else {}
        return self._make_gate(
            store,
            as_stream(self._open_stream(context)),
            selection=self.selection(context),
            keep_bought=self._keep_bought,
            supplier=supplier,
            spend_at_most=_of_node("spend_at_most", self._spend_at_most, context, _check_ceiling),
            **ungrouped,
        )

    def _new_store(
        self,
        file: Path | DeviceFile,
        folder: Path | None,
        address: Address,
        capacity: int,
        train_on: int,
    ) -> Store:
        run, client, begin_with = address.run, address.client, self._begin_with
        return Store(
            *(file, run, client, capacity, self._codec),
            train_on=train_on,
            begin_with=partial(earlier_samples, begin_with, folder, run, client),
            keeps_bought=self._keep_bought,
        )

    def _opened(self, address: Address, context: Context, capacity: int, train_on: int) -> _Open:
        """Return what stays open for a node: one buffer, for the run that it serves."""
        run, client, place = address.run, address.client, id(context)
        file, opened = _FILES[place], self._open.get(place)
        if opened is None:
            weakref.finalize(context, self._open.pop, place, None)
        whose = file, run, client, capacity, train_on
        if opened is None or opened.whose != whose:
            folder = None if file.is_in_memory else file.path.parent
            opened = _Open(whose, self._new_store(file, folder, address, capacity, train_on))
            self._open[place] = opened
        return opened

    def _sizes(self, context: Context) -> tuple[int, int]:
        """Return how many samples a node stores, and how many of them train; 0 for all."""
        capacity = _of_node("buffer_capacity", self._buffer_capacity, context, _check_capacity)
        train_on = _of_node("train_on", self._train_on, context, _check_training) or 0
        if train_on > capacity:
            raise ConfigurationError(
                f"train_on is {train_on}, but buffer_capacity is {capacity}: a node cannot train "
                "on more samples than it stores; raise buffer_capacity, or leave out train_on"
            )
        return capacity, train_on % capacity


def _of_node(
    name: str, setting: OfNode[Setting], context: Context, check: Callable[[str, object], None]
) -> Setting:
    """Return a setting that may differ by node, for this one."""
    if not callable(setting):
        return setting  # checked when the gate was made
    value: Setting = named(name, setting)(context)
    check(f"the result of {name}", value)
    return value


def named(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap a function of the user's: whatever it raises says which function it was."""

    def call(*arguments: Any) -> Any:
        try:
            return function(*arguments)
        except TidegateError:
            raise
        except Exception as failure:
            reason = f"raised {type(failure).__name__}: {failure}"
            raise SupplierError(name, reason) from failure

    return call


def _check_capacity(name: str, capacity: object) -> None:
    remedy = "a client that stores nothing has nothing to train on"
    check_whole_number(name, capacity, most=LARGEST_CAPACITY, remedy=remedy)


def _check_training(name: str, train_on: object) -> None:
    if train_on is not None:
        remedy = "leave it out to train on all that is stored"
        check_whole_number(name, train_on, most=LARGEST_CAPACITY, remedy=remedy)


def _check_ceiling(name: str, amount: object) -> None:
    if amount is not None:
        limit = f"a number from 0 to {LARGEST_AMOUNT:g}, or None for no ceiling"
        check_number(name, amount, limit, lambda given: 0 <= given <= LARGEST_AMOUNT)


def _check_beginning(name: str, value: object) -> None:
    if not isinstance(value, str | Path | None):
        raise ConfigurationError(
            f"{name} must be a run's name, 'newest', a Path or None, got {reprlib.repr(value)}"
        )


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
