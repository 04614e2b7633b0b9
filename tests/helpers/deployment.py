"""The package's own deployment, as tests and benchmarks start it."""

import contextlib
from collections.abc import Iterator
from pathlib import Path

from tidegate.rehearsal import deployment
from tidegate.rehearsal.certificates import write_certificates
from tidegate.rehearsal.processes import free_port, kill, wait_for
from tidegate.rehearsal.superlink import BIN, SuperLink

__all__ = [
    "BIN",
    "Deployment",
    "SuperLink",
    "deployed",
    "free_port",
    "kill",
    "simulated",
    "wait_for",
    "write_certificates",
]


class Deployment(deployment.Deployment):
    """Nodes have the names that they have in one process."""

    site = "partition"


@contextlib.contextmanager
def deployed(folder: Path, count: int) -> Iterator[Deployment]:
    """A deployment with nodes that are all online."""
    with Deployment(folder) as deployment:
        deployment.start_nodes(count)
        yield deployment


@contextlib.contextmanager
def simulated(folder: Path) -> Iterator[SuperLink]:
    """Flower's Simulation engine (Ray), behind a SuperLink of its own."""
    options = ["--insecure", "--simulation"]
    with SuperLink(folder, connection="insecure = true", options=options) as simulation:
        yield simulation
