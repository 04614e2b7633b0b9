"""Keeps a deployment and one run on it alive, as an operator's service manager would."""

import contextlib
import json
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from deployment import Deployment

APP = Path(__file__).parent / "faulty_app"
RESTART_SECONDS = 6.0
"""From one start of a node to the next; each costs seconds, and may be refused for a minute."""
STATUS_SECONDS = 3.0
"""From one question about a run to the next."""


class Supervisor:
    """Starts again what has ended: nodes, and the run with its folder."""

    def __init__(
        self,
        fleet: Deployment,
        count: int,
        run_config: Mapping[str, Any],
        tell: Callable[[str], None],
    ) -> None:
        self.signals = fleet.folder / "signals"
        self.signals.mkdir()
        self.trace: list[dict[str, Any]] = []
        """What the server app noted: its starts, its rounds, its end."""
        self.launches = 0
        """How often the run was started."""
        self._fleet, self._count, self._tell = fleet, count, tell
        self._run_config = {**run_config, "signals": str(self.signals)}
        self._started: dict[int, float] = {}
        self._place: dict[int, int] = {}
        self._run_id = ""
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

    def start_node(self, number: int) -> None:
        """Start a node, also again."""
        self._started[number] = time.time()
        self._place[number] = self._log(number).stat().st_size if self._log(number).exists() else 0
        self._fleet.start_node(number, self._count)

    def keep_nodes(self) -> None:
        """Start nodes that have ended, or are of no use any more."""
        for number, node in self._fleet.nodes.items():
            if node.poll() is not None:
                if time.time() > self._started[number] + RESTART_SECONDS:
                    self.start_node(number)
            elif b"handshake error detected" in self._printed(number):
                # Flower's node takes a connection that breaks in its first bytes for a wrong
                # certificate: it stays, seems to be online, and fetches nothing any more.
                self._tell(f"partition-{number} has given up, and is started again")
                self._place[number] = self._log(number).stat().st_size
                node.terminate()

    def keep_run(self) -> None:
        """Start the run if no server app lives and none is on its way."""
        if not self.servers():
            with contextlib.suppress(RuntimeError):  # of a SuperLink that has just come back
                self._run()

    def all_back(self) -> bool:
        """Whether the SuperLink has let in all nodes since they were started last."""
        for number, node in self._fleet.nodes.items():
            if node.poll() is not None or b"SuperNode ID" not in self._printed(number):
                return False
        with contextlib.suppress(RuntimeError):
            return self._fleet.online() == self._count
        return False

    def _run(self) -> None:
        starts = sum(line["what"] == "start" for line in self.trace)
        if self._run_id and starts == self._starts:  # on its way, unless it has failed
            if time.time() < self._asked + STATUS_SECONDS:
                return
            self._asked = time.time()
            if not self._fleet.status(self._run_id).startswith("finished"):
                return
        self._starts, self._run_id = starts, self._fleet.run(APP, self._run_config)
        self._asked = time.time()
        self.launches += 1
        self._tell(f"the run is started, time {self.launches}")

    def _log(self, number: int) -> Path:
        return self._fleet.folder / f"node-{number}.log"

    def _printed(self, number: int) -> bytes:
        """What a node has printed since it was started last."""
        with self._log(number).open("rb") as log:
            log.seek(self._place[number])
            return log.read()
