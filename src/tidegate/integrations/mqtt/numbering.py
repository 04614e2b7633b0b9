"""Numbers that devices give their messages: which arrived, which twice, which are missing.

MQTT delivers a message at least once and forgets what a broker loses. Only the sender can say which
message it is: with a number that grows by one from message to message, repetitions are always
recognised, and holes show what was lost on the way.
"""

import sqlite3
from collections.abc import Callable

MOST_SOURCES = 10_000
"""Sources whose numbers are followed; a stranger who makes up names must not fill the disk."""
MOST_HOLES = 1000
"""Of one source that are remembered, so that what comes late is known to be missing."""
LARGEST_NUMBER = 2**63 - 1

TABLES = (
    """CREATE TABLE sources (
        number INTEGER PRIMARY KEY, source TEXT NOT NULL, newest INTEGER NOT NULL,
        missing INTEGER NOT NULL
    )""",
    "CREATE UNIQUE INDEX source_names ON sources (source)",
    """CREATE TABLE holes (
        number INTEGER PRIMARY KEY, of INTEGER NOT NULL, low INTEGER NOT NULL, high INTEGER NOT NULL
    )""",
    "CREATE INDEX holes_of ON holes (of, low)",
)

Execute = Callable[..., sqlite3.Cursor]


def follows(execute: Execute, source: str) -> bool:
    """Return whether the numbers of a source are followed, or can be from now on."""
    if execute("SELECT 1 FROM sources WHERE source = ?", (source,)).fetchone():
        return True
    ((count,),) = execute("SELECT count(*) FROM sources")
    return bool(count < MOST_SOURCES)


def note(execute: Execute, source: str, number: int) -> int | None:
    """Note a number; return how many are missing before it, or None if it came before.

    Missing numbers are counted from the first number that arrived. A late number fills its hole. A
    number below all known ones, without a remembered hole, came before.
    """
    row = execute("SELECT number, newest FROM sources WHERE source = ?", (source,)).fetchone()
    if row is None:
        execute("INSERT INTO sources (source, newest, missing) VALUES (?, ?, 0)", (source, number))
        return 0
    of, newest = row
    if number > newest:
        missed = number - newest - 1
        if missed:
            _open_hole(execute, of, newest + 1, number - 1)
        execute(
            "UPDATE sources SET newest = ?, missing = missing + ? WHERE number = ?",
            (number, missed, of),
        )
        return int(missed)
    return 0 if _fill(execute, of, number) else None


def missing(execute: Execute) -> dict[str, int]:
    """Return how many numbers are missing, by source; sources without any are left out."""
    return dict(execute("SELECT source, missing FROM sources WHERE missing > 0 ORDER BY source"))


def _open_hole(execute: Execute, of: int, low: int, high: int) -> None:
    execute("INSERT INTO holes (of, low, high) VALUES (?, ?, ?)", (of, low, high))
    execute(
        "DELETE FROM holes WHERE of = ? AND number NOT IN "
        "(SELECT number FROM holes WHERE of = ? ORDER BY low DESC LIMIT ?)",
        (of, of, MOST_HOLES),
    )


def _fill(execute: Execute, of: int, number: int) -> bool:
    hole = execute(
        "SELECT number, low, high FROM holes WHERE of = ? AND low <= ? AND high >= ?",
        (of, number, number),
    ).fetchone()
    if hole is None:
        return False
    place, low, high = hole
    execute("DELETE FROM holes WHERE number = ?", (place,))
    for first, last in ((low, number - 1), (number + 1, high)):
        if first <= last:
            execute("INSERT INTO holes (of, low, high) VALUES (?, ?, ?)", (of, first, last))
    execute("UPDATE sources SET missing = missing - 1 WHERE number = ?", (of,))
    return True
