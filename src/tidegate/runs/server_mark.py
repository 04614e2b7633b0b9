"""The process that last served a run, and what this machine can tell about it."""

import contextlib
import os
import platform
from dataclasses import dataclass
from pathlib import Path


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
        told = Path(f"/proc/{pid}/stat").read_bytes()
    except OSError:  # not Linux, or just gone
        return False
    return told.rpartition(b")")[2].split()[0] == b"Z"
