"""What changes from round to round at the server, as a checkpoint keeps it."""

import io
import math
import reprlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tidegate._internal.saving import read, write
from tidegate.admission.allocation import Allocation
from tidegate.errors import RunDiffersError
from tidegate.policies import JointPolicy
from tidegate.wire import LARGEST_INTEGER

REMEDY = "take a copy of the folder from before, or start a new run in another folder"
"""What to do where the books of a run are damaged."""


@dataclass(frozen=True)
class SavedState:
    """State of the rule and of the allocation, in the shape of their policy."""

    server: Any
    allocation: Allocation


def to_bytes(server: Any, allocation: Allocation) -> bytes:
    """Both as one archive."""
    file = io.BytesIO()
    write(SavedState(server, allocation), file)
    return file.getvalue()


def from_bytes(policy: JointPolicy[Any], content: bytes, source: object) -> SavedState:
    """What ``to_bytes`` gave under the same policy; ``source`` names the file in errors."""
    shape = SavedState(policy.admission.start(), Allocation.start(policy.shares))
    return read(shape, io.BytesIO(content), source)


def check_terms(saved: Mapping[str, Any], given: Mapping[str, Any]) -> None:
    """Refuse to go on with a run that was begun on other terms."""
    for name, value in {**dict.fromkeys(given), **saved}.items():
        if value != given.get(name):
            raise RunDiffersError(
                f"the checkpoint was made with {name} = {value}, this run has {given.get(name)}; "
                "resume with the same, or start a new run in another folder",
                name=name,
                saved=value,
                given=given.get(name),
            )


def check_numbers(record: Mapping[str, Any]) -> None:
    """Refuse a saved record whose round, overspend or absences cannot be."""
    ledger, absences = record["ledger"], record["absences"]
    counts = [record["round_number"] - 1, ledger["closed_round"], *absences.values()]
    if not all(type(count) is int and 0 <= count <= LARGEST_INTEGER for count in counts):
        raise ValueError(f"rounds must be whole numbers, got {reprlib.repr(counts)}")
    if not math.isfinite(record["overspend"]):
        raise ValueError(f"overspend must be finite, got {record['overspend']}")
