"""Schedules of faults between shards and their meeting place; any is played by its number alone."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from check_size import at_size
from meetings import BOTH, meeting_place
from postgres import needs_postgres
from quiet import quietly
from shard_world import Server, play_schedule

from tidegate.errors import DamagedFileError
from tidegate.integrations import postgres
from tidegate.server.shards import Meeting, Membership, memory
from tidegate.server.shards.meeting import Visit, divided
from tidegate.server.shards.memory import MemoryMeeting
from tidegate.server.shards.messages import Grant

pytestmark = pytest.mark.no_cover  # long loops, covered elsewhere

_quietly = pytest.fixture(autouse=True)(quietly)

SCHEDULES = {"memory": at_size(60, 1000, quick=20), "postgres": at_size(4, 1000)}
IN_ONE_TEST = {"memory": at_size(20, 250), "postgres": at_size(4, 50)}
PARTS = [
    pytest.param(*one.values, first, id=f"{one.id}-{first}", marks=one.marks)
    for one in BOTH
    for first in range(0, SCHEDULES[str(one.id)], IN_ONE_TEST[str(one.id)])
]


@pytest.fixture(scope="module")
def places() -> Iterator[Callable[[str], Meeting]]:
    """One database for all schedules, once one is asked for."""
    opened: dict[str, Any] = {}

    def place(kind: str) -> Meeting:
        if kind not in opened:
            opened[kind] = meeting_place(kind)
            opened[f"{kind} place"] = opened[kind].__enter__()
        found: Meeting = opened[f"{kind} place"]
        return found

    yield place
    for kind in ("memory", "postgres"):
        if kind in opened:
            opened[kind].__exit__(None, None, None)


@pytest.mark.parametrize(("kind", "first"), PARTS)
def test_shards_never_get_more_than_there_is_and_lose_nothing(
    kind: str, first: int, places: Callable[[str], Meeting], tmp_path: Path
) -> None:
    met = set[str]()
    for number in range(first, first + IN_ONE_TEST[kind]):
        try:
            met |= play_schedule(number, places(kind), tmp_path).met
        except AssertionError as wrong:
            raise AssertionError(f"schedule {number}: {wrong}") from wrong
    assert met >= {
        *("", "lost question", "lost answer", "late", "doubled"),
        *("away", "at once", "died", "pretended"),
    }


def _grant_again(record: Any, now: int, reports: Any) -> Any:
    """What was granted is not written down."""
    return dict(record), divided(record, now, reports)[1]


def _hear_nobody(record: Any, now: int, reports: Any) -> Any:
    return divided(record, now, ())


def _let_anybody_in(*_: Any, **__: Any) -> None:
    """Another server may have the name of a shard."""


def _forget_what_was_counted(server: Server) -> None:
    server.membership, server.earned = None, 0.0
    server.spent = 0.0


def _book_nothing(meeting: MemoryMeeting, visit: Visit) -> Grant:
    return exchange(meeting, Visit(**{**vars(visit), "rounds": []}))


def _believe_that_all_is_booked(member: Membership, now: int, report: Any, rounds: Any) -> None:
    """What was sent is taken for what has arrived."""
    try:
        send(member, now, report, rounds)
    finally:
        member._posted = len(rounds)


exchange = MemoryMeeting.exchange
send = Membership._exchange
SABOTAGES: list[tuple[Any, str, Any]] = [
    (memory, "divided", _grant_again),
    (memory, "divided", _hear_nobody),
    (memory, "check_same", _let_anybody_in),
    (Server, "die", _forget_what_was_counted),
    (MemoryMeeting, "exchange", _book_nothing),
    (Membership, "_exchange", _believe_that_all_is_booked),
]


@pytest.mark.parametrize(
    ("place", "name", "sabotage"), SABOTAGES, ids=[one.__name__ for _, _, one in SABOTAGES]
)
def test_sabotage_is_noticed(
    place: Any, name: str, sabotage: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(place, name, sabotage)
    assert _notices(MemoryMeeting(), tmp_path, 20, enough=5) == 5


@pytest.mark.process
@needs_postgres
def test_a_division_without_the_lock_is_noticed(
    places: Callable[[str], Meeting], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two shards that come at once read the same record; the pause makes sure of it."""
    unlocked = postgres.LOCK_RUN.replace(" FOR NO KEY UPDATE", "").replace(
        "FROM tidegate.run", "FROM tidegate.run, pg_sleep(0.3)"
    )
    assert unlocked != postgres.LOCK_RUN
    monkeypatch.setattr(postgres, "LOCK_RUN", unlocked)
    assert _notices(places("postgres"), tmp_path, 6, enough=2) == 2


def _notices(meeting: Meeting, folder: Path, schedules: int, enough: int) -> int:
    """In how many schedules something is found to be wrong; enough of them are enough."""
    noticed = 0
    for number in range(schedules):
        if noticed == enough:
            break
        try:
            play_schedule(number, meeting, folder)
        except (AssertionError, DamagedFileError):  # by the schedule, or by a shard itself
            noticed += 1
    return noticed
