"""A client's file: its name, its mark and its tables."""

import hashlib
import json
import re
from pathlib import Path

from tidegate._internal.sqlite_file import FileKind

APPLICATION_ID = 0x71DE6A7E
"""Marks a file as ours, so that nobody else's database is ever changed."""
REMEDY = (
    "copy it to a safe place if you must account for what it held, and delete it; the client then "
    "begins again with an empty buffer"
)
SCHEMA = 1
"""The number of the format; raised with each change of the tables or of what is in them."""
TABLES = (
    "CREATE TABLE books (only INTEGER PRIMARY KEY CHECK (only = 1), content TEXT NOT NULL)",
    """CREATE TABLE samples (
        position INTEGER PRIMARY KEY, admitted_round INTEGER NOT NULL, uses INTEGER NOT NULL,
        bought_in INTEGER NOT NULL
    )""",
    # Apart from the counts, which change in every round, while contents never do.
    "CREATE TABLE contents (position INTEGER PRIMARY KEY, content BLOB NOT NULL)",
    """CREATE TABLE answers (
        round_number INTEGER PRIMARY KEY, sent_order TEXT NOT NULL, receipt TEXT NOT NULL
    )""",
    """CREATE TABLE failures (
        number INTEGER PRIMARY KEY, set_aside INTEGER NOT NULL, content TEXT NOT NULL
    )""",
    # Of candidates that were chosen ``choice`` is their order; those that wait have none.
    "CREATE TABLE candidates (number INTEGER PRIMARY KEY, key TEXT NOT NULL, choice INTEGER)",
    "CREATE UNIQUE INDEX candidate_keys ON candidates (key)",
    "CREATE TABLE candidate_contents (number INTEGER PRIMARY KEY, content BLOB NOT NULL)",
    """CREATE TABLE purchases (
        number INTEGER PRIMARY KEY, key TEXT NOT NULL, price REAL NOT NULL,
        round_number INTEGER NOT NULL, bought_in INTEGER NOT NULL, asked INTEGER NOT NULL
    )""",
    "CREATE UNIQUE INDEX purchase_keys ON purchases (key)",
    "CREATE TABLE purchase_contents (number INTEGER PRIMARY KEY, content BLOB NOT NULL)",
    # Of all content that is held: since when, its mark in the record, and whose it is.
    """CREATE TABLE origins (
        kind TEXT NOT NULL, number INTEGER NOT NULL, held_at INTEGER NOT NULL,
        secret BLOB NOT NULL, mark TEXT NOT NULL, subject TEXT NOT NULL,
        PRIMARY KEY (kind, number)
    ) WITHOUT ROWID""",
    """CREATE TABLE own_time (
        only INTEGER PRIMARY KEY CHECK (only = 1), own INTEGER NOT NULL, wall INTEGER NOT NULL,
        keep INTEGER NOT NULL
    )""",
    "CREATE TABLE record (number INTEGER PRIMARY KEY, content TEXT NOT NULL)",
    # What the entries up to a number added up to, before they were removed.
    """CREATE TABLE seal (
        only INTEGER PRIMARY KEY CHECK (only = 1), number INTEGER NOT NULL,
        digest TEXT NOT NULL, content TEXT NOT NULL
    )""",
)


def store_path(folder: Path, run: str, client: str) -> Path:
    """The file of one client in one run; ``client`` is its registered name or public key.

    >>> store_path(Path("data"), "run 7", "site-0").name
    'run_7-site-0-81aa4eed77220514a854d29b6141b802.sqlite'
    """
    readable = "-".join(re.sub(r"[^A-Za-z0-9._-]+", "_", name)[:40] for name in (run, client))
    # Names that read the same once cleaned, or were cut, must not share a file.
    exact = hashlib.sha256(json.dumps([run, client]).encode()).hexdigest()[:32]
    return folder / f"{readable}-{exact}.sqlite"


def buffer_kind() -> FileKind:
    """A client's buffer."""
    return FileKind("buffer", APPLICATION_ID, SCHEMA, TABLES, REMEDY)
