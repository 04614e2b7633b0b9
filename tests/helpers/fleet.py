"""The deployment that all tests of a run share, and that some of them break."""

import contextlib
from collections.abc import Callable
from pathlib import Path
from typing import Self

from breakable import Disk, Proxy, can_mount
from deployment import Deployment

from tidegate.errors import SupplierError

CLIENTS = 3
DISK_NODE = 1
"""The node whose disk can be full."""
CUT_NODE = 2
"""The node whose network can be cut."""


class Fleet(Deployment):
    """Three SuperNodes; one has a small disk, another a network that can be cut.

    Only root can mount a disk; for others, ``disk`` is None.
    """

    def __init__(self, folder: Path) -> None:
        # A SuperLink that is killed finds its nodes again in its database.
        super().__init__(folder, "--database", str(folder / "superlink.db"))
        self.proxy = Proxy(self.port)
        self.ways[CUT_NODE] = self.proxy.port
        self.disk = Disk(self.buffers(DISK_NODE)) if can_mount() else None
        self.in_use = False
        """Whether something is broken on purpose, or was left so."""
        self._open = contextlib.ExitStack()

    def __enter__(self) -> Self:
        with self._open:
            if self.disk is not None:
                self._open.enter_context(self.disk)
            self._open.callback(self.stop)
            self.start_link()
            self._open.enter_context(self.proxy)
            self.start_nodes(CLIENTS)
            self._open = self._open.pop_all()  # all is well: they stay open
        return self

    def __exit__(self, *_: object) -> None:
        self._open.close()

    @property
    def all_buffers(self) -> list[Path]:
        """Where the nodes keep their buffers."""
        return [self.buffers(number) for number in range(CLIENTS)]

    def is_whole(self) -> bool:
        """Whether nothing is broken and all nodes can be reached."""
        alive = self.link.poll() is None and all(map(self.let_in, self.nodes))
        with contextlib.suppress(SupplierError):
            return not self.in_use and alive and self.online() == CLIENTS
        return False


class SharedFleet:
    """One fleet for all, replaced by a new one where a test has left it broken.

    Args:
        new_folder: makes an empty folder.
    """

    def __init__(self, new_folder: Callable[[], Path]) -> None:
        self._new_folder = new_folder
        self._fleet: Fleet | None = None

    def whole(self) -> Fleet:
        """A fleet with all of its nodes online."""
        if self._fleet is None or not self._fleet.is_whole():
            self.stop()  # a node that was killed is refused for a minute: a new fleet is faster
            self._fleet = Fleet(self._new_folder()).__enter__()
        return self._fleet

    def stop(self) -> None:
        """End all that was started."""
        if self._fleet is not None:
            self._fleet.__exit__()
            self._fleet = None
