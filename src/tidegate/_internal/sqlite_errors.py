"""What SQLite's errors mean."""

import sqlite3


def is_busy(wrong: sqlite3.Error) -> bool:
    """Whether another process or connection holds the file, so that a later try may succeed."""
    code = getattr(wrong, "sqlite_errorcode", sqlite3.SQLITE_ERROR)
    # SQLite adds to a code in higher bits why, such as that the file is being recovered.
    return code & 0xFF in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)
