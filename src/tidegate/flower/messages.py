"""Messages that wait for a reply, and the form that the wrapped strategy expects of a reply."""

import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from flwr.app import ArrayRecord, Message, Metadata, MetricRecord, RecordDict
from flwr.serverapp import Grid

from tidegate.flower.records import key_of
from tidegate.wire import Receipt

AT_ONCE = 16
"""Replies that are requested, and so held in memory, together."""


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
        found = self.arriving(replies, grid)
        return sorted(found, key=lambda answer: (answer[0].client, answer[0].round_number))

    def arriving(self, replies: Iterable[Message], grid: Grid) -> Iterator[tuple[Sent, Message]]:
        """Yield the same replies in the order in which they arrive, without keeping them.

        Replies are matched by the message that they answer, because Flower's own error replies do
        not name their node.
        """
        waiting = {one.metadata.message_id: one for one in self._waiting}

        def answered(some: Iterable[Message]) -> Iterator[tuple[Sent, Message]]:
            for reply in some:
                sent = waiting.pop(reply.metadata.reply_to_message_id, None)
                if sent is not None:
                    yield sent, reply

        yield from answered(replies)
        missing = sorted(waiting)
        for start in range(0, len(missing), AT_ONCE):
            yield from answered(grid.pull_messages(missing[start : start + AT_ONCE]))
        self._waiting = [one for one in waiting.values() if not one.expired]


def readdressed(message: Message, node_id: int) -> Message:
    """Return the same message for another node."""
    return Message(message.content, node_id, message.metadata.message_type)


def let_live(message: Message, seconds: float) -> Message:
    """Restart a message's time to live: the server has met nodes since it was written."""
    message.metadata.created_at = time.time()
    message.metadata.ttl = seconds
    return message


def has_model(content: RecordDict) -> bool:
    """Return whether a reply carries arrays."""
    return any(isinstance(record, ArrayRecord) for record in content.values())


def weigh(content: RecordDict, key: str, weight: float) -> None:
    """Give a reply the form that the wrapped strategy expects: no receipt, this weight."""
    del content[key_of(Receipt)]
    found = [(name, one) for name, one in content.items() if isinstance(one, MetricRecord)]
    name, metrics = found[0] if found else ("metrics", MetricRecord())
    if metrics.get(key) != weight:
        metrics = metrics.copy()
        metrics[key] = weight
        content[name] = metrics
