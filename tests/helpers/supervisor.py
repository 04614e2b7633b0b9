"""Keeps a deployment and one run on it alive, as an operator's service manager would."""

import contextlib
import json
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from fleet import CLIENTS, Fleet

from tidegate.errors import SupplierError

APP = Path(__file__).parent / "faulty_app"
STATUS_SECONDS = 10.0
"""From one question about a run to the next."""


class Supervisor:
    """Starts again what has ended: nodes, and the run with its folder."""

    def __init__(
        self,
        fleet: Fleet,
        signals: Path,
        run_config: Mapping[str, Any],
        tell: Callable[[str], None],
    ) -> None:
        self.signals = signals
        """Where the app leaves notes."""
        self.signals.mkdir()
        self.trace: list[dict[str, Any]] = []
        """What the server app noted: its starts, its rounds, its end."""
        self.run_ids: list[str] = []
        """One for each time that the run was started."""
        self._fleet, self._tell = fleet, tell
        self._run_config = {**run_config, "signals": str(self.signals)}
        self._asked = 0.0
        self._starts = 0

    def news(self) -> list[dict[str, Any]]:
        """What the server app noted since the last call."""
        path, known = self.signals / "trace.jsonl", len(self.trace)
        if path.exists():
            self.trace = [json.loads(line) for line in path.read_text().splitlines()]
        return self.trace[known:]

    def servers(self) -> list[int]:
        """Server apps that live."""
        pids = {line["pid"] for line in self.trace if line["what"] == "start"}
        return [pid for pid in pids if self._fleet.owns(pid, "flwr-serverapp")]

    def keep_nodes(self) -> None:
        """Start nodes that have ended, or are of no use any more."""
        for number, node in self._fleet.nodes.items():
            self._fleet.keep_node(number, CLIENTS)
            if b"handshake error detected" in self._fleet.printed(number):
                # Flower's node takes a connection that breaks in its first bytes for a wrong
                # certificate: it stays, seems to be online, and fetches nothing any more.
                self._tell(f"partition-{number} has given up, and is started again")
                self._fleet.forget_output(number)
                node.terminate()

    def keep_run(self) -> None:
        """Start the run if no server app lives and none is on its way."""
        if not self.servers():
            with contextlib.suppress(SupplierError):  # of a SuperLink that has just come back
                self._run()

    def all_back(self) -> bool:
        """Whether the SuperLink has let in all nodes since they were started last."""
        if not all(map(self._fleet.let_in, self._fleet.nodes)):
            return False
        with contextlib.suppress(SupplierError):
            return self._fleet.online() == CLIENTS
        return False

    def _run(self) -> None:
        starts = sum(line["what"] == "start" for line in self.trace)
        if self.run_ids and starts == self._starts:  # on its way, unless it has failed
            if time.time() < self._asked + STATUS_SECONDS:
                return
            self._asked = time.time()
            if not self._fleet.status(self.run_ids[-1]).startswith("finished"):
                return
        self._starts = starts
        self.run_ids.append(self._fleet.run(APP, self._run_config))
        self._asked = time.time()
        self._tell(f"the run is started, time {len(self.run_ids)}")
