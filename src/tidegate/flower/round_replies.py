"""What becomes of a round's replies: receipts are booked, and models that belong into its average.

A reply that cannot be right is left out with a reason in the log, whatever is wrong with it.
"""

import logging
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from flwr.app import ArrayRecord, Message, MetricRecord
from flwr.serverapp import Grid
from flwr.serverapp.strategy import Strategy

from tidegate.errors import WireError
from tidegate.flower.folded_fedavg import FoldedFedAvg
from tidegate.flower.messages import Outbox, Sent, has_model, weigh
from tidegate.flower.nodes import Nodes
from tidegate.flower.records import expect
from tidegate.flower.updates import UpdateCheck, has_form_of, of_one_form, usable_metrics
from tidegate.server.controller import Controller
from tidegate.wire import Receipt

FORM_DIFFERS = "%s is left out of the average: its reply has other records or names than most"
NO_ARRAYS = (
    "%s is left out of the average: its reply has no ArrayRecord; Message(RecordDict({'arrays': "
    "arrays, 'metrics': metrics}), reply_to=message) has one"
)

logger = logging.getLogger("flwr.tidegate")


@dataclass
class RoundReplies:
    """The replies of one round."""

    controller: Controller
    nodes: Nodes
    outbox: Outbox
    grid: Grid
    model: ArrayRecord
    """That was sent."""
    updates: UpdateCheck
    """Of this model."""
    importance: Mapping[str, float] | None
    weight_key: str
    used: int = 0
    """Replies that were handed on."""

    def averaged_by(
        self, strategy: Strategy, now: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """Settle all, and let the strategy average those that belong into this round."""
        if isinstance(strategy, FoldedFedAvg):
            usable = self.usable(replies)
            averaged = strategy.aggregate_train(now, usable)
            for _ in usable:  # whatever it left is booked all the same
                pass
            return averaged
        if alike := self.alike(replies):  # of nothing, some cannot make an average
            return strategy.aggregate_train(now, alike)
        return None, None

    def alike(self, replies: Iterable[Message]) -> list[Message]:
        """Settle all; those that are in time and have the form of most, in the order of names."""
        answers = self.outbox.answers(replies, self.grid)
        in_time = {one.client: reply for one, reply in answers if self._settle(one, reply)}
        alike, odd = of_one_form(in_time, self.model)
        for client in odd:
            logger.warning(FORM_DIFFERS, client)
        self.used += len(alike)
        return list(alike.values())

    def usable(self, replies: Iterable[Message]) -> Iterator[Message]:
        """Settle each as it comes; those that are in time and have the form of the model."""
        for one, reply in self.outbox.arriving(replies, self.grid):
            if not self._settle(one, reply):
                continue
            if has_form_of(reply.content, self.model):
                self.used += 1
                yield reply
            else:
                logger.warning(FORM_DIFFERS, one.client)

    def _settle(self, sent: Sent, reply: Message) -> bool:
        """Book a reply's receipt; true if its model belongs into the average."""
        client = sent.client
        try:
            if reply.has_error():
                raise WireError(reply.error.reason)  # noqa: TRY301 - one way for all failures
            receipt = expect(reply.content, Receipt)
            if receipt.round_number != sent.round_number:
                raise WireError(  # noqa: TRY301
                    f"asked in round {sent.round_number}, it answers round {receipt.round_number}"
                )
            on_time = self.controller.book(client, receipt).on_time
        except WireError as failure:
            logger.warning("%s is left out: %s", client, failure)
            self.nodes.forget([client])  # the next round asks it where it stands
            return False
        if receipt.exhausted:
            logger.warning(
                "%s could not take in all that was ordered: its stream is dry, or its supplier "
                "failed; its own log says which",
                client,
            )
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
        except WireError as refused:
            logger.warning("%s is left out of the average: %s", client, refused)
            return False
        if weight:
            weigh(reply.content, self.weight_key, weight)
        return bool(weight)


def usable_evaluations(replies: Iterable[Message], key: str, model: ArrayRecord) -> list[Message]:
    """Replies whose metrics have the form of most, and those that failed.

    Args:
        replies: what clients measured.
        key: of the metric that weighs a reply; one without examples has nothing to say.
        model: that they evaluated.
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
    return [*alike.values(), *failed]
