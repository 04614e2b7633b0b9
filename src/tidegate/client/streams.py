"""Fresh samples for a client, one after another, each once.

A stream hands out samples with ``take(n)`` and says, with ``cursor``, how far it is; ``seek`` takes
it back there in a new process. It never repeats a sample: one that has run dry gives fewer.
"""

import fnmatch
import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Protocol

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
        """The next samples; fewer than asked for where there are no more (for now)."""
        ...


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
        skipped = sum(1 for _ in itertools.islice(again, int(cursor)))
        if skipped < int(cursor):
            raise ConfigurationError(
                f"the iterable has {skipped} samples, {cursor} were taken before"
            )
        self._samples, self._position = again, skipped

    def take(self, count: int) -> list[Any]:
        """The next samples."""
        taken = list(itertools.islice(self._samples, count))
        self._position += len(taken)
        return taken


class FolderStream:
    """Files that arrive in a folder, in the order of their names, each as its bytes.

    Names must sort in the order of arrival (a time stamp, a counter with leading zeros): a file
    that sorts before one already taken is never seen. Write elsewhere and rename into the folder,
    so that no half-written file is taken; names that begin with a dot are passed over.
    """

    def __init__(self, folder: Path, pattern: str = "*") -> None:
        if not folder.is_dir():
            raise ConfigurationError(
                f"{folder} is no folder; create it before the stream is opened"
            )
        self._folder = folder
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

    def take(self, count: int) -> list[bytes]:
        """The next files that have arrived by now; the folder is listed when none is waiting."""
        if len(self._waiting) < count:
            self._waiting = sorted(
                path.name
                for path in self._folder.iterdir()
                if path.name > self._last
                and fnmatch.fnmatch(path.name, self._pattern)
                and not path.name.startswith(".")
                and path.is_file()
            )
        names = self._waiting[:count]
        contents = [(self._folder / name).read_bytes() for name in names]
        if names:
            self._last = names[-1]
            self._waiting = self._waiting[count:]
        return contents
