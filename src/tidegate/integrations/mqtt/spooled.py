"""A stream over a spool: hands out its messages, decoded."""

from collections.abc import Callable
from typing import Any

from tidegate._internal.arguments import check_function
from tidegate.client.streams.stream import Overflow, TakenBefore
from tidegate.integrations.mqtt.messages import Message, SpoolHealth
from tidegate.integrations.mqtt.spool import Spool

Decode = Callable[[bytes, str], Any]
"""Given a payload and its topic, makes a sample."""


class SpooledStream:
    """Messages of a spool, in order of arrival.

    They are decoded when they are taken, so that an unreadable one delays nothing: the gate sets it
    aside. ``confirm`` deletes what the books have.

    Args:
        spool: holds the messages.
        decode: makes a sample of a payload and its topic.
    """

    def __init__(self, spool: Spool, decode: Decode) -> None:
        check_function("decode", decode, ("a payload", "its topic"), "it returns a sample")
        self._spool = spool
        self._decode = decode
        self._position = spool.taken
        self._arrived_at = 0

    @property
    def cursor(self) -> str:
        """The spool's own id, and the position of the last message taken."""
        return f"{self._spool.id}-{self._position}"

    def seek(self, cursor: str) -> None:
        """Continue after a message; with the cursor of a lost spool, from the beginning."""
        self._position = self._place(cursor)
        self._spool.read_up_to = self._position

    def skip_taken(self, taken: TakenBefore) -> None:
        """Continue after the last message taken; if this spool never had it, all are fresh."""
        places = [self._position, *self._spool.positions(self._position)]
        cursors = [f"{self._spool.id}-{place}" for place in places]
        known = next((at for at, cursor in enumerate(cursors) if taken.is_last(cursor)), None)
        if known is not None:
            self.seek(cursors[min(known + taken.after_last, len(cursors) - 1)])

    def take(self, count: int) -> list[Any]:
        """Return the next samples in the spool, up to one that cannot be decoded."""
        samples: list[Any] = []
        while len(samples) < count:
            found = self._spool.after(self._position)
            if found is None:
                break
            before = self._position
            self._position, message = found
            self._arrived_at = self._spool.arrived_at(self._position)
            self._spool.read_up_to = self._position
            try:
                samples.append(self._decode(message.payload, message.topic))
            except Exception:
                if not samples:
                    raise
                self._position = before
                break
        return samples

    def confirm(self, cursor: str) -> None:
        """Delete the messages up to a cursor that the books hold."""
        self._spool.confirm(self._place(cursor))

    def keep_at_most(self, length: int) -> None:
        """Hold messages for no longer than so many milliseconds from now on; 0 for any time."""
        self._spool.keep_at_most(length)
        self._spool.let_go()

    def name_subjects(self, subject: Callable[[Any], str | None] | None) -> None:
        """Note whom or what messages are about, those that are there and those that come."""
        if subject is None:
            self._spool.name_subjects(None)
            return
        decode = self._decode

        def of(message: Message) -> str | None:
            try:
                return str(subject(decode(message.payload, message.topic)) or "")
            except Exception:  # the gate will set it aside; until then nobody can say
                return None

        self._spool.name_subjects(of)

    @property
    def arrived_at(self) -> int:
        """When the message that was taken last came, in milliseconds since 1970."""
        return self._arrived_at

    def overflow(self) -> Overflow:
        """Whether the spool is full, and what it dropped."""
        return Overflow(self._spool.is_full, self._spool.health().dropped)

    def health(self) -> SpoolHealth:
        """Return what became of all messages so far, also in earlier processes."""
        return self._spool.health()

    def close(self) -> None:
        """Close the spool's file."""
        self._spool.close()

    def _place(self, cursor: str) -> int:
        spool, _, position = cursor.rpartition("-")
        return int(position) if spool == self._spool.id else self._spool.taken
