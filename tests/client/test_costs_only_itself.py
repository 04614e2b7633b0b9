"""One sample, one file or one purchase that is broken costs only itself."""

import os
import sqlite3
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tidegate.client.forgotten import Forgotten
from tidegate.client.gate import Gate
from tidegate.client.store import Store
from tidegate.client.streams import FolderStream, IndexedStream
from tidegate.client.supplier import Delivered, Outcome, Refused, Request
from tidegate.selection import Selection
from tidegate.wire import Order


def order(now: int, count: int = 3) -> Order:
    return Order(run="run", round_number=now, price=2.0, retention_horizon=99, count=count)


class Damaged(list[str]):
    """A data set whose first sample cannot be read."""

    def __getitem__(self, index: Any) -> Any:
        if index == 0:
            raise OSError("cut short")
        return super().__getitem__(index)


@pytest.mark.parametrize("selection", [None, Selection(candidates=5)])
def test_a_damaged_sample_before_many_forgotten_ones_holds_the_stream_up_for_no_longer(
    selection: Selection | None, tmp_path: Path
) -> None:
    samples = Damaged(["lost", *["ann"] * 1000, "bob", "cid", "dan"])
    Forgotten(tmp_path).add("ann")
    with Store(tmp_path / "a.sqlite", "run", "a", 9) as store:
        gate = Gate(store, IndexedStream(samples), selection=selection, subject=str)
        for now in range(1, 9):
            gate.apply(order(now))
        assert sorted(gate.samples()) == ["bob", "cid", "dan"]
        assert store.books().set_aside == 1


@pytest.mark.parametrize("selection", [None, Selection(candidates=2)])
def test_a_file_may_have_any_name(selection: Selection | None, tmp_path: Path) -> None:
    folder = tmp_path / "stream"
    folder.mkdir()
    for name in (b"caf\xe9.txt", b"plain.txt"):
        Path(os.fsdecode(os.fsencode(folder) + b"/" + name)).write_text("x")
    with Store(tmp_path / "a.sqlite", "run", "a", 9) as store:
        assert Gate(store, FolderStream(folder), selection=selection).apply(order(1)).admitted == 2


class Desk:
    """Sells what it is asked for when it is asked again, and is closed at first."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.is_open = False

    def ask(self, requests: Sequence[Request]) -> None:
        if not self.is_open:
            raise ConnectionError("closed")
        self.asked += [one.key for one in requests]

    def collect(self, keys: Sequence[str]) -> list[Outcome]:
        return [Delivered(key, "label") for key in keys if key in self.asked]

    def cancel(self, keys: Sequence[str]) -> list[Outcome]:
        return [Refused(key, refunded=True) for key in keys]

    def complete(self, sample: str, answer: str) -> str:
        return f"{sample}={answer}"


def test_a_purchase_that_cannot_be_read_keeps_no_other_from_being_asked_for(
    tmp_path: Path,
) -> None:
    path, supplier = tmp_path / "a.sqlite", Desk()
    with Store(path, "run", "a", 9) as store:
        Gate(store, IndexedStream("abcdef"), supplier=supplier).apply(order(1, 2))
    with closing(sqlite3.connect(path)) as file, file:
        first = "number = (SELECT min(number) FROM contents)"
        file.execute(f"UPDATE contents SET content = x'00' WHERE {first}")  # noqa: S608
    supplier.is_open = True
    with Store(path, "run", "a", 9) as store:
        gate = Gate(store, IndexedStream("abcdef"), supplier=supplier)
        gate.apply(order(2, 2))
        assert supplier.asked == [f"run/a/{place}" for place in (2, 3, 4)]
        gate.apply(order(3, 2))
        assert list(gate.samples()) == ["b=label", "c=label", "d=label"]
