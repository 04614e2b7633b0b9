"""A server that is one of several: what it is given, and how it keeps to it."""

import json
import logging
import queue
import threading
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TypeVar

from tidegate._internal.arguments import check_kind, check_number, check_whole_number, shown
from tidegate._internal.saving import reading, replace_file
from tidegate.errors import ConfigurationError, DamagedFileError, SupplierError
from tidegate.server.fleet_round import FleetRound
from tidegate.server.saved_state import REMEDY
from tidegate.server.shards.meeting import Meeting, Registration, Visit
from tidegate.server.shards.messages import Grant, Report
from tidegate.server.shards.purse import Purse

FILE = "shard.json"
"""In the run's folder: what the books are known by, and the newest grant."""
AWAY = (
    "round %d: shard %r goes on with what it was promised, up to round %d, and then with what it "
    "has saved, because %s (nothing is lost, and this is told once)"
)
BACK = "round %d: the shards' meeting place answers again"
NOT_POSTED = (
    "the last rounds of shard %r are not in the shards' ledger yet, because %s; start the app "
    "again with the same folder, and they will be"
)

logger = logging.getLogger("flwr.tidegate")
"""Below Flower's own, so that it is seen wherever Flower's log is; without Flower a plain name."""
Answer = TypeVar("Answer")


@dataclass(frozen=True)
class Shard:
    """One of several servers that share a budget.

    All of them are started with the same ``budget``, the money of all together, the same ``run``
    and the same ``slots``; each has a name and a folder of its own. Tide alone can be sharded.

    Args:
        name: of this server's part of the fleet.
        slots: samples that the memory of each shard's clients holds, by name; they divide the money
            until shards have reported what it is worth to them.
        meeting: where shards meet, such as ``PostgresMeeting(service="tidegate")``.
        patience: seconds that a round waits for the meeting place, at most.
    """

    name: str
    slots: Mapping[str, int]
    meeting: Meeting
    patience: float = 10.0

    def __post_init__(self) -> None:
        check_kind("slots", self.slots, Mapping, "such as {'east': 400, 'west': 800}")
        for name, count in self.slots.items():
            check_whole_number(f"the slots of shard {name!r}", count)
        if self.name not in self.slots:
            raise ConfigurationError(
                f"slots must name every shard, this one, too: {shown(self.name)} is not among "
                f"{', '.join(map(repr, self.slots))}"
            )
        if not isinstance(self.meeting, Meeting) or isinstance(self.meeting, type):
            raise ConfigurationError(
                "meeting must be where shards meet, such as PostgresMeeting(service='tidegate'), "
                f"got {shown(self.meeting)}"
            )
        check_number("patience", self.patience, "above 0 seconds", lambda given: given > 0)

    def part(self, budget: float) -> float:
        """Of a budget, by slots: about what this shard will be granted.

        >>> from tidegate.server.shards.memory import MemoryMeeting
        >>> Shard("east", {"east": 100, "west": 200}, MemoryMeeting()).part(12.0)
        4.0
        """
        return budget * self.slots[self.name] / sum(self.slots.values())


class Membership:
    """A shard of a run: brings what it has to say, and keeps its newest grant.

    Args:
        shard: which one.
        run: its name.
        budget: C, of all shards together.
        folder: of the run, where the newest grant is kept; without one, a server that starts again
            is refused, because it does not know what it has spent.
    """

    def __init__(self, shard: Shard, run: str, budget: float, folder: Path | None) -> None:
        self.purse = Purse(run, shard.name)
        self._shard, self._budget, self._folder = shard, budget, folder
        self._books = uuid.uuid4().hex
        self._posted: int | None = None
        """The last round that is in the ledger; none before the shard has registered."""
        self._is_away = False
        self._late: threading.Thread | None = None

    def join(self, settled: Sequence[FleetRound] | None) -> None:
        """Register, before the first round of this start.

        Args:
            settled: the rounds in the books that the server goes on with; none for new books.

        Raises:
            SupplierError: nobody can be reached, and nothing was promised before.
            RunDiffersError: the run was begun on other terms, or this shard is somebody else's.
        """
        self._load()
        promised = bool(self.purse.grant.budgets)
        try:
            self._posted = self._registered(settled)
        except SupplierError as failure:
            if not promised:
                raise
            self._tell_away(self.purse.grant.first_round, failure)
        if settled is None and (promised or self._posted):
            raise DamagedFileError(
                f"the books of shard {self._shard.name!r}",
                "are gone, and it has been granted money before",
                "take a copy of the folder from before, or start a new run with another name",
            )

    def meet(self, now: int, report: Report | None, rounds: Sequence[FleetRound]) -> None:
        """Bring what is new and fetch the newest grant, or go on with the one that there is.

        Args:
            now: t, the round that begins.
            report: what the shard has to say.
            rounds: all that it has settled, in order.
        """
        try:
            self._exchange(now, report, rounds)
        except SupplierError as failure:
            self._tell_away(now, failure)
            return
        if self._is_away:
            logger.warning(BACK, now)
        self._is_away = False

    def leave(self, report: Report | None, rounds: Sequence[FleetRound]) -> None:
        """Bring the last rounds; what they lead to is divided by those that go on."""
        if not rounds:
            return
        try:
            self._exchange(rounds[-1].round_number, report, rounds)
        except SupplierError as failure:
            logger.warning(NOT_POSTED, self._shard.name, failure)

    def _exchange(self, now: int, report: Report | None, rounds: Sequence[FleetRound]) -> None:
        if self._posted is None:
            self._posted = self._registered(rounds)
        known, grant = self._posted, self.purse.grant
        visit = Visit(
            run=self.purse.run,
            shard=self.purse.shard,
            round_number=now,
            held=grant.first_round if grant.budgets else 0,
            report=report,
            rounds=[row for row in rounds if row.round_number > known],
        )
        newest = self._ask(lambda: self._shard.meeting.exchange(visit))
        if visit.rounds:
            self._posted = visit.rounds[-1].round_number
        self.purse.take(newest)
        if newest != grant:
            self._save()

    def _registered(self, settled: Sequence[FleetRound] | None) -> int:
        """Register; the last round that is in the ledger, which the books must have, too."""
        posted = self._ask(self._register)
        if settled is not None and posted > len(settled):
            raise DamagedFileError(
                f"the books of shard {self._shard.name!r}",
                f"end with round {len(settled)}, and the ledger of all shards has its round "
                f"{posted}: they are a copy from before, and would spend the same money again",
                "go on with the newest copy of the folder, or start a new run with another name",
            )
        return posted

    def _register(self) -> int:
        return self._shard.meeting.register(
            Registration(
                run=self.purse.run,
                shard=self.purse.shard,
                budget=self._budget,
                slots={name: int(count) for name, count in self._shard.slots.items()},
                books=self._books,
            )
        )

    def _ask(self, question: Callable[[], Answer]) -> Answer:
        """An answer, if there is one soon.

        Asked by a thread of its own: no setting of a connection limits how long a name is looked
        up, or how long a machine that has stopped is waited for.
        """
        if self._late is not None and self._late.is_alive():
            raise SupplierError("the shards' meeting place", "has not answered the last question")
        answers: queue.SimpleQueue[Answer | BaseException] = queue.SimpleQueue()

        def work() -> None:
            try:
                answers.put(question())
            except BaseException as wrong:
                answers.put(wrong)

        self._late = threading.Thread(target=work, daemon=True)
        self._late.start()
        try:
            answer = answers.get(timeout=self._shard.patience)
        except queue.Empty:
            waited = f"did not answer within {self._shard.patience:g} s"
            raise SupplierError("the shards' meeting place", waited) from None
        if isinstance(answer, BaseException):
            raise answer
        return answer

    def _tell_away(self, now: int, failure: SupplierError) -> None:
        if not self._is_away:
            promised = self.purse.grant.last_round
            logger.warning(AWAY, now, self._shard.name, promised, failure)
        self._is_away = True

    def _load(self) -> None:
        """Go on with the books of the folder, if it has any; a new shard's are there from now on.

        They are on disk before anybody hears of them: a server that dies in between is let in.
        """
        if self._folder is None:
            self._books = uuid.uuid4().hex  # those of an earlier start are gone
            return
        path = self._folder / FILE
        if path.exists():
            with reading(path, REMEDY):
                kept = json.loads(path.read_text())
                self._books = str(kept["books"])
                self.purse.take(Grant.from_record(kept["grant"]))
        else:
            self._save()

    def _save(self) -> None:
        if self._folder is not None:
            kept = {"books": self._books, "grant": self.purse.grant.to_record()}

            def write(file: IO[bytes]) -> None:
                file.write(json.dumps(kept).encode())

            replace_file(self._folder / FILE, write)
