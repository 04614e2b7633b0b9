"""The server's state that changes from round to round, as a checkpoint keeps it."""

import io
from collections.abc import Mapping
from typing import Any, TypeVar

from tidegate._internal.saving import read, write
from tidegate.errors import RunDiffersError

REMEDY = (
    "restore a copy of the folder from after its last round (clients refuse an older one), or "
    "start a new run in another folder"
)
"""What to do if the books of a run are damaged."""

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
