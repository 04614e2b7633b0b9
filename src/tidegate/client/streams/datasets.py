"""Streams over existing data: a data set with an index, or anything that can be iterated again."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Protocol

from tidegate.client.streams.stream import TakenBefore
from tidegate.errors import ConfigurationError


class Indexed(Protocol):
    """A data set that can be indexed: torch's, Hugging Face's, a list."""

    def __len__(self) -> int: ...

    def __getitem__(self, index: int, /) -> Any: ...


class IndexedStream:
    """Samples of a data set with a length and an index, in a given order.

    >>> stream = IndexedStream("abcd", order=[2, 0, 1])
    >>> stream.take(2), stream.take(2), stream.take(1)
    (['c', 'a'], ['b'], [])
    """

    def __init__(self, dataset: Indexed, order: Sequence[int] | None = None) -> None:
        self._dataset = dataset
        self._order = range(len(dataset)) if order is None else order
        self._position = 0

    @property
    def cursor(self) -> str:
        """How many samples were taken."""
        return str(self._position)

    def seek(self, cursor: str) -> None:
        """Skip what was taken before."""
        self._position = int(cursor)

    def skip_taken(self, taken: TakenBefore) -> None:
        """Continue after so many samples."""
        self._position = min(self._position + taken.count, len(self._order))

    def take(self, count: int) -> list[Any]:
        """Return the next samples in order."""
        chosen = self._order[self._position : self._position + count]
        self._position += len(chosen)
        return [self._dataset[int(index)] for index in chosen]


class IterableStream:
    """Samples of anything that can be iterated again, in the same order each time.

    >>> stream = IterableStream(lambda: range(5))
    >>> stream.take(3), stream.cursor, stream.take(9)
    ([0, 1, 2], '3', [3, 4])
    """

    def __init__(self, start: Callable[[], Iterable[Any]]) -> None:
        self._start = start
        self._samples: Iterator[Any] = iter(start())
        self._position = 0

    @property
    def cursor(self) -> str:
        """How many samples were taken."""
        return str(self._position)

    def seek(self, cursor: str) -> None:
        """Start again and skip what was taken before."""
        again = iter(self._start())
        if again is self._samples:
            raise ConfigurationError(
                "the iterable cannot be restarted; pass a function that returns one"
            )
        self._samples, self._position = again, 0
        while self._position < int(cursor):
            try:
                self._next()
            except StopIteration:
                raise ConfigurationError(
                    f"the iterable has {self._position} samples, but {cursor} were taken before"
                ) from None
            except Exception:  # noqa: S112 - it was set aside, and is not wanted now
                continue

    def take(self, count: int) -> list[Any]:
        """Return the next samples."""
        taken: list[Any] = []
        while len(taken) < count:
            try:
                taken.append(self._next())
            except StopIteration:
                break
        return taken

    def _next(self) -> Any:
        """Return the next sample; an unreadable one counts, if the iterator continues after it."""
        try:
            sample = next(self._samples)
        except StopIteration:
            raise
        except Exception:
            self._position += 1
            raise
        self._position += 1
        return sample
