"""The sink of every run: it writes ``metrics.jsonl`` beside the books, and who serves the run."""

import contextlib
import importlib.metadata
import itertools
import json
import math
import os
import platform
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tidegate._internal.words import on_a_line
from tidegate.runs.folder import METRICS
from tidegate.runs.sinks import Moment, Source

MOST_NAMED = 1000
"""At most so many clients are named in a line."""
MOST_REASONS = 6
"""At most so many reasons for leaving clients out are written in a line."""


def this_machine() -> str:
    """Return the place in which a process id is valid."""
    with contextlib.suppress(OSError):  # a container has ids of its own
        return f"{platform.node()} {Path('/proc/self/ns/pid').readlink()}"
    return platform.node()


def this_boot() -> str:
    """Return the id of this boot, also in a container; empty if unknown."""
    with contextlib.suppress(OSError):
        return Path("/proc/sys/kernel/random/boot_id").read_text("ascii").strip()
    return ""


@dataclass(frozen=True)
class ServerMark:
    """A server's process, as the journal of its run names it."""

    pid: int
    machine: str
    boot: str
    """Id of the machine's boot; empty if unknown."""

    @property
    def is_near(self) -> bool:
        """Whether it started on this machine, whose kernel knows who holds a lock."""
        return self.boot == this_boot() if self.boot else self.is_numbered_here

    @property
    def is_numbered_here(self) -> bool:
        """Whether its id means the same process here; in a container it means another."""
        return self.machine == this_machine()

    @property
    def is_gone(self) -> bool:
        """Whether it has ended, as far as its id tells; unknown for another machine."""
        if not self.is_numbered_here:
            return False
        if self.boot not in ("", this_boot()):
            return True  # the machine was restarted since
        try:
            os.kill(self.pid, 0)
        except ProcessLookupError:
            return True
        except OSError:
            return False
        return _is_zombie(self.pid)


def _is_zombie(pid: int) -> bool:
    """Return whether a process has ended and only its id is left for its parent."""
    try:
        status = Path(f"/proc/{pid}/stat").read_bytes()
    except OSError:  # not Linux, or just gone
        return False
    return status.rpartition(b")")[2].split()[0] == b"Z"


class Journal:
    """The sink that writes ``metrics.jsonl``."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / METRICS
        self._left_out = _numbered({})
        """As the file has it."""

    def begin(self) -> None:
        """Note a new server; the one before may have died in the middle of a line."""
        before = "\n" if self._path.exists() else ""
        self._left_out = _numbered({})
        started = {"round": 0, "source": "started", "versions": versions(), "pid": os.getpid()}
        self._write(started | {"machine": this_machine(), "boot": this_boot()}, before)

    def decided(self, round_number: int, price: float) -> None:
        """Note when a round began."""
        self._write({"round": round_number, "source": "decided"})

    def settled(self, moment: Moment) -> None:
        """Note when it ended; what it did is in a file of its own."""
        line: dict[str, Any] = {"round": moment.done.round_number, "source": "settled"}
        line |= {"averaged": moment.averaged, "failed": len(moment.failed)}
        if moment.failed:
            names, reasons = list(moment.failed), list(moment.failed.values())
            line |= {"failed_clients": names[:MOST_NAMED], "error": on_a_line(reasons[0])}
        left_out = _numbered(moment.left_out)
        if left_out != self._left_out:  # or it would fill the file in a long run
            line["left_out"] = left_out
        self._write(line)
        self._left_out = left_out

    def measured(self, round_number: int, source: Source, metrics: Mapping[str, float]) -> None:
        """Write one line; values that are not finite become null."""
        finite = {name: value if math.isfinite(value) else None for name, value in metrics.items()}
        self._write({"round": round_number, "source": source, "metrics": finite})

    def close(self, *, failed: bool) -> None:
        """Note how this start of the server ended; a killed server writes nothing."""
        self._write({"round": 0, "source": "failed" if failed else "over"})

    def _write(self, line: dict[str, Any], before: str = "") -> None:
        text = json.dumps(line | {"at": round(time.time(), 3)})
        with self._path.open("a", encoding="utf-8") as lines:
            lines.write(f"{before}{text}\n")


def _numbered(left_out: Mapping[str, str]) -> dict[str, Any]:
    """Return who was left out, with the places of their reasons; many may have the same reason."""
    places = {reason: place for place, reason in enumerate(dict.fromkeys(left_out.values()))}
    named = itertools.islice(left_out.items(), MOST_NAMED)
    return {
        "clients": {name: places[reason] for name, reason in named},
        "reasons": [on_a_line(reason) for reason in itertools.islice(places, MOST_REASONS)],
    }


def versions() -> dict[str, str]:
    """Return the versions of what a run depends on, as far as it is installed."""
    packages = {"python": platform.python_version(), "machine": platform.machine()}
    for name in ("tidegate", "flwr", "numpy", "torch"):
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            packages[name] = importlib.metadata.version(name)
    return packages
