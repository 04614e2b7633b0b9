"""Which process served a run last, and what can be told of it from here."""

import contextlib
import os
import platform
from dataclasses import dataclass
from pathlib import Path


def this_machine() -> str:
    """Where a process can be looked for by its number."""
    with contextlib.suppress(OSError):  # a container has numbers of its own
        return f"{platform.node()} {Path('/proc/self/ns/pid').readlink()}"
    return platform.node()


def this_boot() -> str:
    """Which start of which kernel this is, also in a container; empty where nobody says."""
    with contextlib.suppress(OSError):
        return Path("/proc/sys/kernel/random/boot_id").read_text("ascii").strip()
    return ""


@dataclass(frozen=True)
class ServerMark:
    """A server's process, as the journal of its run names it."""

    pid: int
    machine: str
    boot: str = ""
    """Empty in runs of earlier versions."""

    @property
    def is_near(self) -> bool:
        """Whether it began on this machine, whose kernel knows who holds a lock."""
        return self.boot == this_boot() if self.boot else self.is_numbered_here

    @property
    def is_numbered_here(self) -> bool:
        """Whether its number means the same process here; in a container it means another."""
        return self.machine == this_machine()

    @property
    def is_gone(self) -> bool:
        """Whether it has ended, as far as its number tells; of another machine's nobody can."""
        if not self.is_numbered_here:
            return False
        if self.boot not in ("", this_boot()):
            return True  # the machine was started anew since
        try:
            os.kill(self.pid, 0)
        except ProcessLookupError:
            return True
        except OSError:
            return False
        return _is_zombie(self.pid)


def _is_zombie(pid: int) -> bool:
    """Whether a process has ended, and only its number is left for whoever started it."""
    try:
        told = Path(f"/proc/{pid}/stat").read_bytes()
    except OSError:  # not on Linux, or gone just now
        return False
    return told.rpartition(b")")[2].split()[0] == b"Z"
