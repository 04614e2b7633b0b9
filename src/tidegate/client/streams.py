"""Fresh samples for a client, one after another, each once.

A stream hands out samples with ``take(n)`` and says, with ``cursor``, how far it is; ``seek`` takes
it back there in a new process. It never repeats a sample: one that has run dry gives fewer.
"""

import fnmatch
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from tidegate.errors import ConfigurationError


class Stream(Protocol):
    """Where a client's fresh samples come from."""

    @property
    def cursor(self) -> str:
        """How far the stream has been read, as a short text."""
        ...

    def seek(self, cursor: str) -> None:
        """Go on from a cursor of an earlier process."""
        ...

    def take(self, count: int) -> Sequence[Any]:
        """The next samples; fewer than asked for where there are no more (for now).

        Where the next sample cannot be read, ``take(1)`` raises and the cursor moves past it, so
        that it can be set aside; a stream whose cursor stays gives nothing more until it can.
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
    """A stream that can pass over samples without reading them."""

    def skip_taken(self, taken: TakenBefore) -> None:
        """From the beginning, go on after what was taken before."""
        ...


def pass_over(stream: Stream, taken: TakenBefore) -> None:
    """Pass over what was taken before: unread if the stream can, or else one sample at a time."""
    if isinstance(stream, Skips):
        stream.skip_taken(taken)
        return
    for _ in range(taken.count):
        before = stream.cursor
        try:
            if not stream.take(1):
                return
        except Exception:  # it is not wanted, if only the stream goes on after it
            if stream.cursor == before:
                raise


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
        """Go on after so many samples."""
        self._position = min(self._position + taken.count, len(self._order))

    def take(self, count: int) -> list[Any]:
        """The next samples in order."""
        chosen = self._order[self._position : self._position + count]
        self._position += len(chosen)
        return [self._dataset[int(index)] for index in chosen]


class IterableStream:
    """Samples of anything that can be iterated anew, in the same order each time.

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
                "the iterable cannot be started anew; give a function that makes one"
            )
        self._samples, self._position = again, 0
        while self._position < int(cursor):
            try:
                self._next()
            except StopIteration:
                raise ConfigurationError(
                    f"the iterable has {self._position} samples, {cursor} were taken before"
                ) from None
            except Exception:  # noqa: S112 - it was set aside, and is not wanted now
                continue

    def take(self, count: int) -> list[Any]:
        """The next samples."""
        taken: list[Any] = []
        while len(taken) < count:
            try:
                taken.append(self._next())
            except StopIteration:
                break
        return taken

    def _next(self) -> Any:
        """The next sample; one that cannot be read counts, if the iterator goes on after it."""
        try:
            sample = next(self._samples)
        except StopIteration:
            raise
        except Exception:
            self._position += 1
            raise
        self._position += 1
        return sample


class FolderStream:
    """Files that arrive in a folder, in the order of their names, each as its bytes.

    Names must sort in the order of arrival (a time stamp, a counter with leading zeros): a file
    that sorts before one already taken is never seen. Write elsewhere and rename into the folder,
    so that no half-written file is taken; names that begin with a dot are passed over.
    """

    def __init__(self, folder: Path | str, pattern: str = "*") -> None:
        self._folder = Path(folder).expanduser()
        if not self._folder.is_dir():
            raise ConfigurationError(
                f"{folder} is no folder; create it before the stream is opened"
            )
        self._pattern = pattern
        self._last = ""
        self._waiting: list[str] = []

    @property
    def cursor(self) -> str:
        """The name of the last file taken."""
        return self._last

    def seek(self, cursor: str) -> None:
        """Go on after this file."""
        self._last = cursor
        self._waiting = []

    def skip_taken(self, taken: TakenBefore) -> None:
        """Go on after the last file taken; if it is gone, older ones are, and all here is fresh.

        Files are expected to leave a folder oldest first. What a count of files would pass over
        could be fresh, where those that were counted have left.
        """
        names = ["", *self._arrived()]
        known = next((place for place, name in enumerate(names) if taken.is_last(name)), None)
        if known is not None:
            self.seek(names[min(known + taken.after_last, len(names) - 1)])

    def take(self, count: int) -> list[bytes]:
        """The next files that have arrived by now; the folder is listed when none is waiting."""
        if len(self._waiting) < count:
            self._waiting = self._arrived()
        contents: list[bytes] = []
        while self._waiting and len(contents) < count:
            self._last = self._waiting.pop(0)
            contents.append((self._folder / self._last).read_bytes())
        return contents

    def _arrived(self) -> list[str]:
        """Names of the files that are there and were not taken, in order."""
        return sorted(
            path.name
            for path in self._folder.iterdir()
            if path.name > self._last
            and fnmatch.fnmatch(path.name, self._pattern)
            and not path.name.startswith(".")
            and path.is_file()
        )
