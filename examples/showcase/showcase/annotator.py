"""The annotator: a service of its own, which is sent windows, answers later, and writes a bill.

It simulates a person with the labels of the data set. It knows nothing of Tidegate, and what it
bills is counted here, not in the fleet's books.
"""

import base64
import csv
import hashlib
import json
import threading
from dataclasses import asdict, dataclass, fields
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Self

import numpy as np

from showcase.data import ACTIVITIES, Windows
from showcase.readings import HOST

LONGEST_DELAY = 3
"""Rounds until an answer comes, at most; at least 1, each as likely."""


@dataclass
class Task:
    """A window that somebody pays to have labelled."""

    key: str
    fleet: str
    person: int
    price: float
    activity: str
    delay: int
    """How often the client must ask until the answer is ready; it asks once a round."""
    asked: int = 0
    """How often it did."""


class Annotator:
    """Serves ``/ask`` and ``/collect`` on a free port of this machine."""

    def __init__(self, windows: Windows, seed: int) -> None:
        """Get ready to work.

        Args:
            windows: with their labels, which only the annotator sees.
            seed: of the delays. The n-th label of a person takes equally long in every fleet.
        """
        self._seed = seed
        self._truth = {
            _digest(window.astype("<f4").tobytes()): ACTIVITIES[label]
            for window, label in zip(windows.readings, windows.labels, strict=True)
        }
        self._tasks = dict[str, Task]()
        self._one_at_a_time = threading.Lock()
        self._server = _Server(self)
        self._thread = threading.Thread(target=self._server.serve_forever, name="annotator")

    @property
    def port(self) -> int:
        """Where it listens."""
        return self._server.server_port

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    def ask(self, fleet: str, person: int, requests: list[dict[str, Any]]) -> list[str]:
        """Take windows to label; one that is known by its key is the same task, billed once."""
        with self._one_at_a_time:
            for one in requests:
                if one["key"] not in self._tasks:
                    activity = self._truth[_digest(base64.b64decode(one["window"]))]
                    number = len(self._of(fleet, person))
                    draw = np.random.default_rng([self._seed, person, number])
                    delay = int(draw.integers(1, LONGEST_DELAY + 1))
                    task = Task(one["key"], fleet, person, one["price"], activity, delay)
                    self._tasks[one["key"]] = task
        return [one["key"] for one in requests]

    def collect(self, keys: list[str]) -> dict[str, str]:
        """The activities of windows that are labelled by now, by their keys."""
        with self._one_at_a_time:
            known = [self._tasks[key] for key in keys if key in self._tasks]
            for task in known:
                task.asked += 1
            return {task.key: task.activity for task in known if task.asked >= task.delay}

    def bill(self, fleet: str) -> list[Task]:
        """What a fleet has to pay for, in the order in which it asked."""
        with self._one_at_a_time:
            return [task for task in self._tasks.values() if task.fleet == fleet]

    def write_bill(self, path: Path) -> None:
        """Everything that was asked for, one row a label."""
        with path.open("w", newline="") as file:
            rows = csv.DictWriter(file, [field.name for field in fields(Task)])
            rows.writeheader()
            rows.writerows(asdict(task) for task in self._tasks.values())

    def _of(self, fleet: str, person: int) -> list[Task]:
        tasks = self._tasks.values()
        return [task for task in tasks if (task.fleet, task.person) == (fleet, person)]


def _digest(window: bytes) -> bytes:
    return hashlib.sha256(window).digest()


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, annotator: Annotator) -> None:
        self.annotator = annotator
        super().__init__((HOST, 0), _Handler)


class _Handler(BaseHTTPRequestHandler):
    """JSON in, JSON out."""

    server: _Server

    def do_POST(self) -> None:
        """Answer one request."""
        given = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if self.path == "/ask":
            answer: Any = self.server.annotator.ask(**given)
        elif self.path == "/collect":
            answer = self.server.annotator.collect(**given)
        else:
            self.send_error(404)
            return
        content = json.dumps(answer).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_: object) -> None:
        """Keep quiet: the console belongs to the progress bars."""
