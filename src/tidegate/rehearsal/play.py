"""A rehearsal: a fleet on this machine, a run on it, a crash if it is asked for, and the books."""

import contextlib
import math
import os
import signal
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tidegate._internal.words import counted
from tidegate.errors import ConfigurationError, SupplierError
from tidegate.flower.flower_internals import nodes_required
from tidegate.rehearsal.books import BothBooks, compare_books, newest_round
from tidegate.rehearsal.commands import commands_text
from tidegate.rehearsal.deployment import Deployment
from tidegate.rehearsal.processes import kill, wait_for
from tidegate.rehearsal.superlink import last_lines
from tidegate.runs.lock import server_process
from tidegate.runs.reader import RunView, read_run

VICTIM = 0
"""The node that is killed."""
STATUS_SECONDS = 5.0
"""From one question about a run to the next; each takes a second of work."""
COMPLETED = "finished:completed"


@dataclass(frozen=True, kw_only=True)
class Plan:
    """What is rehearsed."""

    app: Path
    folder: Path
    """Gets everything: certificates, keys, logs, buffers, the run."""
    nodes: int
    rounds: int
    run_config: Mapping[str, Any]
    """What is changed of the app's own."""
    kill: bool = False
    """Whether the server app and a SuperNode get SIGKILL in mid-round."""

    @property
    def run_folder(self) -> Path:
        """Where the server app saves the run."""
        return self.folder / "run"

    @property
    def commands_file(self) -> Path:
        """Where the commands for real machines are."""
        return self.folder / "commands.txt"


@dataclass(frozen=True)
class Event:
    """Something that happened."""

    seconds: float
    """Since the rehearsal began."""
    what: str
    meaning: str = ""


@dataclass
class Outcome:
    """What came of a rehearsal."""

    events: list[Event] = field(default_factory=list)
    run_ids: list[str] = field(default_factory=list)
    """Flower's, one for each start of the run."""
    refused_seconds: float | None = None
    """How long the node that was killed was not let in."""
    books: BothBooks | None = None
    problems: list[str] = field(default_factory=list)
    """What went wrong, with what to do."""


class Rehearsal:
    """One rehearsal; ``play`` ends all that it started, whatever happens.

    Args:
        plan: what is rehearsed.
        tell: is told what happens when it happens.
    """

    def __init__(self, plan: Plan, tell: Callable[[Event], None]) -> None:
        self._plan, self._tell = plan, tell
        self._begun = time.monotonic()
        self._told_rounds = 0
        self._asked = 0.0
        self._outcome = Outcome()

    def play(self) -> Outcome:
        """Start the fleet, run the app on it, and compare the books."""
        plan = self._plan
        database = str(plan.folder / "superlink.db")
        deployment = Deployment(plan.folder, "--database", database)
        deployment.restart_seconds = 5.0
        plan.commands_file.write_text(
            commands_text(plan.app.resolve().name, plan.nodes, plan.rounds), "utf-8"
        )
        self._say("an authority and a certificate for 127.0.0.1 are written to certificates/")
        try:
            with contextlib.ExitStack() as opened:
                opened.callback(self._stop, deployment)
                self._start(deployment)
                self._run(deployment)
        except (SupplierError, TimeoutError) as wrong:
            self._outcome.problems.append(str(wrong))
        if not self._outcome.problems:
            self._compare(deployment)
        return self._outcome

    def _stop(self, deployment: Deployment) -> None:
        left = deployment.stop()
        if left:
            numbers = " ".join(map(str, left))
            self._outcome.problems.append(
                f"processes of the rehearsal do not end; try kill -9 {numbers}"
            )
        else:
            self._say("all processes have ended")

    def _start(self, deployment: Deployment) -> None:
        count = self._plan.nodes
        deployment.start_link()
        self._say(f"the SuperLink is running on https://127.0.0.1:{deployment.port}")
        deployment.start_nodes(count)
        names = ", ".join(deployment.name(number) for number in range(count))
        online = "1 SuperNode is" if count == 1 else f"{count} SuperNodes are"
        self._say(f"{online} online: {names}", "each has authenticated with its key")

    def _run(self, deployment: Deployment) -> None:
        """Play the run to its end, with a crash on the way if it was asked for."""
        run_id = self._start_run(deployment)
        if self._plan.kill:
            try:
                crashed_in = wait_for(
                    lambda: self._in_mid_round(deployment, run_id), "a round", math.inf, every=0.1
                )
                self._crash(deployment, crashed_in)
                self._bring_back(deployment)
                run_id = self._start_run(deployment)
            finally:
                self._save_log(deployment, self._outcome.run_ids[0])
        try:
            wait_for(lambda: self._ended(deployment, run_id), "the end", math.inf, every=0.2)
            status = deployment.finished(run_id)
        finally:
            self._save_log(deployment, run_id)
        if status != COMPLETED:
            log = last_lines(deployment.log_file(f"run-{run_id}"))
            raise SupplierError(f"run {run_id}", f"ended as {status}; its log ends with\n{log}")
        self._say(f"run {run_id} has completed")

    def _start_run(self, deployment: Deployment) -> str:
        plan = self._plan
        run_id = deployment.run(plan.app, plan.run_config)
        again = (
            "again, with the same folder" if self._outcome.run_ids else f"({plan.rounds} rounds)"
        )
        self._outcome.run_ids.append(run_id)
        self._say(f"the run is started {again}: Flower's run {run_id}")
        self._asked = time.monotonic()
        return run_id

    def _in_mid_round(self, deployment: Deployment, run_id: str) -> int | None:
        """The round under way, as soon as the node has paid and the server does not know it.

        In a round in which nothing is bought there is nothing to forget, so another is waited for,
        unless it is the last.
        """
        if self._ended(deployment, run_id):
            raise SupplierError(
                "the run", "ended before anything could be killed in the middle of a round"
            )
        view = self._view()
        if view is None or view.round_number == 1 or view.round_number not in view.begun_at:
            return None
        paid_for, paid = newest_round(deployment.buffers(VICTIM))
        is_last = view.round_number == self._plan.rounds
        tells = is_last or paid > _spent(view, deployment.name(VICTIM))
        return view.round_number if paid_for == view.round_number and tells else None

    def _crash(self, deployment: Deployment, now: int) -> None:
        """SIGKILL the node, with all that it started, and the server app."""
        node, name = deployment.nodes[VICTIM], deployment.name(VICTIM)
        kill(node)
        server = server_process(self._plan.run_folder)
        if server is not None:
            os.kill(server, signal.SIGKILL)
        _, paid = newest_round(deployment.buffers(VICTIM))
        view = self._view()
        booked = 0.0 if view is None else _spent(view, name)
        self._say(
            f"SIGKILL in round {now}: SuperNode {name}, process {node.pid}",
            f"it has paid {paid:.4g} so far, but the server's books say {booked:.4g}",
        )
        self._say(
            f"SIGKILL in round {now}: the server app, process {server}",
            f"the orders of round {now} are sent, and no process waits for the replies",
        )

    def _bring_back(self, deployment: Deployment) -> None:
        """Start the node again until it is let in, as its service manager would."""
        name, killed_at = deployment.name(VICTIM), time.monotonic()
        deployment.restart_node(VICTIM, self._plan.nodes)
        self._outcome.refused_seconds = time.monotonic() - killed_at
        starts = deployment.starts[VICTIM] - 1
        self._say(
            f"{name} is online again after {self._outcome.refused_seconds:.0f} s and "
            f"{counted(starts, 'start')}",
            (
                "Flower refuses a killed node until its old session has expired, up to a minute: "
                "start it until it stays"
            ),
        )

    def _ended(self, deployment: Deployment, run_id: str) -> bool | None:
        """Whether the run is over, by its folder or, if nobody serves it, by Flower."""
        view = self._view()
        if view is not None:
            for row in view.rounds[self._told_rounds :]:
                self._say(row.told)
            self._told_rounds = max(self._told_rounds, len(view.rounds))
            if view.is_over and len(view.starts) >= len(self._outcome.run_ids):
                return True
        # Flower is not asked while a server holds the folder: that takes seconds, and in them a
        # whole round could pass.
        is_served = server_process(self._plan.run_folder) is not None
        has_begun = view is not None and view.begun_at
        if (is_served and has_begun) or time.monotonic() < self._asked + STATUS_SECONDS:
            return None
        self._asked = time.monotonic()
        if is_served:
            self._check_nodes(deployment, run_id)
            return None
        return deployment.status(run_id).startswith("finished") or None

    def _check_nodes(self, deployment: Deployment, run_id: str) -> None:
        """Stop if the strategy waits for more nodes than the rehearsal has."""
        required, nodes = nodes_required(deployment.log(run_id)), self._plan.nodes
        if required is not None and required > nodes:
            raise SupplierError(
                "the run",
                f"waits for {required} nodes, and the rehearsal has {nodes}: give --nodes "
                f"{required} or more, or let the app's strategy begin with fewer "
                "(min_available_nodes, min_train_nodes, min_evaluate_nodes)",
            )

    def _view(self) -> RunView | None:
        """The run, as soon as there is one."""
        with contextlib.suppress(ConfigurationError):
            return read_run(self._plan.run_folder)
        return None

    def _save_log(self, deployment: Deployment, run_id: str) -> None:
        """Keep what the server app logged."""
        with contextlib.suppress(SupplierError):
            log = deployment.log(run_id)
            deployment.log_file(f"run-{run_id}").write_text(log, "utf-8")

    def _compare(self, deployment: Deployment) -> None:
        names = {
            deployment.name(number): deployment.buffers(number)
            for number in range(self._plan.nodes)
        }
        try:
            books = compare_books(self._plan.run_folder, names)
        except ConfigurationError as wrong:
            self._outcome.problems.append(f"the run has no books to compare: {wrong}")
            return
        self._outcome.books = books
        self._outcome.problems += books.problems
        if books.are_equal:
            self._say(
                f"the books agree: nodes have paid {books.paid:.10g}, and the ledger says the "
                f"same, {books.booked:.10g}"
            )
        else:
            self._say(f"the books differ in {len(books.problems)} places")

    def _say(self, what: str, meaning: str = "") -> None:
        event = Event(time.monotonic() - self._begun, what, meaning)
        self._outcome.events.append(event)
        self._tell(event)


def _spent(view: RunView, name: str) -> float:
    """What the server's books say of one client."""
    return math.fsum(client.total_spent for client in view.clients if client.name == name)
