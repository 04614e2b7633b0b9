"""Stores that are opened again and again, and data of which some cannot be read."""

from collections.abc import Callable, Collection, Iterator
from pathlib import Path
from typing import Any

from tidegate.client.store import State, Store

Opener = Callable[[], Store]


def opener(kind: str, folder: Path, run: str, capacity: int) -> Iterator[Opener]:
    """Opens the store of a kind; for SQLite anew each time, as a new process would."""
    if kind == "memory":
        kept = Store(None, run, "site", capacity)
        yield lambda: kept
        return
    opened: list[Store] = []

    def reopen() -> Store:
        for one in opened:
            one.close()
        opened.append(Store(folder / "buffer.sqlite", run, "site", capacity))
        return opened[-1]

    yield reopen
    for one in opened:
        one.close()


def uses_of(store: Store) -> list[int]:
    """The rounds that each stored sample has trained in, the oldest first."""
    orders = store.books().orders
    return [orders - sample.since for sample in store.held("stored")]


def contents_of(store: Store, *states: State) -> list[Any]:
    """What the samples in these states are."""
    contents = [store.content(sample.number) for sample in store.held(*states)]
    return [store.unpack(content or b"") for content in contents]


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
