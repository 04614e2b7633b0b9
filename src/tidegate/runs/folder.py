"""The folder of a run: its files, and how they are read back and checked.

A server writes ``books.sqlite`` (its books), ``rounds.jsonl`` (what each round did),
``metrics.jsonl`` (metrics of the model) and, if clients have prices of their own, ``prices.jsonl``
(what each paid for a sample). An operator writes ``retired.jsonl`` (clients to retire), which the
server reads at the start of each round.
"""

from pathlib import Path

FORMAT_VERSION = 1
"""Format of everything that a run's server saves: raised whenever a table, an account, a row or a
term changes, so that another version says so instead of calling the file damaged."""
REMEDY = (
    "restore a copy of the folder from after its last round (clients refuse an older one), or "
    "start a new run in another folder"
)
"""What to do if one of its files is damaged."""
BOOKS = "books.sqlite"
LOCK = "lock"
"""A SQLite file that a server locks exclusively while it serves the run."""
ROUNDS = "rounds.jsonl"
METRICS = "metrics.jsonl"
PRICES = "prices.jsonl"
RETIRED = "retired.jsonl"
AS_THEY_COME = "as-they-come"
"""The folder of the run for the same money on samples as they come, in that of the run it stands
beside."""


def holds_run(folder: Path) -> bool:
    """Return whether a server has saved to a folder."""
    return (folder / BOOKS).exists()
