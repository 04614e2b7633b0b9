"""The fleets: the same app three times at once, each in a process of its own."""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from showcase import ShowcaseError

APP = Path(__file__).parents[1]
CANDIDATES = 6
"""Windows that a client reads for an order."""
PRICE = 0.25
"""Of a label."""
LABELS = 2
"""That the budget of a round buys for each person."""


@dataclass(frozen=True)
class Fleet:
    """A way to choose among windows, and the run that does so."""

    name: str
    """Of its run, and of its folder."""
    told: str
    """In tables and pictures."""
    ranking: str
    random_share: float


FLEETS = (
    Fleet("random", "at random", "random", 0.0),
    Fleet("half-margin", "half by margin", "margin", 0.5),
    Fleet("margin", "all by margin", "margin", 0.0),
)


@dataclass(frozen=True)
class Stage:
    """What all fleets share."""

    out: Path
    """The folder for everything, absolute."""
    data: str
    """Folder with HAPT; ``$TIDEGATE_DATA`` if empty."""
    people: range
    rounds: int
    seed: int
    broker_port: int
    annotator_port: int

    def command(self, fleet: Fleet) -> list[str]:
        """``tidegate run`` of this app, with what is special about a fleet."""
        settings = {
            "num-server-rounds": self.rounds,
            "ranking": fleet.ranking,
            "random-share": fleet.random_share,
            "price": PRICE,
            "budget": PRICE * LABELS * len(self.people),
            "candidates": CANDIDATES,
            "seed": self.seed,
            "data": self.data and Path(self.data).absolute(),
            "broker-port": self.broker_port,
            "annotator-port": self.annotator_port,
            "spools": self.out / "spools",
            "run": fleet.name,
            "folder": self.out / fleet.name,
        }
        changes = [part for name, one in settings.items() for part in ("--set", f"{name}={one}")]
        clients = "--clients", str(len(self.people))
        return [sys.executable, "-m", "tidegate", "run", str(APP), *clients, *changes]


class Running:
    """Fleets at work."""

    def __init__(self, stage: Stage) -> None:
        self._stage = stage
        self._processes = dict[str, subprocess.Popen[bytes]]()

    def start(self) -> None:
        """Start all of them."""
        for fleet in FLEETS:
            with self._log(fleet.name).open("wb") as log:
                self._processes[fleet.name] = subprocess.Popen(  # noqa: S603 - our own command
                    self._stage.command(fleet),
                    stdout=log,
                    stderr=log,
                    env={"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", **os.environ},
                )

    def goes_on(self) -> bool:
        """Whether a fleet has rounds before it.

        Raises:
            ShowcaseError: a fleet failed.
        """
        codes = {name: process.poll() for name, process in self._processes.items()}
        for name, code in codes.items():
            if code:
                last = " ".join(self._log(name).read_text().strip().splitlines()[-1:])
                raise ShowcaseError(f"the fleet {name} failed: {last}; see {self._log(name)}")
        return None in codes.values()

    def rounds(self, fleet: Fleet) -> int:
        """Rounds that a fleet has settled."""
        rows = self._stage.out / fleet.name / "rounds.jsonl"
        return rows.read_bytes().count(b"\n") if rows.exists() else 0

    def stop(self) -> None:
        """End those that are not over."""
        for process in self._processes.values():
            process.terminate()
        for process in self._processes.values():
            process.wait()

    def _log(self, name: str) -> Path:
        return self._stage.out / f"{name}.log"


@contextmanager
def running(stage: Stage) -> Iterator[Running]:
    """Start all fleets; none outlives the showcase."""
    fleets = Running(stage)
    try:
        fleets.start()
        yield fleets
    finally:
        fleets.stop()
