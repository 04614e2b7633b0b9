"""A network that can be cut and a disk that can be full."""

import contextlib
import os
import socket
import struct
import subprocess
import tempfile
import threading
from pathlib import Path
from typing import Self


class Proxy:
    """Passes bytes on to a port of this machine until it is cut; then connections are refused."""

    def __init__(self, port: int) -> None:
        self._to = port
        self._listener = _bound(0)
        self.port = int(self._listener.getsockname()[1])
        self._lock = threading.Lock()
        self._open: set[socket.socket] = set()
        self._cuts = 1
        self.dropped = 0
        """Connections that were cut."""

    def __enter__(self) -> Self:
        self.heal()
        return self

    def __exit__(self, *_: object) -> None:
        self.cut()
        self._listener.close()

    def cut(self) -> None:
        """Drop all connections, and let nobody in; cut twice, it must be healed twice."""
        self._cuts += 1
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)  # wakes the thread that waits for others
        self._listener.close()
        self._listener = _bound(self.port)  # nobody else gets the port, and nobody is answered
        with self._lock:
            self.dropped += len(self._open) // 2
            for end in self._open:
                _reset(end)
            self._open.clear()

    def heal(self) -> None:
        """Let connections through again."""
        self._cuts -= 1
        if self._cuts:
            return
        self._listener.listen()
        threading.Thread(target=self._serve, args=[self._listener], daemon=True).start()

    def _serve(self, listener: socket.socket) -> None:
        with contextlib.suppress(OSError):  # it was closed
            while True:
                near, _ = listener.accept()
                self._let_through(near)

    def _let_through(self, near: socket.socket) -> None:
        try:
            far = socket.create_connection(("127.0.0.1", self._to))
        except OSError:
            _reset(near)
            return
        with self._lock:
            self._open |= {near, far}
        for pair in ((near, far), (far, near)):
            threading.Thread(target=self._pass_on, args=pair, daemon=True).start()

    def _pass_on(self, source: socket.socket, sink: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while received := source.recv(65536):
                sink.sendall(received)
        with self._lock:
            for end in {source, sink} & self._open:
                _reset(end)
            self._open -= {source, sink}


def _bound(port: int) -> socket.socket:
    """A socket that has a port and does not listen: who tries to connect is refused."""
    bound = socket.socket()
    bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    bound.bind(("127.0.0.1", port))
    return bound


def _reset(end: socket.socket) -> None:
    with contextlib.suppress(OSError):
        end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        end.shutdown(socket.SHUT_RDWR)
    end.close()


class Disk:
    """A small disk of its own for one folder; only root can mount one."""

    def __init__(self, folder: Path, kilobytes: int = 8192) -> None:
        self._folder = folder
        self._kilobytes = kilobytes

    def __enter__(self) -> Self:
        self._folder.mkdir(parents=True, exist_ok=True)
        size = f"size={self._kilobytes}k"
        subprocess.run(
            ["mount", "-t", "tmpfs", "-o", size, "tmpfs", str(self._folder)],
            check=True,
            capture_output=True,
        )
        return self

    def __exit__(self, *_: object) -> None:
        subprocess.run(["umount", "--lazy", str(self._folder)], check=True, capture_output=True)

    def fill(self) -> None:
        """Leave no byte free."""
        filler = (self._folder / "filler").open("ab", buffering=0)
        with contextlib.suppress(OSError), filler:
            while True:
                filler.write(bytes(4096))

    def free(self) -> None:
        """Give the space back."""
        (self._folder / "filler").unlink()


def can_mount() -> bool:
    """Whether a disk can be made here."""
    if not hasattr(os, "geteuid") or os.geteuid() != 0:
        return False
    with tempfile.TemporaryDirectory() as folder:
        try:
            with Disk(Path(folder)):
                return True
        except (OSError, subprocess.CalledProcessError):
            return False
