"""A run on a real deployment in which things break, and what came of it.

SuperLink, server app and SuperNodes are killed and stopped, the disk of one node is full and the
network of another is cut. What died is started again, a run that ended is
started again with its folder, and afterwards all books must agree.
"""

import statistics
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from books import client_files, discrepancies, rows
from breaker import KINDS, Breaker, Fault
from deployment import wait_for
from fleet import CLIENTS, Fleet
from supervisor import APP, Supervisor

from tidegate.client.codec import ArrayCodec

LAST_ROUNDS = 2
"""Rounds at the end that nothing disturbs, so that everybody is heard once more."""
TIME_TO_LIVE = 60.0
"""Seconds in which an order can be answered, late if not in time."""
TICK = 0.2


@dataclass
class Happened:
    """A fault that was done."""

    fault: Fault
    began: float
    ended: float | None = None
    recovered: float | None = None
    """When the first round closed that began after the end and in which the target took part."""
    missed: int = 0
    """Rounds that were closed without the node meanwhile."""

    @property
    def recovery(self) -> float | None:
        """Seconds from the end of the fault."""
        if self.ended is None or self.recovered is None:
            return None
        return self.recovered - self.ended


class Drill:
    """One run under faults, on a fleet that is whole; it is so again after a run that ended.

    Args:
        fleet: the deployment.
        folder: for the server's books and the app's notes; its name is the run's.
        faults: what will be broken.
        rounds: of the run.
        last_rounds: rounds at the end that nothing disturbs.
        timeout: seconds that a round waits for its clients, until all is calm.
        tell: is told what happens.
        run_config: more of it.
    """

    def __init__(
        self,
        fleet: Fleet,
        folder: Path,
        faults: Sequence[Fault],
        rounds: int,
        *,
        last_rounds: int = LAST_ROUNDS,
        timeout: float = 20.0,
        tell: Callable[[str], None] = lambda text: None,
        run_config: Mapping[str, Any] | None = None,
    ) -> None:
        self.fleet = fleet
        self.folder = folder / "run"
        """The server's books."""
        self.happened: list[Happened] = []
        self._run, self._rounds, self._tell = folder.name, rounds, tell
        self._calm_round = rounds - last_rounds
        self._breaker = Breaker(fleet)
        config = {
            "run": self._run,
            "folder": str(self.folder),
            "num-server-rounds": rounds,
            "calm-round": self._calm_round,
            "train-seconds": 1.0,
            "timeout": timeout,
            "time-to-live": TIME_TO_LIVE,
            **(run_config or {}),
        }
        folder.mkdir()
        self.supervisor = Supervisor(fleet, folder / "signals", config, self._say)
        self._waiting = list(faults)
        self._undisturbed: list[float] = []
        self._begun = time.time()
        self._played, self._since, self._before = 0, 0.0, 0.0

    def play(self, seconds: float) -> None:
        """Let the run go on until its end, with all that breaks on the way."""
        self.fleet.in_use = True  # and so it stays if this fails
        wait_for(self._step, f"the end of a run of {self._rounds} rounds", seconds, every=TICK)
        self.fleet.in_use = False

    def reconciled(self) -> list[str]:
        """Where the books differ; nobody must be writing any more."""
        files = self.client_files()
        return [*discrepancies(self.folder, files), *_wrong_samples(files)]

    def client_files(self) -> dict[str, dict[str, Any]]:
        """What each client's own file says."""
        return client_files(self._run, *self.fleet.all_buffers)

    def report(self) -> dict[str, Any]:
        """What happened, by kind of fault, as JSON can carry it."""
        by_kind = {
            kind: _summed([one for one in self.happened if one.fault.kind == kind])
            for kind in KINDS
        }
        signals = sum(one.fault.kind.endswith(("killed", "stopped")) for one in self.happened)
        whole = self._undisturbed
        return {
            "kinds": by_kind,
            "faults": len(self.happened),
            "signals": signals,
            "not_begun": len(self._waiting),
            "rounds": len(rows(self.folder)),
            "run_starts": len(self.supervisor.run_ids),
            "undisturbed_round_seconds": round(statistics.median(whole), 1) if whole else None,
        }

    def _step(self) -> bool | None:
        for line in self.supervisor.news():
            if line["what"] == "round":
                self._see_round(line["round"], self._before, line["time"], line["heard"])
            self._before = line["time"]
            if line["what"] == "end":
                return True
        for one in self._active():
            self._go_on(one)
        self.supervisor.keep_nodes()
        if not any(one.fault.kind.startswith("SuperLink") for one in self._active()):
            self.supervisor.keep_run()
        if self._played <= self._calm_round:
            self._break_what_is_due()
        if self._played >= self._calm_round:
            self._calm_down()
        return None

    def _see_round(self, number: int, began: float, closed: float, heard: Sequence[str]) -> None:
        """Note for each fault whether the round missed its target, or has it back."""
        self._played, self._since = number, time.time()
        disturbed = len(heard) < CLIENTS
        for one in self.happened:
            if one.recovered is not None or closed < one.began:
                continue
            disturbed = True
            if one.fault.node >= 0 and one.fault.target not in heard:
                one.missed += 1
            elif one.ended is not None and began > one.ended:
                one.recovered = closed
                self._say(f"{one.fault}: back {closed - one.ended:.0f} s after its end")
        if not disturbed:
            self._undisturbed.append(closed - began)

    def _active(self) -> list[Happened]:
        return [one for one in self.happened if one.ended is None]

    def _go_on(self, one: Happened) -> None:
        """Keep up a fault, and end one that has lasted long enough."""
        fault, now = one.fault, time.time()
        self._breaker.hold(fault)
        if now >= one.began + fault.seconds and one.missed >= fault.until_missed:
            one.ended = now
            self._say(f"{fault}: over after {now - one.began:.0f} s")
            self._breaker.end(fault, self.supervisor.servers())

    def _break_what_is_due(self) -> None:
        busy = {
            one.fault.target
            for one in self.happened
            if one.ended is None or (one.fault.at_once and one.recovered is None)
        }
        for fault in list(self._waiting):
            now = time.time()
            due = fault.after_round < self._played or (
                fault.after_round == self._played and now >= self._since + fault.delay
            )
            noted = not fault.note or (self.supervisor.signals / fault.note).exists()
            if not due or not noted or fault.target in busy:
                continue
            if self._breaker.begin(fault, self.supervisor.servers()):
                self._say(str(fault))
                self._waiting.remove(fault)
                self.happened.append(Happened(fault, now, ended=now if fault.at_once else None))
                busy.add(fault.target)

    def _calm_down(self) -> None:
        """Let the last rounds be played once nothing is broken and everybody is back."""
        calm = self.supervisor.signals / "calm"
        if not calm.exists() and not self._active() and self.supervisor.all_back():
            self._say("all is calm, the last rounds are played")
            calm.touch()

    def _say(self, text: str) -> None:
        self._tell(f"[{time.time() - self._begun:6.1f} s, round {self._played:3d}] {text}")


def _summed(happened: Sequence[Happened]) -> dict[str, Any]:
    """Faults of one kind in figures."""
    times = [round(one.recovery, 1) for one in happened if one.recovery is not None]
    return {
        "faults": len(happened),
        "rounds_missed": sum(one.missed for one in happened),
        "recovered": len(times),
        "recovery_seconds": times,
        "median": round(statistics.median(times), 1) if times else None,
        "worst": max(times, default=None),
    }


def _wrong_samples(files: dict[str, dict[str, Any]]) -> list[str]:
    """Samples that are not those of their place in the stream."""
    sys.path.insert(0, str(APP))
    try:
        from faulty.client_app import points_of
    finally:
        sys.path.remove(str(APP))
    codec, wrong = ArrayCodec(), []
    for number in range(CLIENTS):
        name, points = f"partition-{number}", points_of(number)
        for key, content in files.get(name, {}).get("samples", []):
            position = int(key.rsplit("/", 1)[1]) - 1
            point, target = codec.decode(content)
            if not np.array_equal(point, points[position][0]) or target != points[position][1]:
                wrong.append(f"{name}: sample {position} is not number {position} of its stream")
    return wrong
