"""The folder of a run: the files in it, and how they are read back and checked.

A server writes ``control.npz`` (its books), ``rounds.jsonl`` (what each round did) and
``metrics.jsonl`` (what was measured about the model).
"""

from tidegate.server.saved_state import REMEDY

__all__ = [
    "CONTROL",
    "FORMAT_VERSION",
    "METRICS",
    "NOTHING_USED",
    "REMEDY",
    "RESUMING",
    "ROUNDS",
    "SAVING",
]

FORMAT_VERSION = 5
"""Of all that a run's server saves."""
CONTROL = "control.npz"
ROUNDS = "rounds.jsonl"
METRICS = "metrics.jsonl"
SAVING = "the run is saved in %s"
RESUMING = "resuming run %s after round %d"
NOTHING_USED = "nobody's model was used in round %d"
"""What a server logs as it begins, as it takes a run up again, and as a round ends in vain."""
