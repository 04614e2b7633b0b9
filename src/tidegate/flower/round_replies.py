"""Handle the replies of a round: book receipts, and choose the models to average.

An invalid reply is left out with a reason in the log, whatever is wrong with it.
"""

import logging
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from flwr.app import ArrayRecord, Message, Metadata, MetricRecord
from flwr.serverapp import Grid
from flwr.serverapp.strategy import Strategy

from tidegate.errors import WireError
from tidegate.flower.flower_internals import NO_REPLY
from tidegate.flower.folded_fedavg import FoldedFedAvg
from tidegate.flower.nodes import Nodes
from tidegate.flower.prompt_grid import AT_ONCE
from tidegate.flower.records import expect, has_model, reason_of, weigh
from tidegate.flower.updates import (
    UpdateCheck,
    check_metrics,
    has_form_of,
    of_one_form,
    usable_metrics,
)
from tidegate.server.controller import Controller
from tidegate.wire import Receipt

CEILING = "at_ceiling"
"""What a receipt's ``health`` calls a purchase that the device's own ceiling has cut."""
FORM_DIFFERS = (
    "%s is left out of the average: its reply has other records, names or types than most replies"
)
RAN_SHORT = (
    "%s bought fewer samples than ordered: its stream ran dry, or its supplier failed; see the "
    "client's log for which. Later rounds do not repeat this until it can buy again"
)
AT_CEILING = (
    "%s bought nothing: so far its own ceiling, spend_at_most, allows less than a sample costs"
)
NO_ARRAYS = (
    "%s sent no model this round and is left out of the average; if it did train, add the "
    "ArrayRecord to its reply"
)
NOBODY_EVALUATED = (
    "no client could evaluate the model, the first because: %s. An app without a function under "
    "@app.evaluate() needs a strategy with fraction_evaluate=0.0"
)

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Sent:
    """A message that was sent, without its content."""

    metadata: Metadata
    """Flower gives a message its id when it is sent, so it is read from here later."""
    client: str
    round_number: int

    @property
    def expired(self) -> bool:
        """Return whether no reply can arrive any more."""
        return time.time() > self.metadata.created_at + self.metadata.ttl


class Outbox:
    """Messages that wait for their replies, including those of earlier rounds."""

    def __init__(self) -> None:
        self._waiting: list[Sent] = []

    def add(self, message: Message, client: str, round_number: int) -> None:
        """Wait for the reply to a message that is about to be sent."""
        self._waiting.append(Sent(message.metadata, client, round_number))

    def answers(self, replies: Iterable[Message], grid: Grid) -> list[tuple[Sent, Message]]:
        """Return the new replies: these, and late ones that the grid has received by now.

        They are sorted by client name, so that sums of money and of models are the same on every
        engine, whichever client is faster.
        """
        answers = self.arriving(replies, grid)
        return sorted(answers, key=lambda answer: (answer[0].client, answer[0].round_number))

    def arriving(self, replies: Iterable[Message], grid: Grid) -> Iterator[tuple[Sent, Message]]:
        """Yield the same replies in the order in which they arrive, without keeping them.

        Replies are matched by the message that they answer, because Flower's own error replies do
        not name their node.
        """
        waiting = {sent.metadata.message_id: sent for sent in self._waiting}

        def answered(arrived: Iterable[Message]) -> Iterator[tuple[Sent, Message]]:
            for reply in arrived:
                sent = waiting.pop(reply.metadata.reply_to_message_id, None)
                if sent is not None:
                    yield sent, reply

        yield from answered(replies)
        missing = sorted(waiting)
        for start in range(0, len(missing), AT_ONCE):
            yield from answered(grid.pull_messages(missing[start : start + AT_ONCE]))
        self._waiting = [sent for sent in waiting.values() if not sent.expired]


@dataclass
class RoundReplies:
    """The replies of one round."""

    controller: Controller
    nodes: Nodes
    outbox: Outbox
    grid: Grid
    model: ArrayRecord
    """The messages that were sent."""
    updates: UpdateCheck
    """The check for updates of the model."""
    importance: Mapping[str, float] | None
    weight_key: str
    loss_key: str | None
    """The metric by which the strategy weighs updates, if it is one that must not be negative."""
    used: int = 0
    """Number of replies that were passed on."""
    failed: dict[str, str] = field(default_factory=dict)
    """Clients whose reply to this round's order was an error or was refused, with the reason."""

    def averaged_by(
        self, strategy: Strategy, round_number: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """Settle all replies, and let the strategy average those that belong to this round."""
        if isinstance(strategy, FoldedFedAvg):
            usable = self.usable(replies)
            averaged = strategy.aggregate_train(round_number, usable)
            for _ in usable:  # book the replies that it did not take, too
                pass
            return averaged
        if alike := self.alike(replies):  # some strategies cannot average an empty list
            return strategy.aggregate_train(round_number, alike)
        return None, None

    def alike(self, replies: Iterable[Message]) -> list[Message]:
        """Settle all replies; return those in time with the same form as most, by name."""
        answers = self.outbox.answers(replies, self.grid)
        in_time = {sent.client: reply for sent, reply in answers if self._settle(sent, reply)}
        alike, odd = of_one_form(in_time, self.model)
        for client in odd:
            logger.warning(FORM_DIFFERS, client)
        self.used += len(alike)
        return list(alike.values())

    def usable(self, replies: Iterable[Message]) -> Iterator[Message]:
        """Settle replies as they come; yield those in time that have the form of the model."""
        for sent, reply in self.outbox.arriving(replies, self.grid):
            if not self._settle(sent, reply):
                continue
            if has_form_of(reply.content, self.model):
                self.used += 1
                yield reply
            else:
                logger.warning(FORM_DIFFERS, sent.client)

    def _settle(self, sent: Sent, reply: Message) -> bool:
        """Book a reply's receipt; return whether its model belongs in the average."""
        client = sent.client
        try:
            if reply.has_error():
                raise WireError(reason_of(reply))  # noqa: TRY301 - one way for all failures
            receipt = expect(reply.content, Receipt)
            if receipt.round_number != sent.round_number:
                raise WireError(  # noqa: TRY301
                    f"it was asked in round {sent.round_number}, but its receipt is for round "
                    f"{receipt.round_number}"
                )
            before = self.controller.ledger.account(client).newest
            on_time = self.controller.book(client, receipt).on_time
        except WireError as failure:
            logger.warning("%s is left out: %s", client, failure)
            self._note(sent, reply, failure)
            self.nodes.forget([client])  # the next round asks it how far it got
            return False
        _tell_of_shortage(client, before, receipt)
        if not (on_time and receipt.occupancy):
            return False
        if not has_model(reply.content):
            logger.warning(NO_ARRAYS, client)
            return False
        weight: float = receipt.occupancy
        if self.importance is not None:
            weight *= self.importance.get(client, 1.0)
        try:
            self.updates.check(reply.content)
            check_metrics(reply.content, self.weight_key, self.loss_key)
        except WireError as refused:
            logger.warning("%s is left out of the average: %s", client, refused)
            return False
        if weight:
            weigh(reply.content, self.weight_key, weight)
        return bool(weight)

    def _note(self, sent: Sent, reply: Message, failure: WireError) -> None:
        """Note who failed in this round, also if its process died; not who did not reply."""
        failed = not reply.has_error() or reply.error.code not in NO_REPLY
        if failed and sent.round_number == self.controller.round_number:
            self.failed[sent.client] = f"{failure}"


def _tell_of_shortage(client: str, before: Receipt, receipt: Receipt) -> None:
    """Warn once of a client that bought less than it was ordered to."""
    if receipt.is_dry and not before.is_dry:
        logger.warning(RAN_SHORT, client)
    if receipt.health.get(CEILING) and not (receipt.bought or before.health.get(CEILING)):
        logger.warning(AT_CEILING, client)


def usable_evaluations(replies: Iterable[Message], key: str, model: ArrayRecord) -> list[Message]:
    """Return the replies whose metrics have the same form as most, and those that failed.

    Args:
        replies: the clients' evaluation replies.
        key: the metric that weighs a reply; one without examples has no weight.
        model: the model that they evaluated.
    """
    useful, failed = {}, []
    for reply in replies:
        if reply.has_error():
            failed.append(reply)
        elif usable_metrics(reply.content, key):
            useful[f"node {reply.metadata.src_node_id}"] = reply
    alike, odd = of_one_form(useful, model)
    for node in odd:
        logger.warning(FORM_DIFFERS, node)
    if failed and not alike:
        logger.warning(NOBODY_EVALUATED, reason_of(failed[0]))
    return [*alike.values(), *failed]
