"""Client side of Tidegate on Flower: a gate, as a mod in front of the training function.

gate = ClientGate(load_data, buffer_capacity=100)
app = ClientApp(mods=[gate])

@app.train()
def train(message, context):
    loader = DataLoader(gate.samples(context))
    ...  # train, and reply as before
"""

import json
import logging
import math
import reprlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any, Protocol

from flwr.app import Context, Error, Message, MetricRecord, RecordDict

from tidegate._internal.arguments import check_function, check_number, check_whole_number, shown
from tidegate.client.buying import Acquire, Group, Subject
from tidegate.client.codec import SampleCodec
from tidegate.client.gate import MOST_UNDER_WAY, Gate, check_one_source
from tidegate.client.limits import duration
from tidegate.client.samples import Samples
from tidegate.client.store import BooksMovedError, check_meant_for
from tidegate.client.streams import Indexed, Stream
from tidegate.client.supplier import Supplier
from tidegate.errors import ConfigurationError, DamagedFileError, SupplierError, TidegateError
from tidegate.flower.flower_internals import is_client_fn
from tidegate.flower.node_buffer import (
    NodeBuffers,
    OfNode,
    buffer_folder,
    named,
    own_name,
    tell_if_random,
)
from tidegate.flower.records import (
    GATE_FAILS,
    GATE_REFUSES,
    NOT_IN_MODS,
    NUM_EXAMPLES,
    asks_who,
    attach,
    expect,
    find,
    has_model,
    key_of,
)
from tidegate.flower.users_trace import users_trace
from tidegate.selection import Selection
from tidegate.wire import Address, Introduction, Order, Receipt

logger = logging.getLogger(__name__)

NO_CLIENT_FN = (
    "ClientGate does not work with ClientApp(client_fn): the strategies that AdmissionControl "
    "wraps send messages that a NumPyClient does not understand. Move its fit() into a function "
    "under @app.train() of app = ClientApp(mods=[gate])"
)

NO_ORDER = (
    "this message has no order, so it has no samples. Only the training function may ask for them, "
    "with its own context; evaluate on other data of the node. If this is the training function, "
    f"{NOT_IN_MODS}, and wrap the server's strategy in AdmissionControl"
)
CANNOT_TAKE_PART = "this node cannot take part: %s"
MAY_PASS = (SupplierError, DamagedFileError)
"""Errors that may pass, such as data that are not mounted yet: a node that is asked again may reply
otherwise, and other nodes may work. A setting or a version does not change by itself."""

TRIES = 3
"""Attempts to apply an order while another process works on the same buffer: it can refuse one
after candidates were chosen, and one after they were paid for."""
NEVER_ASKED_FOR = (
    "the client bought samples, but the training function never asked for them: train on "
    "gate.samples(context), because the model's weight counts them; if the function did not "
    "train in this round, reply without an ArrayRecord"
)


class Worth(Protocol):
    """Rates candidates for the model that a message brings."""

    def __call__(
        self, candidates: Samples, message: Message, context: Context, /
    ) -> Sequence[float]:
        """Return one number for each candidate, waiting or new; the greatest are bought first."""
        ...


_ROUNDS: dict[int, "_Round"] = {}
"""The rounds that are training in this process, by the id of their context.

They are not attributes of the gate: Ray copies an app with its mods, while the training function
stays that of its module and therefore sees another gate than the one that Flower called."""


@dataclass
class _Round:
    """One round at a client, after the gate applied its order."""

    receipt: Receipt
    gate: Gate
    was_asked_for: bool = False
    """Whether the training function asked for the samples."""

    @cached_property
    def samples(self) -> Samples:
        """The samples to train on, oldest first."""
        return self.gate.samples()

    def close(self) -> None:
        """End the round: its samples may change from now on."""
        if "samples" in vars(self):
            self.samples.close()


class ClientGate:
    """A Flower mod that applies the server's orders, keeps the buffer and writes receipts.

    Put it first among the app's mods. Before training it admits the samples that the server
    ordered; after training it adds the receipt to the reply and sets ``num-examples`` to the number
    of stored samples. A client that stores no samples yet replies without training. The gate
    refuses a reply with arrays if the training function never asked for ``samples``. Messages
    without an order, such as those for evaluation, pass through unchanged.

    Args:
        open_stream: returns a node's fresh samples, given its context: a stream, or a data set with
            a length and an index.
        buffer_capacity: B_m, the most samples that this node stores; a number, or a function of the
            node's context.
        acquire: pays for and obtains a sample, called once for each admitted one; see
            ``tidegate.client.gate``.
        supplier: delivers samples later, in place of ``acquire``: a function of the node's context,
            which returns None for a node whose samples arrive at once; see
            ``tidegate.client.supplier``.
        give_up_after: rounds after which the node cancels a purchase that has not arrived; by
            default it waits as long as it takes.
        codec: stores samples; by default arrays, numbers, texts and nests of them.
        worth: rates candidates, given them, the message with the model, and the context; returns
            one number for each. The client then buys the best of them; see ``tidegate.selection``.
        selection: how many candidates to look at, and how many may wait; by default that of
            ``Selection`` if ``worth`` is given. It can be a function of the node's context, which
            returns None for a node that takes samples as they come.
        keep_at_most: how long a node may hold a sample, such as ``"30d"`` or ``"12h"``; by default
            for any time. Older samples no longer train, and are deleted with the next message.
        subject: returns whom or what a sample is about, as a text, given the sample as the stream
            has it. ``tidegate forget`` then erases the samples of a subject on the node and refuses
            later ones.
        group: returns the group of a complete sample, such as its class or its camera. Where
            samples make room for others, common groups then go before rare ones; without it the
            oldest samples go. Groups do not leave the device.
        train_on: the most samples to train on in a round, the least used of those that are stored;
            by default all. A number, or a function of the node's context.
        begin_with: the run whose samples of this node a new buffer begins with, at no cost: its
            name, or ``"newest"``; a ``Path`` for the newest one in that folder. What an earlier run
            has paid for and this one holds is not bought again.
        keep_bought: whether samples that have left the buffer stay on the device, for ``tidegate
            export`` and later runs; ``keep_at_most`` and ``tidegate forget`` hold for them, too.
        most_under_way: purchases that may be under way at once.
        spend_at_most: the site's own ceiling for each round that the node takes part in, whatever
            the server orders: what is left of it may be spent later. A number, or a function of the
            node's context, such as ``lambda context: context.node_config["spend-at-most"]``.
        spend_ahead: rounds of the ceiling that may be spent before they come.
    """

    def __init__(  # noqa: PLR0913 - all but two are given by name, and few are needed
        self,
        open_stream: Callable[[Context], Stream | Indexed],
        buffer_capacity: OfNode[int],
        *,
        acquire: Acquire | None = None,
        supplier: Callable[[Context], Supplier | None] | None = None,
        give_up_after: int | None = None,
        codec: SampleCodec | None = None,
        worth: Worth | None = None,
        selection: OfNode[Selection | None] = None,
        keep_at_most: str | None = None,
        subject: Subject | None = None,
        group: Group | None = None,
        train_on: OfNode[int] | None = None,
        begin_with: str | Path | None = None,
        keep_bought: bool = False,
        most_under_way: int = MOST_UNDER_WAY,
        spend_at_most: OfNode[float | None] = None,
        spend_ahead: float = 0.0,
    ) -> None:
        if worth is not None:
            rated = "candidates", "a message", "a context"
            check_function("worth", worth, rated, "it returns one number for each candidate")
        self._worth = worth
        chosen = Selection() if selection is None and worth is not None else selection
        tell_if_random(chosen, is_ranked=worth is not None)
        check_one_source(acquire, supplier)
        hooks: dict[str, tuple[object, tuple[str, ...], str]] = {
            "acquire": (acquire, ("a sample", "its key"), "it returns the sample to store"),
            "subject": (subject, ("a sample",), "it returns a text, whom the sample is about"),
            "group": (group, ("a sample",), "it returns the sample's group, such as its class"),
        }
        for name, (function, takes, remedy) in hooks.items():
            if function is not None:
                check_function(name, function, takes, remedy)
        if give_up_after is not None:
            remedy = "leave it out to wait as long as it takes"
            check_whole_number("give_up_after", give_up_after, remedy=remedy)
            if supplier is None:
                raise ConfigurationError(
                    f"give_up_after = {give_up_after} needs a supplier: samples that arrive at "
                    "once are never waited for; give supplier=..., or leave it out"
                )
        check_whole_number("most_under_way", most_under_way)
        limit = "a number of rounds, 0 or more"
        check_number("spend_ahead", spend_ahead, limit, lambda rounds: 0 <= rounds < math.inf)
        if keep_at_most is not None:
            duration(keep_at_most)
        self._buffers = NodeBuffers(
            open_stream,
            buffer_capacity,
            train_on=train_on,
            begin_with=begin_with,
            keep_bought=keep_bought,
            spend_at_most=spend_at_most,
            codec=codec,
            selection=chosen,
            supplier=supplier,
            make_gate=partial(
                Gate,
                acquire=None if acquire is None else _with_result(named("acquire", acquire)),
                give_up_after=give_up_after,
                keep_at_most=keep_at_most,
                subject=None if subject is None else named("subject", subject),
                group=group,
                most_under_way=most_under_way,
                spend_ahead=spend_ahead,
            ),
        )
        self._is_limited = keep_at_most is not None

    def __call__(
        self, message: Message, context: Context, call_next: Callable[[Message, Context], Message]
    ) -> Message:
        """Handle a message on its way to the app, and the reply on its way back."""
        if asks_who(message.content):
            if is_client_fn(call_next):
                return _refusal(message, ConfigurationError(NO_CLIENT_FN))
            try:
                return self._introduce(message, expect(message.content, Address), context)
            except Exception as failure:  # the server must know that there is a gate
                return _refusal(message, failure)
        order = find(message.content, Order)
        if order is None:
            return call_next(message, context)
        address = expect(message.content, Address)
        for kind in (Address, Order):  # Flower's own mods take one ConfigRecord, the app's
            del message.content[key_of(kind)]
        with self._applied(message, address, order, context) as training:
            # Days later, an order that is answered again may find no samples left.
            if not training.receipt.occupancy or (self._is_limited and not training.samples):
                reply = Message(RecordDict(), reply_to=message)
            else:
                _ROUNDS[id(context)] = training
                try:
                    reply = _checked_reply(call_next(message, context), training)
                finally:
                    del _ROUNDS[id(context)]
        if not reply.has_error():
            _set_weight(reply.content, training.receipt.occupancy)
            attach(reply.content, training.receipt)
        return reply

    def samples(
        self, context: Context, *, transform: Callable[[Any], Any] | None = None
    ) -> Samples:
        """Return the samples to train on in this round, oldest first; never empty.

        They stay on disk until they are read, by index, by batch or one after another, and can be
        given to a ``DataLoader`` as they are; ``list(...)`` reads all of them.

        Args:
            context: the context that the training function was called with.
            transform: called with each sample whenever it is read, such as a random augmentation:
                what is stored stays what the stream gave.
        """
        try:
            training = _ROUNDS[id(context)]
        except KeyError:
            raise ConfigurationError(NO_ORDER) from None
        training.was_asked_for = True
        return training.samples if transform is None else training.samples.transformed(transform)

    @contextmanager
    def _applied(
        self, message: Message, address: Address, order: Order, context: Context
    ) -> Iterator[_Round]:
        """Apply an order once; its effects are on disk before training starts."""
        with self._buffers.store(address, context) as store:
            check_meant_for(store.books(), address)
            gate = self._buffers.gate(store, context)
            worth = self._worth_of(message, context)
            for tries_left in reversed(range(TRIES)):
                try:
                    receipt = gate.apply(order, address, worth)
                    break
                except BooksMovedError:  # another process was faster: use its receipt
                    if not tries_left:
                        raise
            training = _Round(receipt, gate)
            try:
                yield training
            finally:
                training.close()

    def _worth_of(
        self, message: Message, context: Context
    ) -> Callable[[Samples], Sequence[float]] | None:
        """The user's ranking, with the model of this message."""
        worth = self._worth
        if worth is None:
            return None
        rate = named("worth", worth)
        return lambda candidates: _numbers(rate(candidates, message, context))

    def _introduce(self, message: Message, question: Address, context: Context) -> Message:
        """Tell the server who this node is, and the last order that it applied in this run."""
        address = Address(run=question.run, client=question.client or own_name(question, context))
        with self._buffers.store(address, context) as store:
            self._buffers.gate(store, context)  # opens its data, which may fail, before an order
            store.void(question.void_round)
            books = store.books()
            answer = store.answer(books.last_round)
        selection = self._buffers.selection(context)
        introduction = Introduction(
            run=books.run,
            client=books.client,
            buffer_capacity=books.buffer_capacity,
            buffer_id=books.buffer_id,
            train_on=books.train_on,
            void_round=books.void_round,
            candidates=0 if selection is None else selection.candidates,
            read=books.read,
            last_taken=books.last_taken,
            holding=tuple(json.loads(books.begun)),
        )
        folder = buffer_folder(context)
        if folder is not None:
            logger.info("%s keeps its samples in %s", books.client, folder.absolute())
        if selection is not None:
            logger.info(
                "%s chooses among %d candidates for each order: which samples it admits depends "
                "on their content, so the guarantee of sample_privacy does not hold for it",
                *(books.client, selection.candidates),
            )
        newest = [] if answer is None else [answer[1]]
        content = RecordDict()
        attach(content, introduction, *newest)
        return Message(content, reply_to=message)


def _with_result(acquire: Acquire) -> Acquire:
    """Refuse None from ``acquire``: no sample is, but a function without a return gives it."""

    def call(sample: Any, key: str) -> Any:
        acquired = acquire(sample, key)
        if acquired is None:
            raise SupplierError("acquire", "returned None; it must return the sample to store")
        return acquired

    return call


def _numbers(worths: Any) -> list[float]:
    """Return what the user's ``worth`` has returned as numbers, of which one at least is one."""
    try:
        numbers = [float(number) for number in worths]
    except (TypeError, ValueError):
        numbers = [math.nan]
    if numbers and all(map(math.isnan, numbers)):
        raise ConfigurationError(
            f"worth returned {shown(worths)}; it must return one number for each candidate, such "
            "as a list of floats or an array with one dimension"
        )
    return numbers


def _refusal(message: Message, failure: Exception) -> Message:
    """Tell the server why a node cannot take part, and whether the reason may pass."""
    known = isinstance(failure, TidegateError)
    cannot = f"cannot open its data: {type(failure).__name__}: {failure}"
    wrong = failure if known else SupplierError("this node", cannot)
    reason = f"{type(wrong).__name__}: {wrong}"
    logger.error(CANNOT_TAKE_PART, reason, exc_info=users_trace(failure))
    code = GATE_FAILS if isinstance(wrong, MAY_PASS) else GATE_REFUSES
    return Message(Error(code=code, reason=reason), reply_to=message)


def _checked_reply(reply: object, training: _Round) -> Message:
    """Return a training function's reply if it is a reply and was trained on the samples bought."""
    if not isinstance(reply, Message):
        raise ConfigurationError(
            f"the training function returned {reprlib.repr(reply)}; it must return a Message, such "
            "as Message(RecordDict({'arrays': arrays, 'metrics': metrics}), reply_to=message)"
        )
    if not (training.was_asked_for or reply.has_error()) and has_model(reply.content):
        raise ConfigurationError(NEVER_ASKED_FOR)
    return reply


def _set_weight(content: RecordDict, occupancy: int) -> None:
    """Weigh a reply by the samples stored; for another weight key the server does it."""
    metrics = [record for record in content.values() if isinstance(record, MetricRecord)]
    if not metrics:
        content["metrics"] = MetricRecord({NUM_EXAMPLES: occupancy})
    for record in metrics:
        if NUM_EXAMPLES in record:
            record[NUM_EXAMPLES] = occupancy
