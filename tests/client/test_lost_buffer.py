"""A client that has lost its buffer goes on in its stream where the lost one was."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from client_parts import Sick
from saved_controller import saved_again

from tidegate.client.gate import Gate
from tidegate.client.store import Store
from tidegate.client.streams import FolderStream, IndexedStream, Stream
from tidegate.server.ledger import Ledger
from tidegate.wire import Order, Receipt, cursor_digest


@dataclass
class Client:
    """A client with a server's books; its buffer can be lost."""

    open_stream: Any
    ledger: Ledger = field(default_factory=lambda: Ledger("r"))
    now: int = 0

    def __post_init__(self) -> None:
        self.store = Store(None, "r", "site", 100)
        self.ledger.open("site", 100, self.store.books().buffer_id)

    def round(self, count: int, *, heard: bool = True) -> Receipt:
        """One order, by a new process; its answer arrives, or does not."""
        self.now += 1
        sent = Order(
            run="r", round_number=self.now, price=1.0, retention="oldest_first", count=count
        )
        address = self.ledger.account("site").address("r", "site")
        self.ledger.send("site", sent)
        receipt = Gate(self.store, self.open_stream()).apply(sent, address)
        if heard:
            self.ledger.book("site", receipt)
        return receipt

    def lose_buffer(self) -> None:
        self.store = Store(None, "r", "site", 100)
        self.ledger = saved_again(self.ledger)  # as after a restart
        self.ledger.begin_again("site", self.store.books().buffer_id)


def test_samples_of_a_lost_buffer_are_not_read_again() -> None:
    data = Sick(1000, frozenset({3, 4}))
    client = Client(lambda: IndexedStream(data))
    assert client.round(50).health == {"set_aside": 2}
    client.lose_buffer()
    data.reads.clear()
    assert client.round(5).admitted == 5
    assert data.reads == list(client.store.samples()) == list(range(52, 57))
    client.lose_buffer()
    client.round(2)
    assert list(client.store.samples()) == [57, 58]
    assert client.ledger.account("site").lost.read == 57


def test_what_was_never_answered_counts_as_taken() -> None:
    client = Client(lambda: IndexedStream(range(1000)))
    client.round(10)
    client.round(5, heard=False)
    client.lose_buffer()
    client.round(3)
    assert list(client.store.samples()) == [15, 16, 17]


class OneByOne:
    """A stream of somebody's own, which cannot skip."""

    def __init__(self, unreadable: int = -1, *, stays: bool = False) -> None:
        self._position, self._unreadable, self._stays = 0, unreadable, stays
        self.most = 0

    @property
    def cursor(self) -> str:
        return str(self._position)

    def seek(self, cursor: str) -> None:
        self._position = int(cursor)

    def take(self, count: int) -> Sequence[int]:
        self.most = max(self.most, count)
        start = self._position
        if start == self._unreadable and self._stays:
            raise OSError("the disk is away")
        self._position += count
        if start == self._unreadable:
            raise OSError("damaged")
        return range(start, start + count)


def test_a_stream_that_cannot_skip_is_read_one_by_one() -> None:
    stream: Any = OneByOne()
    client = Client(lambda: stream)
    client.round(40)
    client.lose_buffer()
    stream = OneByOne(unreadable=20)  # damaged since; nobody wants it any more
    client.round(2)
    assert list(client.store.samples()) == [40, 41]
    assert stream.most == 1
    assert isinstance(stream, OneByOne)


def test_a_stream_that_fails_while_it_skips_is_tried_again() -> None:
    stream = OneByOne()
    client = Client(lambda: stream)
    client.round(40)
    client.lose_buffer()
    stream = OneByOne(unreadable=20, stays=True)
    for _ in range(2):
        receipt = client.round(5)
        assert (receipt.admitted, receipt.is_dry, receipt.last_taken) == (0, True, "")
    stream = OneByOne()
    assert client.round(2).admitted == 2
    assert list(client.store.samples()) == [40, 41]


def files(folder: Path, numbers: Sequence[int]) -> None:
    for number in numbers:
        (folder / f"{number:03}").write_bytes(str(number).encode())


def held(client: Client) -> list[int]:
    return [int(content) for content in client.store.samples()]


def folder_client(folder: Path) -> Client:
    def open_stream() -> Stream:
        return FolderStream(folder)

    return Client(open_stream)


def test_a_folder_goes_on_after_the_last_file_taken(tmp_path: Path) -> None:
    files(tmp_path, range(20))
    client = folder_client(tmp_path)
    receipt = client.round(10)
    assert receipt.last_taken == cursor_digest("r", "site", "009")
    for number in range(5):  # the oldest have left: counting would pass over 10 to 14
        (tmp_path / f"{number:03}").unlink()
    client.lose_buffer()
    client.round(3)
    assert held(client) == [10, 11, 12]


def test_a_folder_whose_old_files_have_left_discards_nothing_fresh(tmp_path: Path) -> None:
    files(tmp_path, range(10))
    client = folder_client(tmp_path)
    client.round(10)
    for number in range(10):
        (tmp_path / f"{number:03}").unlink()
    files(tmp_path, range(10, 20))
    client.lose_buffer()
    assert client.round(10).admitted == 10
    assert held(client) == list(range(10, 20))


@pytest.mark.parametrize("heard_before", [0, 4])
def test_a_folder_passes_over_what_was_never_answered(tmp_path: Path, heard_before: int) -> None:
    files(tmp_path, range(20))
    client = folder_client(tmp_path)
    if heard_before:
        client.round(heard_before)
    client.round(5, heard=False)
    client.lose_buffer()
    client.round(2, heard=False)
    client.lose_buffer()
    client.round(2)
    assert held(client) == [heard_before + 7, heard_before + 8]
