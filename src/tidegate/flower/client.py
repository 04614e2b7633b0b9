"""What a ClientApp adds: a gate, as a Flower mod, in front of its training function.

gate = ClientGate(load_data, buffer_capacity=100)
app = ClientApp(mods=[gate])

@app.train()
def train(message, context):
    loader = DataLoader(gate.samples(context))
    ...  # train, and reply as before
"""

import logging
import reprlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol

from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict

from tidegate._internal.arguments import check_function
from tidegate.client.codec import SampleCodec
from tidegate.client.gate import Gate
from tidegate.client.store import BooksMovedError, check_meant_for, last_taken
from tidegate.client.streams import Indexed, Stream
from tidegate.client.supplier import Supplier
from tidegate.client.taking import Acquire, Subject
from tidegate.errors import ConfigurationError, SupplierError, TidegateError
from tidegate.flower.flower_internals import is_client_fn
from tidegate.flower.messages import has_model
from tidegate.flower.node_buffer import NodeBuffers, buffer_folder, own_name
from tidegate.flower.records import (
    NOT_IN_MODS,
    NUM_EXAMPLES,
    asks_who,
    attach,
    expect,
    find,
    key_of,
)
from tidegate.selection import Selection
from tidegate.wire import Address, Introduction, Order, Receipt

logger = logging.getLogger("flwr.tidegate")

NO_CLIENT_FN = (
    "a gate cannot stand before ClientApp(client_fn): the strategies that AdmissionControl wraps "
    "send messages that a NumPyClient does not understand. Move its fit() into a function under "
    "@app.train() of app = ClientApp(mods=[gate])"
)

TRIES = 3
"""To apply an order beside another process: one may be refused when it has chosen, and again when
it has paid."""
NEVER_ASKED_FOR = (
    "samples were bought, and the training function never asked for them: train on "
    "gate.samples(context), because its model counts as trained on them; if it did not train in "
    "this round, reply without an ArrayRecord"
)


class Worth(Protocol):
    """What candidates are worth to the model that a message brings."""

    def __call__(
        self, candidates: list[Any], message: Message, context: Context, /
    ) -> Sequence[float]:
        """One number a candidate, of all that wait or are new; the greatest are bought first."""
        ...


_ROUNDS: dict[int, "GatedRound"] = {}
"""What is being trained in this process, by the id of its context.

Not a gate's own: Ray copies an app with its mods, while the training function stays that of its
module, and so finds another gate there than the one that was called.
"""


@dataclass
class GatedRound:
    """One round at a client, after its order was applied."""

    message: Message
    receipt: Receipt
    gate: Gate
    was_asked_for: bool = False
    """Whether the training function has asked its gate for this round, or for its samples."""

    @cached_property
    def samples(self) -> list[Any]:
        """What the client trains on, oldest first."""
        return self.gate.samples()

    def reply(
        self,
        arrays: ArrayRecord | None = None,
        metrics: Mapping[str, int | float | list[int] | list[float]] | None = None,
    ) -> Message:
        """A reply with the model and the metrics, under Flower's usual names."""
        content = RecordDict()
        if arrays is not None:
            content["arrays"] = arrays
        content["metrics"] = MetricRecord({**(metrics or {}), NUM_EXAMPLES: 0})
        return Message(content, reply_to=self.message)


class ClientGate:
    """A Flower mod that applies the server's orders, keeps the buffer, and gives receipts.

    It stands first among an app's mods. Before the training function it takes in the samples that
    the server ordered; after it, it adds the receipt to the reply and sets ``num-examples`` to what
    is stored. A client that stores nothing yet answers without being trained. A reply with arrays
    is refused if the training function asked neither for ``samples`` nor for ``round``. Messages
    without an order, such as those for evaluation, pass as they are.

    Args:
        open_stream: fresh samples for a node: a stream, or a data set with a length and an index;
            ``context.node_config`` says which.
        buffer_capacity: B_m, samples that this node stores at most; a number, or a function of the
            node's context.
        acquire: does what costs, once for each admitted sample; see ``tidegate.client.gate``.
        supplier: of samples that come later, in place of ``acquire``: a function of the node's
            context, which may give None for samples that come at once; see
            ``tidegate.client.supplier``.
        give_up_after: rounds after which a purchase that has not come is cancelled; by default the
            node waits as long as it takes.
        codec: how samples are stored; arrays, numbers, texts and nests of them by default.
        worth: what candidates are worth, given them, the message with the model, and the context:
            one number a candidate. The samples that an order asks for are then the best of them;
            see ``tidegate.selection``.
        selection: how many candidates are looked at, and how many wait; the defaults of
            ``Selection`` where only ``worth`` is given. Or a function of the node's context that
            says so, and may give None for samples as they come.
        keep_at_most: how long a node may hold a sample, such as ``"30d"`` (or hours, ``"12h"``);
            any time without it. Older ones are not trained on, and deleted at the next occasion.
        subject: whom or what a sample is about, given the sample as the stream has it: a text, so
            that ``tidegate forget`` can erase it on the node, and refuse what comes later.
    """

    def __init__(  # noqa: PLR0913 - all but two are given by name, and few are needed
        self,
        open_stream: Callable[[Context], Stream | Indexed],
        buffer_capacity: int | Callable[[Context], int],
        *,
        acquire: Acquire | None = None,
        supplier: Callable[[Context], Supplier | None] | None = None,
        give_up_after: int | None = None,
        codec: SampleCodec | None = None,
        worth: Worth | None = None,
        selection: Selection | Callable[[Context], Selection | None] | None = None,
        keep_at_most: str | None = None,
        subject: Subject | None = None,
    ) -> None:
        if worth is not None:
            takes = "candidates", "a message", "a context"
            check_function("worth", worth, takes, "it gives one number a candidate")
        self._worth = worth
        chosen = Selection() if selection is None and worth is not None else selection
        self._buffers = NodeBuffers(
            open_stream,
            buffer_capacity,
            acquire,
            codec,
            chosen,
            supplier=supplier,
            give_up_after=give_up_after,
            keep_at_most=keep_at_most,
            subject=subject,
        )
        self._is_limited = keep_at_most is not None

    def __call__(
        self, message: Message, context: Context, call_next: Callable[[Message, Context], Message]
    ) -> Message:
        """Handle a message on its way to the app, and the reply on its way back."""
        if asks_who(message.content):
            if is_client_fn(call_next):
                raise ConfigurationError(NO_CLIENT_FN)
            try:
                return self._introduce(message, expect(message.content, Address), context)
            except TidegateError:
                raise
            except Exception as failure:  # the server must know that there is a gate
                reason = f"cannot open its data: {type(failure).__name__}: {failure}"
                raise SupplierError("this node", reason) from failure
        order = find(message.content, Order)
        if order is None:
            return call_next(message, context)
        address = expect(message.content, Address)
        for kind in (Address, Order):  # Flower's own mods take one ConfigRecord, the app's
            del message.content[key_of(kind)]
        with self._applied(message, address, order, context) as now:
            # An order that is answered again, days later, may find nothing left.
            if not now.receipt.occupancy or (self._is_limited and not now.samples):
                reply = now.reply()
            else:
                _ROUNDS[id(context)] = now
                try:
                    reply = _checked_reply(call_next(message, context), now)
                finally:
                    del _ROUNDS[id(context)]
        if not reply.has_error():
            _set_weight(reply.content, now.receipt.occupancy)
            attach(reply.content, now.receipt)
        return reply

    def samples(self, context: Context) -> list[Any]:
        """What the client trains on in this round, oldest first; never empty."""
        return self._now(context).samples

    @contextmanager
    def round(self, message: Message, context: Context) -> Iterator[GatedRound]:
        """The round that is being trained: samples and receipt, and a reply in one call.

        Args:
            message: that the training function was called with.
            context: likewise.
        """
        now = self._now(context)
        if message.metadata.message_id != now.message.metadata.message_id:
            raise ConfigurationError(
                f"this gate is training for message {now.message.metadata.message_id!r}, not "
                f"{message.metadata.message_id!r}"
            )
        yield now

    def _now(self, context: Context) -> GatedRound:
        try:
            now = _ROUNDS[id(context)]
        except KeyError:
            raise ConfigurationError(
                "there are no samples without an order: ask for them in the training function, "
                f"{NOT_IN_MODS}, and wrap the server's strategy in AdmissionControl"
            ) from None
        now.was_asked_for = True
        return now

    @contextmanager
    def _applied(
        self, message: Message, address: Address, order: Order, context: Context
    ) -> Iterator[GatedRound]:
        """Apply an order, once; what it did is on disk before training."""
        with self._buffers.store(address, context) as store:
            check_meant_for(store.books(), address)
            gate = self._buffers.gate(store, context)
            worth = self._worth_of(message, context)
            for tries_left in reversed(range(TRIES)):
                try:
                    receipt = gate.apply(order, address, worth)
                    break
                except BooksMovedError:  # another process came first: its receipt is ours
                    if not tries_left:
                        raise
            yield GatedRound(message, receipt, gate)

    def _worth_of(
        self, message: Message, context: Context
    ) -> Callable[[list[Any]], Sequence[float]] | None:
        """The user's ranking, with the model of this message."""
        given = self._worth
        return None if given is None else lambda some: given(some, message, context)

    def _introduce(self, message: Message, asked: Address, context: Context) -> Message:
        """Tell the server who this node is, and the last it did in this run."""
        address = Address(run=asked.run, client=asked.client or own_name(asked, context))
        with self._buffers.store(address, context) as store:
            self._buffers.gate(store, context)  # opens its data, which may fail, before an order
            store.void(asked.void_round)
            books = store.books()
            answer = store.answer(books.last_round)
        selection = self._buffers.selection(context)
        introduction = Introduction(
            run=books.run,
            client=books.client,
            buffer_capacity=books.buffer_capacity,
            buffer_id=books.buffer_id,
            void_round=books.void_round,
            candidates=0 if selection is None else selection.candidates,
            seen=books.total_seen,
            last_taken=last_taken(books),
        )
        folder = buffer_folder(context)
        if folder is not None:
            logger.info("%s keeps its samples in %s", books.client, folder.absolute())
        if selection is not None:
            logger.info(
                "%s chooses among %d candidates an order: admission depends on content, so the "
                "account of sample_privacy does not hold for it",
                *(books.client, selection.candidates),
            )
        newest = [] if answer is None else [answer[1]]
        content = RecordDict()
        attach(content, introduction, *newest)
        return Message(content, reply_to=message)


def _checked_reply(reply: object, now: GatedRound) -> Message:
    """What a training function returned, if it is a reply, and trained on what was bought."""
    if not isinstance(reply, Message):
        raise ConfigurationError(
            f"the training function returned {reprlib.repr(reply)}; it must return a Message, such "
            "as Message(RecordDict({'arrays': arrays, 'metrics': metrics}), reply_to=message)"
        )
    if not (now.was_asked_for or reply.has_error()) and has_model(reply.content):
        raise ConfigurationError(NEVER_ASKED_FOR)
    return reply


def _set_weight(content: RecordDict, occupancy: int) -> None:
    """Weigh a reply by what is stored; where a strategy weighs by another key, the server does."""
    metrics = [record for record in content.values() if isinstance(record, MetricRecord)]
    if not metrics:
        content["metrics"] = MetricRecord({NUM_EXAMPLES: occupancy})
    for record in metrics:
        if NUM_EXAMPLES in record:
            record[NUM_EXAMPLES] = occupancy
