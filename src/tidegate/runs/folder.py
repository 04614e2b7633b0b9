"""The folder of a run: the files in it, and how they are read back and checked.

A server writes ``books.sqlite`` (its books), ``rounds.jsonl`` (what each round did),
``metrics.jsonl`` (what was measured about the model) and, where clients have prices of their own,
``prices.jsonl`` (what each paid for a sample). An operator writes ``retired.jsonl`` (who is
to leave the fleet for good), which the server reads at the start of each round. ``control.npz``
held the books up to format 6; from then on it tells older programs that a newer one wrote here.
"""

from pathlib import Path

from tidegate.server.saved_state import REMEDY

__all__ = [
    "BOOKS",
    "CONTROL",
    "FORMAT_VERSION",
    "LOCK",
    "METRICS",
    "NOTHING_USED",
    "OLDEST_FORMAT",
    "PRICES",
    "REMEDY",
    "RESUMING",
    "RETIRED",
    "ROUNDS",
    "SAVING",
    "holds_run",
]

FORMAT_VERSION = 7
"""Of all that a run's server saves: one more whenever an account, a row or a term gains a field, so
that an older program says that the file is newer, and does not take it for a damaged one."""
OLDEST_FORMAT = 5
"""That is read, too: what it does not have takes its default."""
BOOKS = "books.sqlite"
CONTROL = "control.npz"
LOCK = "lock"
"""A SQLite file that a server holds exclusively for as long as it serves the run."""
ROUNDS = "rounds.jsonl"
METRICS = "metrics.jsonl"
PRICES = "prices.jsonl"
RETIRED = "retired.jsonl"
SAVING = "the run is saved in %s"
RESUMING = "resuming run %s after round %d"
NOTHING_USED = "nobody's model was used in round %d"
"""What a server logs as it begins, as it takes a run up again, and as a round ends in vain."""


def holds_run(folder: Path) -> bool:
    """Whether a server has saved to a folder."""
    return (folder / BOOKS).exists() or (folder / CONTROL).exists()
