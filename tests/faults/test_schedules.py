"""Schedules of faults by number; one that fails is played again by its number alone."""

from typing import Any

import pytest
from world import ProcessDied, play_schedule

from tidegate.admission.debt import cash
from tidegate.controller import Controller
from tidegate.ledger import Ledger
from tidegate.retention.store import Change, MemoryStore
from tidegate.streams import IndexedStream

IN_ONE_TEST = 25


@pytest.mark.no_cover
@pytest.mark.parametrize("first", range(0, 200, IN_ONE_TEST))
def test_books_reconcile_whatever_happens(first: int) -> None:
    for number in range(first, first + IN_ONE_TEST):
        try:
            play_schedule(number)
        except (Exception, ProcessDied) as failure:
            raise AssertionError(f"schedule {number} ends in {failure!r}") from failure


def _forget_outstanding(ledger: Ledger) -> dict[str, Any]:
    record = to_record(ledger)
    for account in record["accounts"].values():
        account["outstanding"] = []
    return record


def _forget_given_up(ledger: Ledger) -> dict[str, Any]:
    record = to_record(ledger)
    for account in record["accounts"].values():
        account["given_up"] = []
    return record


def _spend_what_may_be_gone(controller: Controller) -> float:
    return cash(controller._terms.budget, controller._round_number, controller._overspend)


def _begin_at_the_start(_: IndexedStream, __: str) -> None:
    """A stream that does not know how far it was read."""


def _write_half(store: MemoryStore, change: Change) -> None:
    commit(store, change)
    store._stored = dict(list(store._stored.items())[:-1])


to_record, commit = Ledger.to_record, MemoryStore.commit


@pytest.mark.no_cover
@pytest.mark.parametrize(
    ("owner", "name", "sabotage"),
    [
        (Ledger, "to_record", _forget_outstanding),
        (Ledger, "to_record", _forget_given_up),
        (Controller, "_cash", _spend_what_may_be_gone),
        (IndexedStream, "seek", _begin_at_the_start),
        (MemoryStore, "commit", _write_half),
    ],
)
def test_sabotage_is_noticed(
    owner: type, name: str, sabotage: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The schedules can fail: each of these mistakes is found by a few of them."""
    monkeypatch.setattr(owner, name, sabotage)
    for number in range(100):
        try:
            play_schedule(number)
        except AssertionError:
            return
    pytest.fail("100 schedules found nothing")
