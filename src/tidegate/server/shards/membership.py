"""A server that is one of several: it fetches its grants and keeps to them."""

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
from tidegate.server.shards.meeting import Meeting, Registration, Visit
from tidegate.server.shards.messages import Grant, Report
from tidegate.server.shards.purse import Purse

REMEDY = (
    "restore a copy of the folder from after its last round, or start a new run with another name"
)
FILE = "shard.json"
"""In the run's folder: what the books are known by, and the newest grant."""
AWAY = (
    "round %d: shard %r continues with the money promised to it, up to round %d, and then with "
    "what it has saved, because %s (nothing is lost; this is logged once)"
)
BACK = "round %d: the shards' meeting place can be reached again"
NOT_POSTED = (
    "the last rounds of shard %r are not in the shards' ledger yet, because %s; start the app "
    "again with the same folder to add them"
)

logger = logging.getLogger(__name__)
Answer = TypeVar("Answer")


@dataclass(frozen=True)
class Shard:
    """One of several servers that share a budget.

    Start all of them with the same ``budget``, the money of all together, the same ``run`` and the
    same ``slots``; each has a name and a folder of its own. Only Tide can be sharded.

    Args:
        name: the name of this server's part of the fleet.
        slots: how many samples the memory of each shard's clients holds, by shard name; they divide
            the money until shards have reported what it is worth to them.
        meeting: where shards meet, such as ``PostgresMeeting(service="tidegate")``.
        patience: the most seconds that a round waits for the meeting place.
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
                f"slots must name every shard, including this one: {shown(self.name)} is not "
                f"among {', '.join(map(repr, self.slots))}"
            )
        if not isinstance(self.meeting, Meeting) or isinstance(self.meeting, type):
            raise ConfigurationError(
                "meeting must be a meeting place, such as PostgresMeeting(service='tidegate'), "
                f"got {shown(self.meeting)}"
            )
        check_number("patience", self.patience, "above 0 seconds", lambda seconds: seconds > 0)

    def part(self, budget: float) -> float:
        """Return the part of a budget that this shard will be granted, about, by slots.

        >>> from tidegate.server.shards.memory import MemoryMeeting
        >>> Shard("east", {"east": 100, "west": 200}, MemoryMeeting()).part(12.0)
        4.0
        """
        return budget * self.slots[self.name] / sum(self.slots.values())


class Membership:
    """A shard's membership in a run: brings its reports, and keeps its newest grant.

    Args:
        shard: the shard.
        run: its name.
        budget: C, of all shards together.
        folder: the run's folder, where the newest grant is kept; a restarted server without one is
            refused, because it does not know what it has spent.
    """

    def __init__(self, shard: Shard, run: str, budget: float, folder: Path | None) -> None:
        self.purse = Purse(run, shard.name)
        self._shard, self._budget, self._folder = shard, budget, folder
        self._books = uuid.uuid4().hex
        self._posted: int | None = None
        """The last round that is in the ledger; None before the shard has registered."""
        self._is_away = False
        self._late: threading.Thread | None = None

    def join(self, settled: Sequence[FleetRound] | None) -> None:
        """Register before the first round of this start.

        Args:
            settled: the rounds in the books that the server continues with; none for new books.

        Raises:
            SupplierError: the meeting place cannot be reached, and nothing was promised before.
            RunDiffersError: the run was started with other terms, or the shard belongs to another
                server.
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
                "are gone, but it has been granted money before",
                "restore a copy of the folder, or start a new run with another name",
            )

    def meet(self, round_number: int, report: Report | None, rounds: Sequence[FleetRound]) -> None:
        """Bring what is new and fetch the newest grant, or continue with the present one.

        Args:
            round_number: t, the round that begins.
            report: the shard's report.
            rounds: all that it has settled, in order.
        """
        try:
            self._exchange(round_number, report, rounds)
        except SupplierError as failure:
            self._tell_away(round_number, failure)
            return
        if self._is_away:
            logger.warning(BACK, round_number)
        self._is_away = False

    def leave(self, report: Report | None, rounds: Sequence[FleetRound]) -> None:
        """Bring the last rounds; the shards that continue divide what follows from them."""
        if not rounds:
            return
        try:
            self._exchange(rounds[-1].round_number, report, rounds)
        except SupplierError as failure:
            logger.warning(NOT_POSTED, self._shard.name, failure)

    def _exchange(
        self, round_number: int, report: Report | None, rounds: Sequence[FleetRound]
    ) -> None:
        if self._posted is None:
            self._posted = self._registered(rounds)
        known, grant = self._posted, self.purse.grant
        visit = Visit(
            run=self.purse.run,
            shard=self.purse.shard,
            round_number=round_number,
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
        """Register; return the last round in the ledger, which the books must have, too."""
        posted = self._ask(self._register)
        if settled is not None and posted > len(settled):
            raise DamagedFileError(
                f"the books of shard {self._shard.name!r}",
                (
                    f"end with round {len(settled)}, but the ledger of all shards has its round "
                    f"{posted}: they are an older copy, and would spend the same money again"
                ),
                "resume with the newest copy of the folder, or start a new run with another name",
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
        """Return a reply if there is one soon.

        A thread of its own asks: no setting of a connection limits how long a name lookup takes, or
        how long to wait for a machine that has stopped.
        """
        if self._late is not None and self._late.is_alive():
            raise SupplierError("the shards' meeting place", "has not replied to the last request")
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
            waited = f"did not reply within {self._shard.patience:g} s"
            raise SupplierError("the shards' meeting place", waited) from None
        if isinstance(answer, BaseException):
            raise answer
        return answer

    def _tell_away(self, round_number: int, failure: SupplierError) -> None:
        if not self._is_away:
            promised = self.purse.grant.last_round
            logger.warning(AWAY, round_number, self._shard.name, promised, failure)
        self._is_away = True

    def _load(self) -> None:
        """Load the books of the folder, if it has any; create those of a new shard.

        They are on disk before the shard registers them, so a server that dies in between can
        register.
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
