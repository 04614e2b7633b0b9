"""Stores that are opened again and again, and data of which some cannot be read."""

from collections.abc import Callable, Collection, Iterator
from pathlib import Path

from tidegate.client.memory_store import MemoryStore
from tidegate.client.sqlite_store import SqliteStore
from tidegate.client.store import Store

Opener = Callable[[], Store]


def opener(kind: str, folder: Path, run: str, capacity: int) -> Iterator[Opener]:
    """Opens the store of a kind; for SQLite anew each time, as a new process would."""
    if kind == "memory":
        kept = MemoryStore(run, "site", capacity)
        yield lambda: kept
        return
    opened: list[SqliteStore] = []

    def reopen() -> Store:
        for one in opened:
            one.close()
        opened.append(SqliteStore(folder / "buffer.sqlite", run, "site", capacity))
        return opened[-1]

    yield reopen
    for one in opened:
        one.close()


class Sick:
    """A data set of whole numbers, some of which cannot be read; it knows what was tried."""

    def __init__(self, size: int, unreadable: Collection[int] = ()) -> None:
        self.size, self.unreadable = size, unreadable
        self.reads: list[int] = []

    def __len__(self) -> int:
        return self.size

    def __getitem__(self, index: int) -> int:
        self.reads.append(index)
        if index in self.unreadable:
            raise OSError(f"cannot read {index}")
        return index
