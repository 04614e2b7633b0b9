"""Where shards meet: what any such place must do, in memory and in PostgreSQL."""

import math
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from pathlib import Path

import pytest
from check_size import at_size
from meetings import BOTH, meeting_place, record_of, registration, report, settled, visit

from tidegate.errors import DamagedFileError, RunDiffersError, SupplierError
from tidegate.server.shards import Grant, Meeting, Shard
from tidegate.server.shards.coordinator import UNITS
from tidegate.server.shards.membership import Membership
from tidegate.server.shards.memory import MemoryMeeting

NAMES = ("east", "west")
_numbers = count(1)


@pytest.fixture(scope="module", params=BOTH)
def meeting(request: pytest.FixtureRequest) -> Iterator[Meeting]:
    with meeting_place(request.param) as place:
        yield place


@pytest.fixture
def run(meeting: Meeting) -> str:
    """A run that both shards are registered for."""
    name = f"run-{next(_numbers)}"
    for shard in NAMES:
        assert meeting.register(registration(name, shard)) == 0
    return name


def test_whoever_comes_first_divides_and_all_read_the_same(meeting: Meeting, run: str) -> None:
    west = meeting.exchange(visit(run, "west", 1))
    after = record_of(meeting, run)
    east = meeting.exchange(visit(run, "east", 1))
    assert record_of(meeting, run) == after
    assert (east.budgets[0], west.budgets[0]) == pytest.approx((10.0, 20.0))
    assert meeting.exchange(visit(run, "west", 1)) == west
    assert math.fsum((*east.budgets[:1], *west.budgets[:1])) <= 30.0


def test_a_slower_shard_gets_its_part_of_the_rounds_that_others_have_begun(
    meeting: Meeting, run: str
) -> None:
    for now in (1, 2, 5):
        meeting.exchange(visit(run, "east", now))
    west = meeting.exchange(visit(run, "west", 2))
    assert west.first_round == 5
    assert west.before == pytest.approx(80.0)
    assert meeting.look(run).granted == pytest.approx(150.0)


def test_two_at_once_divide_once(meeting: Meeting, run: str) -> None:
    """Each brings a report by which it would get more, if its own division counted."""
    for now in range(1, at_size(10, 100)):
        ready = threading.Barrier(2)

        def come(shard: str, now: int = now, ready: threading.Barrier = ready) -> Grant:
            ready.wait()
            news = report(run, shard, now - 1, wish=100.0)
            rounds = [settled(now - 1, 0.1)] if now > 1 else []
            return meeting.exchange(visit(run, shard, now, report=news, rounds=rounds))

        with ThreadPoolExecutor(2) as pool:
            grants = list(pool.map(come, NAMES))
        assert math.fsum(one.until(now) for one in grants) <= 30.0 * now
        record = record_of(meeting, run)
        known = record["shards"].values()
        assert sum(one["before"] for one in known) <= UNITS * (now - 1)
        for place, left in enumerate(record["left"]):
            assert sum(one["budgets"][place] for one in known) + left <= UNITS


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"budget": 31.0}, "share a budget of 30.0, but 'east' was started with 31.0"),
        ({"slots": {"east": 10}}, r"slots of \{'east': 10, 'west': 20\}, but .* \{'east': 10\}"),
        ({"books": "other"}, "'east' of run .* belongs to a server with other books"),
    ],
)
def test_the_first_fixes_budget_and_slots_and_a_name_has_one_server(
    meeting: Meeting, run: str, given: dict[str, object], words: str
) -> None:
    before = meeting.look(run)
    with pytest.raises(RunDiffersError, match=words):
        meeting.register(registration(run, "east", **given))
    assert meeting.register(registration(run, "east")) == 0
    assert meeting.look(run) == before


def test_rounds_are_in_the_ledger_once_and_the_newest_books_count(
    meeting: Meeting, run: str
) -> None:
    first = [settled(1, 4.25), settled(2, 5.5)]
    for _ in range(2):
        meeting.exchange(visit(run, "east", 3, rounds=first))
    meeting.exchange(visit(run, "west", 2, rounds=[settled(1, 0.1)]))
    assert meeting.register(registration(run, "east")) == 2
    assert meeting.look(run).spent == math.fsum((4.25, 5.5, 0.1))
    meeting.exchange(visit(run, "east", 3, rounds=[settled(2, 6.5, cost_debt=1.0)]))
    east, west = meeting.look(run).shards
    assert (east.spent, east.cost_debt, east.round_number) == (10.75, 1.0, 2)
    assert (east.admitted, east.total_uses, east.effective_samples) == (2, 20, 10.0)
    assert (west.spent, west.fleet) == (0.1, 2)


def test_reports_move_money_and_an_older_one_changes_nothing(meeting: Meeting, run: str) -> None:
    for now in range(1, 30):
        meeting.exchange(visit(run, "east", now, report=report(run, "east", now - 1, 9.0)))
        meeting.exchange(visit(run, "west", now, report=report(run, "west", now - 1, 1.0)))
    meeting.exchange(visit(run, "east", 29, report=report(run, "east", 3, 0.0)))
    last = [meeting.exchange(visit(run, one, 30)).budgets[0] for one in NAMES]
    assert last == pytest.approx([27.0, 3.0], rel=0.05)
    assert meeting.look(run).shards[0].shadow_price == 1.0


def test_a_place_that_has_forgotten_a_round_divides_nothing(meeting: Meeting, run: str) -> None:
    meeting.exchange(visit(run, "east", 1))
    with pytest.raises(SupplierError, match="'east' holds a grant for round 3: the database"):
        meeting.exchange(visit(run, "east", 4, held=3))
    assert meeting.look(run).round_number == 1


def test_a_look_tells_of_all_shards_before_anybody_has_come(meeting: Meeting, run: str) -> None:
    view = meeting.look(run)
    assert [(one.shard, one.slots, one.heard) for one in view.shards] == [
        ("east", 10, None),
        ("west", 20, None),
    ]
    assert (view.granted, view.spent, view.effective_samples, view.round_number) == (0, 0, 0, 0)
    with pytest.raises(ValueError, match=r"no run 'none'|run 'none' has registered"):
        meeting.look("none")


def test_a_copy_of_the_books_from_before_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would spend what was granted since a second time; also where the database is late."""
    meeting = MemoryMeeting()
    shard = Shard("east", {"east": 10, "west": 20}, meeting)
    rounds = [settled(number, 1.0) for number in (1, 2, 3)]
    first = Membership(shard, "run", 30.0, tmp_path)
    first.join(None)
    for now in (1, 2, 3, 4):
        first.meet(now, None, rounds[: now - 1])
    Membership(shard, "run", 30.0, tmp_path).join(rounds)
    behind = "end with round 2, but the ledger of all shards has its round 3"
    with pytest.raises(DamagedFileError, match=behind):
        Membership(shard, "run", 30.0, tmp_path).join(rounds[:2])
    late = Membership(shard, "run", 30.0, tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr(MemoryMeeting, "register", _is_away)
        late.join(rounds[:2])
    with pytest.raises(DamagedFileError, match=behind):
        late.meet(3, None, rounds[:2])


def _is_away(*_: object) -> int:
    raise SupplierError("the shards' database", "is away")
