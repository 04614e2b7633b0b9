import sqlite3
from pathlib import Path

import pytest

from tidegate.gate import Gate
from tidegate.retention import sqlite_store
from tidegate.retention.sqlite_store import SqliteStore, store_path
from tidegate.streams import IndexedStream
from tidegate.wire import Order


def order(now: int, count: int) -> Order:
    return Order(run="r", round_number=now, price=1.0, retention_horizon=3, count=count)


def test_the_file_is_written_as_promised(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "a.sqlite", "r", 5)
    settings = [
        store._connection.execute(f"PRAGMA {name}").fetchone()[0]
        for name in ("journal_mode", "synchronous", "user_version")
    ]
    assert settings == ["wal", 2, len(sqlite_store.MIGRATIONS)]
    store.close()


def test_an_older_file_is_brought_up_to_date(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "a.sqlite"
    store = SqliteStore(path, "r", 5)
    Gate(store, IndexedStream("abcdef")).apply(order(1, 3))
    store.close()
    newer = (*sqlite_store.MIGRATIONS, "ALTER TABLE samples ADD COLUMN origin TEXT")
    monkeypatch.setattr(sqlite_store, "MIGRATIONS", newer)
    store = SqliteStore(path, "r", 5)
    assert store.samples() == ["a", "b", "c"]
    assert store._connection.execute("SELECT origin FROM samples").fetchall() == [(None,)] * 3
    store.close()
    monkeypatch.undo()
    with pytest.raises(ValueError, match="has schema 2, this program knows 1"):
        SqliteStore(path, "r", 5)


def test_a_file_of_another_run_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.sqlite"
    SqliteStore(path, "r", 5).close()
    with pytest.raises(ValueError, match="belongs to run 'r' with capacity 5, not to 's' with 5"):
        SqliteStore(path, "s", 5)
    with pytest.raises(ValueError, match="use another folder"):
        SqliteStore(path, "r", 6)


def test_names_that_look_alike_have_files_of_their_own(tmp_path: Path) -> None:
    names = ["site/0", "site 0", "site_0", "x" * 60, "x" * 61, "..", "-----BEGIN KEY-----"]
    paths = {store_path(tmp_path, "run", name) for name in names}
    assert len(paths) == len(names)
    assert all(path.parent == tmp_path for path in paths)


def test_two_processes_on_one_file_do_not_admit_twice(tmp_path: Path) -> None:
    path = tmp_path / "a.sqlite"
    one, two = SqliteStore(path, "r", 9), SqliteStore(path, "r", 9)
    first, second = (Gate(store, IndexedStream("abcdefghi")) for store in (one, two))
    assert first.apply(order(1, 2)) == second.apply(order(1, 2))
    second.apply(order(2, 2))
    first.apply(order(3, 2))
    assert first.samples() == ["a", "b", "c", "d", "e", "f"]
    one.close()
    two.close()


def test_an_order_that_another_process_applied_meanwhile_is_not_committed(tmp_path: Path) -> None:
    path = tmp_path / "a.sqlite"
    one, two = SqliteStore(path, "r", 9), SqliteStore(path, "r", 9)
    racing = Gate(one, IndexedStream("abcdefghi"))

    class Late(IndexedStream):
        def take(self, count: int) -> list[str]:
            Gate(two, IndexedStream("abcdefghi")).apply(order(1, 2))
            return super().take(count)

    racing = Gate(one, Late("abcdefghi"))
    with pytest.raises(ValueError, match="round 1 is applied already"):
        racing.apply(order(1, 2))
    assert racing.apply(order(1, 2)).total_admitted == 2
    one.close()
    two.close()


def test_a_file_that_is_no_database_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.sqlite"
    path.write_bytes(b"not a database, certainly" * 100)
    with pytest.raises(sqlite3.DatabaseError):
        SqliteStore(path, "r", 5)
