"""Processes of this machine: wait for what they do, find a free port, and end them."""

import os
import signal
import socket
import subprocess
import time
from collections.abc import Callable
from typing import TypeVar

Found = TypeVar("Found")

TIMEOUT = 240.0


def wait_for(
    look: Callable[[], Found | None], what: str, timeout: float = TIMEOUT, every: float = 0.05
) -> Found:
    """Look again and again until something is there; Flower's own commands take a second each.

    Args:
        look: gives what is waited for, or nothing yet.
        what: names it in the ``TimeoutError`` that is raised if it does not come.
        timeout: seconds to wait at most.
        every: seconds between two looks.

    >>> looks = iter([None, None, "there"])
    >>> wait_for(lambda: next(looks), "something", every=0.0)
    'there'
    """
    deadline = time.monotonic() + timeout
    while (found := look()) is None:
        if time.monotonic() > deadline:
            raise TimeoutError(f"{what} did not happen within {timeout:.0f} s")
        time.sleep(every)
    return found


def free_port() -> int:
    """Return a port of this machine that nobody listens on."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


def kill(process: subprocess.Popen[bytes]) -> None:
    """SIGKILL a process and all that it started; the number of one that has ended may be taken."""
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
