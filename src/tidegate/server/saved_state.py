"""The server's state that changes from round to round, as a checkpoint keeps it."""

import io
import reprlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from tidegate._internal.saving import read, write
from tidegate.admission.allocation import Allocation
from tidegate.errors import RunDiffersError
from tidegate.wire import LARGEST_INTEGER

REMEDY = (
    "restore a copy of the folder from after its last round (clients refuse an older one), or "
    "start a new run in another folder"
)
"""What to do if the books of a run are damaged."""


@dataclass(frozen=True)
class SavedState:
    """State of the rule and of the allocation, in the shape of their policy."""

    server: Any
    allocation: Allocation


Saved = TypeVar("Saved")


def to_bytes(state: object) -> bytes:
    """Return a state as an archive."""
    file = io.BytesIO()
    write(state, file)
    return file.getvalue()


def from_bytes(shape: Saved, content: bytes, source: object) -> Saved:
    """Restore a state of this shape from ``to_bytes``; ``source`` names the file in errors."""
    return read(shape, io.BytesIO(content), source)


def check_terms(saved: Mapping[str, Any], given: Mapping[str, Any]) -> None:
    """Refuse to resume a run that was started with other terms."""
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
    """Refuse a saved record with impossible absences or an impossible last round."""
    counts = [record["ledger"]["closed_round"], *record["absences"].values()]
    if not all(type(count) is int and 0 <= count <= LARGEST_INTEGER for count in counts):
        raise ValueError(f"rounds must be whole numbers, got {reprlib.repr(counts)}")
