"""Which of SQLite's errors say that somebody else holds a file."""

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from tidegate._internal.sqlite_errors import is_busy


def test_a_file_that_another_connection_holds_is_busy(tmp_path: Path) -> None:
    path = tmp_path / "file"
    with closing(sqlite3.connect(path, timeout=0, isolation_level=None)) as one:
        one.execute("PRAGMA journal_mode = WAL")
        one.execute("CREATE TABLE numbers (value)")
        with closing(sqlite3.connect(path, timeout=0, isolation_level=None)) as other:
            one.execute("BEGIN IMMEDIATE")
            with pytest.raises(sqlite3.OperationalError) as locked:
                other.execute("BEGIN IMMEDIATE")
            one.execute("COMMIT")
            other.execute("BEGIN")
            other.execute("SELECT * FROM numbers").fetchall()
            one.execute("INSERT INTO numbers VALUES (1)")
            with pytest.raises(sqlite3.OperationalError) as moved:
                other.execute("INSERT INTO numbers VALUES (2)")
    assert locked.value.sqlite_errorcode == sqlite3.SQLITE_BUSY
    assert moved.value.sqlite_errorcode == sqlite3.SQLITE_BUSY_SNAPSHOT  # with a reason added
    assert is_busy(locked.value)
    assert is_busy(moved.value)


def test_other_errors_are_not() -> None:
    with (
        closing(sqlite3.connect(":memory:")) as file,
        pytest.raises(sqlite3.OperationalError) as wrong,
    ):
        file.execute("SELECT * FROM absent")
    assert not is_busy(wrong.value)
    assert not is_busy(sqlite3.ProgrammingError("made without a code"))
