"""Whether a run's server lives: it holds the lock of the run's folder until it ends.

The lock goes with the process that holds it, whatever ends it: SIGKILL, or the power. Who looks
takes no lock, so that a server which starts meanwhile is not kept out.
"""

import fcntl
import os
import struct
import sys
from dataclasses import replace
from pathlib import Path

from tidegate.runs.folder import LOCK
from tidegate.runs.reader import RunView, read_run

_LAYOUTS = {"linux": ("hhqqi", 0, 4), "darwin": ("qqihh", 3, 2)}
"""Of C's ``struct flock``: its fields, and where type and process are among them."""


def server_process(folder: Path) -> int | None:
    """Return the process that serves the run in a folder; none if nobody does.

    Of a process in another container, or on another machine, the number is of no use here.

    Do not ask in the process that serves the run: POSIX takes all of its locks on a file away when
    it closes the file.

    Raises:
        OSError: it cannot be told, on this system or on this disk.
    """
    layout, kind, process = _LAYOUTS.get(sys.platform, ("", 0, 0))
    if not layout:
        raise OSError(f"it is not known how {sys.platform} tells who holds a lock")
    asked = [0] * len(layout)
    asked[kind] = fcntl.F_RDLCK  # whoever keeps readers out
    try:
        lock = os.open(folder / LOCK, os.O_RDONLY)
    except FileNotFoundError:
        return None
    try:
        answer = fcntl.fcntl(lock, fcntl.F_GETLK, struct.pack(layout, *asked))
    finally:
        os.close(lock)
    found = struct.unpack(layout, answer)
    return None if found[kind] == fcntl.F_UNLCK else int(found[process])


def read_watched(folder: Path) -> RunView:
    """Return what a folder says now, and at once whether its server lives: by its lock.

    Where the server is on another machine, the lock says nothing that can be relied on. A server
    that ends lets go of the lock, and writes that it has ended some seconds later at most, so one
    of the same process numbers is called gone only when its process is, too.
    """
    view = read_run(folder)
    server = view.server
    if server is None or not server.is_near:
        return view
    try:
        served = server_process(folder) is not None
    except OSError:
        return view
    gone = not served and not view.ending and (view.is_gone or not server.is_numbered_here)
    return replace(view, is_served=served, is_gone=gone)
