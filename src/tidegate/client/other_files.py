"""Files beside buffers in which streams keep samples, which commands must find by themselves."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from tidegate._internal.guests import guests
from tidegate.client.limits import Clock

if TYPE_CHECKING:
    from tidegate.client.sweeping import Swept


@dataclass(frozen=True)
class OtherFiles:
    """SQLite files of one kind, which a guest enters as an entry point of ``tidegate.files``."""

    mark: int
    """Their ``application_id``."""
    sweep: "Callable[[Path, Clock], Swept]"
    """Overwrites what a file may no longer hold."""
    named: str
    """A query that returns a row if a file holds the hash of any subject."""


def other_files() -> list[OtherFiles]:
    """Return the kinds of files that installed guests keep samples in."""
    return guests("tidegate.files")
