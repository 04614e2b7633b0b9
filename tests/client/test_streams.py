import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.client.gate import Gate
from tidegate.client.store import Store
from tidegate.client.streams import FolderStream, IndexedStream, IterableStream, Stream
from tidegate.selection import Selection
from tidegate.wire import Order


def make(kind: str, folder: Path) -> Stream:
    if kind == "indexed":
        return IndexedStream(list(range(10)))
    if kind == "iterable":
        return IterableStream(lambda: iter(range(10)))
    for number in range(10):
        (folder / f"{number:03}.bin").write_bytes(bytes([number]))
    return FolderStream(folder)


KINDS = ["indexed", "iterable", "folder"]


def plain(samples: object) -> list[int]:
    return [one[0] if isinstance(one, bytes) else one for one in samples]  # type: ignore[attr-defined]


@pytest.mark.parametrize("kind", KINDS)
def test_each_sample_comes_once_and_a_dry_stream_gives_fewer(kind: str, tmp_path: Path) -> None:
    stream = make(kind, tmp_path)
    taken = [plain(stream.take(count)) for count in (3, 0, 4, 9, 2)]
    assert taken == [[0, 1, 2], [], [3, 4, 5, 6], [7, 8, 9], []]


@pytest.mark.parametrize("kind", KINDS)
def test_a_new_process_goes_on_at_the_cursor(kind: str, tmp_path: Path) -> None:
    first = make(kind, tmp_path)
    first.take(4)
    cursor = first.cursor
    first.take(3)
    second = make(kind, tmp_path)
    second.seek(cursor)
    assert plain(second.take(3)) == [4, 5, 6]


@given(order=st.permutations(range(8)))
def test_an_order_is_followed(order: list[int]) -> None:
    assert IndexedStream("abcdefgh", order).take(8) == ["abcdefgh"[index] for index in order]


def test_files_that_arrive_later_are_taken_later(tmp_path: Path) -> None:
    stream = FolderStream(tmp_path, "*.txt")
    assert stream.take(5) == []
    (tmp_path / "2.txt").write_bytes(b"two")
    (tmp_path / "3.bin").write_bytes(b"not a text")
    (tmp_path / ".4.txt").write_bytes(b"half-written")
    (tmp_path / "5.txt").mkdir()
    assert stream.take(5) == [b"two"]
    (tmp_path / "1.txt").write_bytes(b"sorts before one already taken")
    assert stream.take(5) == []


def test_a_missing_folder_is_named(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="is not a folder; create it"):
        FolderStream(tmp_path / "nowhere")


def test_an_iterable_that_cannot_go_back_says_so() -> None:
    once = iter(range(10))
    stream = IterableStream(lambda: once)
    stream.take(3)
    with pytest.raises(ValueError, match="cannot be restarted"):
        stream.seek("1")


def test_an_iterable_that_became_shorter_says_so() -> None:
    stream = IterableStream(lambda: range(3))
    with pytest.raises(ValueError, match="has 3 samples, but 10 were taken before"):
        stream.seek("10")


def test_the_cursor_moves_past_a_file_that_cannot_be_read(tmp_path: Path) -> None:
    for name in ("1", "2", "3"):
        (tmp_path / name).write_bytes(name.encode())
    stream = FolderStream(tmp_path)
    assert stream.take(1) == [b"1"]
    (tmp_path / "2").unlink()
    with pytest.raises(FileNotFoundError):
        stream.take(1)
    assert stream.cursor == "2"
    assert stream.take(1) == [b"3"]


def test_an_iterable_goes_on_after_a_sample_that_cannot_be_read() -> None:
    stream = IterableStream(lambda: map(int, ["1", "two", "3", "4"]))
    assert stream.take(1) == [1]
    with pytest.raises(ValueError, match="two"):
        stream.take(1)
    assert (stream.cursor, stream.take(1)) == ("2", [3])
    again = IterableStream(lambda: map(int, ["1", "two", "3", "4"]))
    again.seek("3")
    assert again.take(5) == [4]


def test_a_folder_may_be_a_text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "1").write_bytes(b"one")
    assert FolderStream(str(tmp_path)).take(1) == [b"one"]
    monkeypatch.setenv("HOME", str(tmp_path.parent))
    assert FolderStream(f"~/{tmp_path.name}").take(1) == [b"one"]


def test_a_folder_stream_goes_back(tmp_path: Path) -> None:
    for number in range(5):
        (tmp_path / str(number)).write_bytes(str(number).encode())
    stream = FolderStream(tmp_path)
    before = stream.cursor
    stream.take(3)
    stream.seek(before)
    assert stream.take(2) == [b"0", b"1"]


@pytest.mark.parametrize("selection", [None, Selection(candidates=2)])
def test_a_file_may_have_a_name_that_is_not_utf_8(
    selection: Selection | None, tmp_path: Path
) -> None:
    folder = tmp_path / "stream"
    folder.mkdir()
    for name in (b"caf\xe9.txt", b"plain.txt"):
        Path(os.fsdecode(os.fsencode(folder) + b"/" + name)).write_text("x")
    order = Order(run="run", round_number=1, price=2.0, retention_horizon=9, count=2)
    with Store(tmp_path / "a.sqlite", "run", "a", 9) as store:
        gate = Gate(store, FolderStream(folder), selection=selection)
        assert gate.apply(order).admitted == 2
