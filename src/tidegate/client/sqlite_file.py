"""A buffer's file: its tables, how an older one gets them, and what counts as damage."""

import sqlite3

APPLICATION_ID = 0x71DE6A7E
"""Marks a file as ours, so that nobody else's database is ever changed."""

MIGRATIONS: tuple[tuple[str, ...], ...] = (
    (
        "CREATE TABLE books (only INTEGER PRIMARY KEY CHECK (only = 1), content TEXT NOT NULL)",
        """CREATE TABLE samples (
            position INTEGER PRIMARY KEY, admitted_round INTEGER NOT NULL, uses INTEGER NOT NULL
        )""",
        # Apart from the counts, which change in every round, while contents never do.
        "CREATE TABLE contents (position INTEGER PRIMARY KEY, content BLOB NOT NULL)",
        """CREATE TABLE answers (
            round_number INTEGER PRIMARY KEY, sent_order TEXT NOT NULL, receipt TEXT NOT NULL
        )""",
    ),
    (
        """CREATE TABLE failures (
            number INTEGER PRIMARY KEY, set_aside INTEGER NOT NULL, content TEXT NOT NULL
        )""",
    ),
)
"""Statements number v take a file of schema version v to version v + 1."""


def is_damage(wrong: sqlite3.DatabaseError | OverflowError) -> bool:
    """Whether it is the file's content; a full disk or a locked file is not."""
    code = getattr(wrong, "sqlite_errorcode", sqlite3.SQLITE_ERROR)
    return not isinstance(wrong, sqlite3.OperationalError) or code == sqlite3.SQLITE_ERROR
