"""Whether a run's server is alive: it locks the run's folder until it ends.

The lock ends with the process that holds it, whatever ends that: SIGKILL, or a power loss. Readers
take no lock, so they do not keep out a server that starts meanwhile.
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
    """Return the id of the process that serves the run in a folder; None if there is none.

    The id of a process in another container, or on another machine, means nothing here.

    Do not call this in the process that serves the run: POSIX releases all of its locks on a file
    when it closes the file.

    Raises:
        OSError: this system or this disk cannot tell.
    """
    layout, kind, process = _LAYOUTS.get(sys.platform, ("", 0, 0))
    if not layout:
        raise OSError(f"cannot tell who holds a lock on {sys.platform}")
    question = [0] * len(layout)
    question[kind] = fcntl.F_RDLCK  # whoever keeps readers out
    try:
        lock = os.open(folder / LOCK, os.O_RDONLY)
    except FileNotFoundError:
        return None
    try:
        answer = fcntl.fcntl(lock, fcntl.F_GETLK, struct.pack(layout, *question))
    finally:
        os.close(lock)
    holder = struct.unpack(layout, answer)
    return None if holder[kind] == fcntl.F_UNLCK else int(holder[process])


def read_watched(folder: Path) -> RunView:
    """Read a folder, and tell by its lock whether its server is alive.

    If the server is on another machine, the lock is not reliable. A server that ends releases the
    lock and writes that it has ended at most some seconds later. Its process is therefore reported
    as gone only when it has ended, too, if its id is valid here.
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
