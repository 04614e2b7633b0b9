"""Fresh samples for a client, one after another, each once.

A stream hands out samples with ``take(n)`` and says, with ``cursor``, how far it is; ``seek``
returns to that place in a new process. It never repeats a sample: one that has run dry returns
fewer.
"""

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

logger = logging.getLogger(__name__)


class Stream(Protocol):
    """Where a client's fresh samples come from."""

    @property
    def cursor(self) -> str:
        """How far the stream has been read, as a short text."""
        ...

    def seek(self, cursor: str) -> None:
        """Continue from a cursor of an earlier process."""
        ...

    def take(self, count: int) -> Sequence[Any]:
        """Return the next samples; fewer than asked for if there are no more (for now).

        If the next sample cannot be read, ``take(1)`` raises and the cursor moves past it, so that
        it can be set aside; a stream whose cursor stays returns nothing more until it can.
        """
        ...


@dataclass(frozen=True)
class TakenBefore:
    """What lost buffers have taken from a stream, as far as the server knows."""

    count: int
    """Samples in all, from the first one on."""
    after_last: int
    """Those of them that may have been taken after the last that is known."""
    is_last: Callable[[str], bool]
    """Whether a cursor is the one after the last sample that is known to be taken; the one at the
    beginning, if none is known."""


@runtime_checkable
class Skips(Protocol):
    """A stream that can skip samples without reading them."""

    def skip_taken(self, taken: TakenBefore) -> None:
        """Starting from the beginning, skip what was taken before."""
        ...


@runtime_checkable
class Confirms(Protocol):
    """A stream that keeps samples until they are safe elsewhere."""

    def confirm(self, cursor: str) -> None:
        """Note that the books hold this cursor: nothing before it is asked for again."""
        ...


@runtime_checkable
class Limited(Protocol):
    """A stream that keeps samples on the device, for a limited time."""

    def keep_at_most(self, length: int) -> None:
        """Hold samples for at most so many milliseconds from now on; 0 for any time."""
        ...

    def name_subjects(self, subject: Callable[[Any], str | None] | None) -> None:
        """Note whom or what samples are about, so that they can be forgotten unread."""
        ...

    @property
    def arrived_at(self) -> int:
        """Return when the last taken sample arrived on the device, in milliseconds since 1970."""
        ...


@dataclass(frozen=True)
class Overflow:
    """What a stream that keeps samples on disk has no room for."""

    full: bool = False
    dropped: int = 0
    """Samples that were dropped unread in all."""


NO_OVERFLOW = Overflow()


@runtime_checkable
class Overflows(Protocol):
    """A stream whose samples wait in a place that may become full."""

    def overflow(self) -> Overflow:
        """Whether it is full, and what was dropped."""
        ...


def overflow_of(stream: Overflows | None) -> Overflow:
    """Return the overflow of a stream that can overflow; none if it cannot say."""
    try:
        return NO_OVERFLOW if stream is None else stream.overflow()
    except Exception:  # a stream that cannot say must not delay an order
        logger.exception("the stream failed to report its overflow; it is assumed to have none")
        return NO_OVERFLOW


def pass_over(stream: Stream, taken: TakenBefore) -> None:
    """Skip what was taken before: unread if the stream can, else one sample at a time."""
    if isinstance(stream, Skips):
        stream.skip_taken(taken)
        return
    for _ in range(taken.count):
        before = stream.cursor
        try:
            if not stream.take(1):
                return
        except Exception:  # it is not needed, as long as the stream continues after it
            if stream.cursor == before:
                raise
