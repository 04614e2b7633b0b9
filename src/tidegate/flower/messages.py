"""What was sent and not answered yet, and what a reply must look like for the wrapped strategy."""

import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from flwr.app import ArrayRecord, Message, Metadata, MetricRecord, RecordDict
from flwr.serverapp import Grid

from tidegate.flower.records import key_of
from tidegate.wire import Receipt

AT_ONCE = 16
"""Replies that are asked for, and so in memory, together."""


@dataclass(frozen=True)
class Sent:
    """A message that was sent; its content is not kept."""

    metadata: Metadata
    """Flower gives a message its id when it is sent, so it is read from here later."""
    client: str
    round_number: int

    @property
    def expired(self) -> bool:
        """No reply will come any more."""
        return time.time() > self.metadata.created_at + self.metadata.ttl


class Outbox:
    """Messages that wait for their replies, those of earlier rounds too."""

    def __init__(self) -> None:
        self._waiting: list[Sent] = []

    def add(self, message: Message, client: str, round_number: int) -> None:
        """Wait for the reply to a message that is about to be sent."""
        self._waiting.append(Sent(message.metadata, client, round_number))

    def answers(self, replies: Iterable[Message], grid: Grid) -> list[tuple[Sent, Message]]:
        """What has been answered: by these replies, and by late ones that the grid has by now.

        They come in the order of names, so that sums of money and of models are the same on every
        engine, whoever is faster.
        """
        found = self.arriving(replies, grid)
        return sorted(found, key=lambda answer: (answer[0].client, answer[0].round_number))

    def arriving(self, replies: Iterable[Message], grid: Grid) -> Iterator[tuple[Sent, Message]]:
        """The same in the order in which they arrive, none of them kept.

        Replies are told apart by the message that they answer, because Flower's own error replies
        do not say which node they are about.
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
    """The same message for another node."""
    return Message(message.content, node_id, message.metadata.message_type)


def let_live(message: Message, seconds: float) -> Message:
    """Let a message live from now on: nodes were met since it was written."""
    message.metadata.created_at = time.time()
    message.metadata.ttl = seconds
    return message


def has_model(content: RecordDict) -> bool:
    """Whether a reply carries arrays."""
    return any(isinstance(record, ArrayRecord) for record in content.values())


def weigh(content: RecordDict, key: str, weight: float) -> None:
    """Make a reply what the wrapped strategy expects: no receipt, this weight in its metrics."""
    del content[key_of(Receipt)]
    found = [(name, one) for name, one in content.items() if isinstance(one, MetricRecord)]
    name, metrics = found[0] if found else ("metrics", MetricRecord())
    if metrics.get(key) != weight:
        metrics = metrics.copy()
        metrics[key] = weight
        content[name] = metrics
