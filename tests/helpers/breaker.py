"""What can be broken in a deployment, when, and how."""

import contextlib
import os
import signal
from dataclasses import dataclass

import numpy as np
from deployment import kill
from fleet import CLIENTS, CUT_NODE, DISK_NODE, Fleet

KINDS: dict[str, tuple[int, float, float]] = {
    "node killed": (6, 0, 0),
    "node stopped": (6, 3, 40),
    "server app killed": (4, 0, 0),
    "server app stopped": (2, 3, 25),
    "SuperLink killed": (2, 0, 8),
    "SuperLink stopped": (2, 3, 20),
    "disk full": (2, 5, 40),
    "network cut": (2, 5, 40),
}
"""How often each kind of fault comes, and how many seconds it lasts, from and to."""


@dataclass(frozen=True)
class Fault:
    """Something that will be broken."""

    kind: str
    node: int = -1
    """None of them for the server's side."""
    after_round: int = 1
    delay: float = 0.0
    """Seconds after that round."""
    seconds: float = 0.0
    """How long it lasts."""
    until_missed: int = 0
    """It lasts until the node has missed as many rounds, too."""
    note: str = ""
    """It comes only once the app has left a note of this name."""

    @property
    def target(self) -> str:
        """Whom it hits; the SuperLink and the server app are one, because they fall together."""
        return "server" if self.node < 0 else f"partition-{self.node}"

    @property
    def at_once(self) -> bool:
        """Whether it is over as soon as it is done."""
        return self.kind in ("node killed", "server app killed")

    def __str__(self) -> str:
        return self.kind if self.node < 0 else f"{self.kind} ({self.target})"


def schedule(seed: int, last_round: int, count: int, *, disk: bool = True) -> list[Fault]:
    """Faults of all kinds up to a round, in an order and at times that the seed decides."""
    draw = np.random.default_rng(seed)
    kinds = [kind for kind in KINDS if disk or kind != "disk full"]
    weights = np.array([KINDS[kind][0] for kind in kinds], dtype=float)
    more = draw.choice(len(kinds), size=max(count - len(kinds), 0), p=weights / weights.sum())
    chosen = [*kinds, *(kinds[number] for number in more)]
    order = draw.permutation(len(chosen))[:count]
    rounds = np.sort(draw.integers(1, last_round + 1, size=len(order)))
    return [
        _fault(chosen[number], int(after_round), draw)
        for number, after_round in zip(order, rounds, strict=True)
    ]


def _fault(kind: str, after_round: int, draw: np.random.Generator) -> Fault:
    node = int(draw.integers(CLIENTS))
    if kind.startswith(("server app", "SuperLink")):
        node = -1
    node = {"disk full": DISK_NODE, "network cut": CUT_NODE}.get(kind, node)
    _, shortest, longest = KINDS[kind]
    seconds = float(draw.uniform(shortest, longest))
    return Fault(kind, node, after_round, delay=float(draw.uniform(0, 8)), seconds=seconds)


@dataclass(frozen=True)
class Breaker:
    """Breaks parts of a deployment and lets go of them again."""

    fleet: Fleet

    def begin(self, fault: Fault, servers: list[int]) -> bool:
        """Break something; false if it is not there just now.

        Args:
            fault: what.
            servers: the server apps that live.
        """
        if fault.kind == "disk full" and self.fleet.disk is not None:
            self.fleet.disk.fill()
        elif fault.kind == "network cut":
            self.fleet.proxy.cut()
        elif fault.kind == "SuperLink killed":
            self.fleet.proxy.cut()  # as without it: who connects is refused
            kill(self.fleet.link)
        elif fault.kind == "node killed" and self._lives(fault.node):
            kill(self.fleet.nodes[fault.node])
        elif fault.kind == "server app killed":
            return _signal(servers, signal.SIGKILL)
        elif fault.kind.endswith("stopped"):
            return _signal(self._stopped(fault, servers), signal.SIGSTOP)
        else:
            return False
        return True

    def hold(self, fault: Fault) -> None:
        """Keep it broken."""
        if fault.kind == "disk full" and self.fleet.disk is not None:
            self.fleet.disk.fill()  # what others have freed meanwhile

    def end(self, fault: Fault, servers: list[int]) -> None:
        """Let go; what was killed stays so, but for the SuperLink."""
        if fault.kind == "disk full" and self.fleet.disk is not None:
            self.fleet.disk.free()
        elif fault.kind == "network cut":
            self.fleet.proxy.heal()
        elif fault.kind == "SuperLink killed":
            self.fleet.start_link()
            self.fleet.proxy.heal()
        elif fault.kind.endswith("stopped"):
            _signal(self._stopped(fault, servers), signal.SIGCONT)

    def _lives(self, node: int) -> bool:
        return self.fleet.nodes[node].poll() is None

    def _stopped(self, fault: Fault, servers: list[int]) -> list[int]:
        if fault.kind == "SuperLink stopped":
            return [self.fleet.link.pid]
        if fault.kind == "server app stopped":
            return servers
        # Minus a number means the whole group: the node and all that it has started.
        return [-self.fleet.nodes[fault.node].pid] if self._lives(fault.node) else []


def _signal(processes: list[int], number: signal.Signals) -> bool:
    """Send a signal; whether anybody was there to get it."""
    reached = False
    for process in processes:
        with contextlib.suppress(ProcessLookupError):
            os.kill(process, number)
            reached = True
    return reached
