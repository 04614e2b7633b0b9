import os
import sqlite3
import stat
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import pytest
from breakable import Disk, can_mount
from client_parts import uses_of

from tidegate._internal import sqlite_file
from tidegate.client import store as store_module
from tidegate.client.auditing import audit_file
from tidegate.client.codec import ArrayCodec
from tidegate.client.device_file import SCHEMA, store_path
from tidegate.client.gate import Gate
from tidegate.client.store import BooksMovedError, Store
from tidegate.client.streams import IndexedStream
from tidegate.errors import DamagedFileError, RunDiffersError, WireError
from tidegate.wire import Order


def order(now: int, count: int) -> Order:
    return Order(run="r", round_number=now, price=1.0, retention_horizon=3, count=count)


def test_the_file_is_written_as_promised(tmp_path: Path) -> None:
    store = Store(tmp_path / "a.sqlite", "r", "site", 5)
    settings = [
        store.file.execute(f"PRAGMA {name}").fetchone()[0]
        for name in ("journal_mode", "synchronous", "user_version")
    ]
    assert settings == ["wal", 2, SCHEMA]
    store.close()


def test_a_file_of_another_format_is_refused_and_stays_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "a.sqlite"
    store = Store(path, "r", "site", 5)
    Gate(store, IndexedStream("abcdef")).apply(order(1, 3))
    store.close()
    with closing(sqlite3.connect(path, isolation_level=None)) as file:
        file.execute(f"PRAGMA user_version = {SCHEMA + 1}")
    before = path.read_bytes()
    told = f"has format {SCHEMA + 1}, but this program reads {SCHEMA}: another version of Tidegate"
    with pytest.raises(RunDiffersError, match=told):
        Store(path, "r", "site", 5)
    with pytest.raises(RunDiffersError, match=told):
        audit_file(path)
    assert path.read_bytes() == before


@pytest.mark.parametrize("durable", [True, False])
def test_a_void_round_stays_void(tmp_path: Path, durable: bool) -> None:
    path = tmp_path / "a.sqlite"
    store = Store(path, "r", "site", 5) if durable else Store(None, "r", "site", 5)
    store.void(2)
    store.void(1)
    if durable:
        store.close()
        store = Store(path, "r", "site", 5)
    assert store.books().void_round == 2
    gate = Gate(store, IndexedStream("abcdef"))
    with pytest.raises(WireError, match="round 2 is void: the server no longer expects orders"):
        gate.apply(order(2, 3))
    assert gate.apply(order(3, 3)).admitted == 3
    if durable:
        store.close()


def test_a_file_of_another_run_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.sqlite"
    Store(path, "r", "site", 5).close()
    with pytest.raises(
        ValueError, match="belongs to 'site' in run 'r' with capacity 5, not to 'site' in run 's'"
    ):
        Store(path, "s", "site", 5)
    with pytest.raises(ValueError, match="not to 'other' in run 'r'"):
        Store(path, "r", "other", 5)
    with pytest.raises(ValueError, match="use another folder"):
        Store(path, "r", "site", 6)


def test_names_that_look_alike_have_files_of_their_own(tmp_path: Path) -> None:
    names = ["site/0", "site 0", "site_0", "x" * 60, "x" * 61, "..", "-----BEGIN KEY-----"]
    paths = {store_path(tmp_path, run, name) for name in names for run in ("run", "run 2")}
    assert len(paths) == 2 * len(names)
    assert all(path.parent == tmp_path for path in paths)


def test_two_processes_on_one_file_do_not_admit_twice(tmp_path: Path) -> None:
    path = tmp_path / "a.sqlite"
    one, two = Store(path, "r", "site", 9), Store(path, "r", "site", 9)
    first, second = (Gate(store, IndexedStream("abcdefghi")) for store in (one, two))
    assert first.apply(order(1, 2)) == second.apply(order(1, 2))
    second.apply(order(2, 2))
    first.apply(order(3, 2))
    assert list(first.samples()) == ["a", "b", "c", "d", "e", "f"]
    one.close()
    two.close()


def test_a_file_that_is_no_database_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.sqlite"
    path.write_bytes(b"not a database, certainly" * 100)
    with pytest.raises(ValueError, match=r"cannot be opened as a buffer: .*not a database"):
        Store(path, "r", "site", 5)


@pytest.mark.parametrize("durable", [True, False])
def test_a_mistake_in_somebodys_codec_is_not_called_damage(tmp_path: Path, durable: bool) -> None:
    class Mistaken(ArrayCodec):
        def decode(self, data: bytes) -> object:
            return data.colour  # type: ignore[attr-defined]

    path = tmp_path / "a.sqlite" if durable else None
    store = Store(path, "r", "site", 5, Mistaken())
    gate = Gate(store, IndexedStream("abc"))
    gate.apply(order(1, 2))
    with pytest.raises(AttributeError, match="colour"):
        list(gate.samples())
    if durable:
        store.close()


def test_somebody_elses_database_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "a.sqlite"
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE theirs (name TEXT)")
    connection.close()
    before = path.read_bytes()
    with pytest.raises(ValueError, match="is a database, but not a buffer"):
        Store(path, "r", "site", 5)
    assert path.read_bytes() == before


@pytest.mark.parametrize(
    "change", ["admitted = -5", "admitted = 1", "buffer_id = ''", "spent = 'x'", "orders = 2.5"]
)
def test_impossible_books_are_refused(tmp_path: Path, change: str) -> None:
    path = tmp_path / "a.sqlite"
    Store(path, "r", "site", 5).close()
    with sqlite3.connect(path) as connection:
        connection.execute(f"UPDATE clients SET {change}")  # noqa: S608
    connection.close()
    with pytest.raises(DamagedFileError, match="is damaged"):
        Store(path, "r", "site", 5)


def test_a_full_disk_leaves_the_books_right(tmp_path: Path) -> None:
    store = Store(tmp_path / "a.sqlite", "r", "site", 9)
    gate = Gate(store, IndexedStream([b"x" * 20_000] * 9))
    gate.apply(order(1, 2))
    pages = store.file.execute("PRAGMA page_count").fetchone()[0]
    store.file.execute(f"PRAGMA max_page_count = {pages + 1}")
    with pytest.raises(sqlite3.OperationalError, match="full"):
        gate.apply(order(2, 3))
    assert (store.books().last_round, len(store.samples())) == (1, 2)
    store.file.execute("PRAGMA max_page_count = 100000")
    assert gate.apply(order(2, 3)).admitted == 5
    store.close()


@pytest.mark.process
@pytest.mark.skipif(not can_mount(), reason="only root can mount a disk that is full")
def test_a_new_file_on_a_full_disk_is_refused_at_once(tmp_path: Path) -> None:
    with Disk(tmp_path / "disk", kilobytes=256) as disk:
        path = tmp_path / "disk" / "a.sqlite"
        disk.fill()
        before = time.monotonic()
        with pytest.raises(ValueError, match="buffer: database or disk is full; check that"):
            Store(path, "r", "site", 5)
        assert time.monotonic() - before < sqlite_file.BUSY_SECONDS / 2
        disk.free()
        Store(path, "r", "site", 5).close()


def test_a_new_file_may_be_opened_by_many_at_once(tmp_path: Path) -> None:
    def open_and_close(path: Path) -> int:
        store = Store(path, "r", "site", 5)
        try:
            return store.books().buffer_capacity
        finally:
            store.close()

    with ThreadPoolExecutor(8) as pool:
        for trial in range(40):
            path = tmp_path / f"{trial}.sqlite"
            assert list(pool.map(open_and_close, [path] * 8)) == [5] * 8


def marked(number: int) -> bytes:
    """Content that is found among any others, longer than a page of the file."""
    return b"sample-%06d-" % number * 1000


@pytest.mark.parametrize("stays_open", [True, False])
def test_a_sample_that_has_left_is_nowhere_in_the_files(tmp_path: Path, stays_open: bool) -> None:
    """K = 3 rounds, 2 samples each; the words are searched for in the file, its log, all of it."""
    path = tmp_path / "a.sqlite"
    pool = [marked(number) for number in range(100)]
    seen = set()
    store = Store(path, "r", "site", 6)
    for now in range(1, 21):
        Gate(store, IndexedStream(pool)).apply(order(now, 2))
        if not stays_open:
            store.close()
        found = b"".join(file.read_bytes() for file in tmp_path.iterdir())
        held = {number for number in range(100) if b"sample-%06d-" % number in found}
        assert held == set(range(max(2 * now - 6, 0), 2 * now))
        seen |= held
        if not stays_open:
            store = Store(path, "r", "site", 6)
    store.close()
    assert seen == set(range(40))


def test_a_reader_does_not_hold_up_a_commit_and_what_left_is_overwritten_after_it(
    tmp_path: Path,
) -> None:
    path = tmp_path / "a.sqlite"
    store = Store(path, "r", "site", 6)
    gate = Gate(store, IndexedStream([marked(number) for number in range(100)]))
    for now in range(1, 4):
        gate.apply(order(now, 2))
    with closing(sqlite3.connect(path)) as reader:
        reader.execute("BEGIN")
        reader.execute("SELECT * FROM clients").fetchall()
        started = time.monotonic()
        gate.apply(order(4, 2))
        assert time.monotonic() - started < sqlite_file.BUSY_SECONDS / 3
    gate.apply(order(5, 2))
    found = b"".join(file.read_bytes() for file in tmp_path.iterdir())
    assert not [number for number in range(4) if b"sample-%06d-" % number in found]
    store.close()


def test_only_the_owner_can_read_the_files(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        store = Store(tmp_path / "a.sqlite", "r", "site", 6)
        Gate(store, IndexedStream("abc")).apply(order(1, 2))
        files = sorted(tmp_path.iterdir())
        assert [file.name for file in files] == ["a.sqlite", "a.sqlite-shm", "a.sqlite-wal"]
        assert {stat.S_IMODE(file.stat().st_mode) for file in files} == {0o600}
        store.close()
        (tmp_path / "a.sqlite").chmod(0o644)
        Store(tmp_path / "a.sqlite", "r", "site", 6).close()
        assert stat.S_IMODE((tmp_path / "a.sqlite").stat().st_mode) == 0o600
    finally:
        os.umask(before)


@pytest.mark.parametrize("durable", [True, False])
def test_old_answers_are_dropped_and_use_counts_go_on(
    tmp_path: Path, durable: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store_module, "KEPT_ANSWERS", 5)
    path = tmp_path / "a.sqlite"
    store = Store(path, "r", "site", 6) if durable else Store(None, "r", "site", 6)
    gate = Gate(store, IndexedStream(range(100)))
    for now in range(1, 21):
        receipt = gate.apply(order(now, 2))
    assert [now for now in range(1, 21) if store.answer(now)] == [16, 17, 18, 19, 20]
    assert uses_of(store) == [3, 3, 2, 2, 1, 1]
    assert receipt.admitted == 40
    if durable:
        store.close()


@pytest.mark.parametrize("durable", [True, False])
def test_an_introduction_while_samples_are_acquired_does_not_have_them_acquired_again(
    tmp_path: Path, durable: bool
) -> None:
    path = tmp_path / "a.sqlite"
    store = Store(path, "r", "site", 6) if durable else Store(None, "r", "site", 6)
    asked = []

    def acquire(sample: object, key: str) -> object:
        asked.append(key)
        store.void(3)  # the server has been started again, and asks who is there
        return sample

    gate = Gate(store, IndexedStream("abcdef"), acquire)
    assert gate.apply(order(4, 2)).admitted == 2
    assert asked == ["r/site/1", "r/site/2"]
    assert store.books().void_round == 3

    def overtaken(sample: object, key: str) -> object:
        store.void(5)
        return sample

    with pytest.raises(BooksMovedError, match="rounds up to 5 are void"):
        Gate(store, IndexedStream("abcdef"), overtaken).apply(order(5, 1))
    assert store.books().admitted == 2
    if durable:
        store.close()
