"""A Flower deployment on this machine: TLS, authenticated SuperNodes, one port each."""

import json
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tidegate.errors import SupplierError
from tidegate.rehearsal.certificates import write_certificates, write_node_key
from tidegate.rehearsal.processes import free_port, wait_for
from tidegate.rehearsal.superlink import CONNECTION, SuperLink, last_lines

LET_IN = b"SuperNode ID"
"""What a SuperNode prints once the SuperLink has accepted its key."""


class Deployment(SuperLink):
    """A SuperLink with TLS, and SuperNodes that must prove who they are.

    Args:
        folder: for certificates, keys, logs, and what nodes keep.
        more: options for ``flower-superlink``.
    """

    site = "site"
    """Nodes are registered as ``site-0``, ``site-1`` and so on."""
    restart_seconds = 10.0
    """From one start of a node to the next; each costs seconds, and may be refused for a minute."""

    def __init__(self, folder: Path, *more: str) -> None:
        certificates = folder / "certificates"
        for new in (certificates, folder / "keys"):
            new.mkdir(parents=True)
        write_certificates(certificates)
        self.nodes: dict[int, subprocess.Popen[bytes]] = {}
        self.starts: dict[int, int] = {}
        """How often each node was started."""
        self._started: dict[int, float] = {}
        self._place: dict[int, int] = {}
        self.ways: dict[int, int] = {}
        """The port by which a node reaches the SuperLink, where it is not the SuperLink's own."""
        options = [
            "--ssl-ca-certfile", str(certificates / "ca.crt"), "--ssl-certfile",
            str(certificates / "server.pem"), "--ssl-keyfile", str(certificates / "server.key"),
            "--enable-supernode-auth", *more,
        ]  # fmt: skip
        connection = f"root-certificates = {json.dumps(str(certificates / 'ca.crt'))}"
        super().__init__(folder, connection=connection, options=options)
        self.authority = certificates / "ca.crt"

    def name(self, number: int) -> str:
        """Return the name that a node is registered by."""
        return f"{self.site}-{number}"

    def key(self, number: int) -> Path:
        """Return the file of a node's private key."""
        return self.folder / "keys" / self.name(number)

    def buffers(self, number: int) -> Path:
        """Return the folder in which a node keeps its buffers."""
        return self.folder / "buffers" / self.name(number)

    def register(self, number: int) -> None:
        """Make a key for a node and register it by name."""
        write_node_key(self.key(number))
        self.flwr(
            "supernode", "register", f"{self.key(number)}.pub", CONNECTION,
            "--name", self.name(number),
        )  # fmt: skip

    def start_node(self, number: int, count: int) -> None:
        """Start a registered node, also again."""
        port = self.ways.get(number, self.port)
        self._started[number] = time.monotonic()
        self.starts[number] = self.starts.get(number, 0) + 1
        self.forget_output(number)
        folder = json.dumps(str(self.buffers(number)))
        self.nodes[number] = self.start(
            self.name(number),
            "flower-supernode", "--superlink", f"127.0.0.1:{port}", "--port", str(free_port()),
            "--root-certificates", str(self.authority),
            "--auth-supernode-private-key", str(self.key(number)), "--node-config",
            f"partition-id={number} num-partitions={count} tidegate-folder={folder}",
        )  # fmt: skip

    def start_nodes(self, count: int) -> None:
        """Register nodes and start them, all at once, and wait until they are online."""

        def start(number: int) -> None:
            self.register(number)
            self.start_node(number, count)

        with ThreadPoolExecutor() as at_once:
            list(at_once.map(start, range(count)))
        self.wait_for_nodes(count)

    def keep_node(self, number: int, count: int) -> None:
        """Start a node again if it has ended; one that was killed is refused for a while."""
        rested = time.monotonic() > self._started[number] + self.restart_seconds
        if self.nodes[number].poll() is not None and rested:
            self.start_node(number, count)

    def restart_node(self, number: int, count: int) -> None:
        """Start a node again, and again while it is refused because it was killed."""

        def back() -> bool | None:
            self.keep_node(number, count)
            return self.let_in(number) or None

        wait_for(back, f"{self.name(number)}'s return")
        self.wait_for_nodes(count)

    def let_in(self, number: int) -> bool:
        """Whether a node lives, and was let in by the SuperLink since it was started last."""
        return self.nodes[number].poll() is None and LET_IN in self.printed(number)

    def printed(self, number: int) -> bytes:
        """Return what a node has printed since it was started last."""
        with self.log_file(self.name(number)).open("rb") as log:
            log.seek(self._place[number])
            return log.read()

    def forget_output(self, number: int) -> None:
        """Look only at what a node prints from now on."""
        log = self.log_file(self.name(number))
        self._place[number] = log.stat().st_size if log.exists() else 0

    def online(self) -> int:
        """Return how many nodes the SuperLink can reach."""
        listed = json.loads(self.flwr("supernode", "list", CONNECTION, "--format", "json"))
        return sum(node["status"] == "online" for node in listed["nodes"])

    def wait_for_nodes(self, count: int) -> None:
        """Wait until nodes are online, by their own word and by the SuperLink's."""

        def all_online() -> bool | None:
            for number, node in self.nodes.items():
                if node.poll() is not None:
                    log = self.log_file(self.name(number))
                    raise SupplierError(
                        f"SuperNode {self.name(number)}", f"ended: {last_lines(log)}"
                    )
            # The nodes' own word first: to ask the SuperLink takes a second of work.
            return all(map(self.let_in, self.nodes)) or None

        def confirmed() -> bool | None:
            return self.online() == count or None

        wait_for(all_online, f"{count} nodes online")
        wait_for(confirmed, f"{count} nodes online", every=1.0)
