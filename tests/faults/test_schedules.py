"""Schedules of faults by number; one that fails is played again by its number alone."""

import io
import json
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

import pytest
import world
from check_size import at_size
from quiet import quietly
from saved_controller import written
from world import Device, World, play_schedule, play_some, terms

from tidegate import buffer
from tidegate._internal import saving
from tidegate.client.gate import Gate
from tidegate.client.purchasing import Answers, Purchasing
from tidegate.client.store import Books, Change, Fresh, State
from tidegate.client.streams import IndexedStream
from tidegate.client.supplier import Request
from tidegate.policies.decision import cash
from tidegate.runs.books import ALLOCATION
from tidegate.server.account import Account
from tidegate.server.controller import Controller
from tidegate.server.ledger import Accounts, Ledger
from tidegate.wire import Address, Order, Receipt

pytestmark = pytest.mark.no_cover  # long loops, covered elsewhere

_quietly = pytest.fixture(autouse=True)(quietly)

SCHEDULES = at_size(80, 2000, quick=20)
LATE_SCHEDULES = at_size(40, 10_000, quick=20)
IN_ONE_TEST = at_size(40, 250, quick=20)


@pytest.mark.parametrize("choosing", [False, True])
@pytest.mark.parametrize("first", range(0, SCHEDULES, IN_ONE_TEST))
def test_books_reconcile_whatever_happens(first: int, choosing: bool) -> None:
    play_some(first, IN_ONE_TEST, choosing=choosing)


@pytest.mark.parametrize("choosing", [False, True])
@pytest.mark.parametrize("first", range(0, LATE_SCHEDULES, IN_ONE_TEST))
def test_books_reconcile_whatever_happens_where_samples_come_later(
    first: int, choosing: bool
) -> None:
    play_some(first, IN_ONE_TEST, choosing=choosing, late=True)


@pytest.mark.parametrize("late", [False, True])
@pytest.mark.parametrize("first", range(0, LATE_SCHEDULES, IN_ONE_TEST))
def test_books_reconcile_whatever_happens_where_clients_choose_what_stays(
    first: int, late: bool
) -> None:
    play_some(first, IN_ONE_TEST, choosing=True, late=late, keeping=True)


@pytest.mark.long
def test_the_schedules_meet_all_that_a_late_supplier_does() -> None:
    """Samples come, are refused, paid back and cancelled; else the schedules would show little."""
    worlds = [play_schedule(number, late=True) for number in range(IN_ONE_TEST // 2)]
    devices = [device for one in worlds for device in one.devices.values()]
    books = [device.disk.books() for device in devices]
    assert sum(one.admitted for one in books) > len(books)
    assert min(sum(one.refused > 0 for one in books), sum(one.under_way > 0 for one in books))
    assert sum(one.refunded > 0 for one in books)
    assert sum(one.set_aside > 0 for one in books)
    reasons = {
        getattr(outcome, "reason", "")
        for device in devices
        if device.supplier is not None
        for outcome in device.supplier.outcomes.values()
    }
    assert {"", "nobody knows", "cancelled"} <= reasons


@pytest.mark.full
@pytest.mark.parametrize("first", range(0, 100_000, 2500))
def test_books_reconcile_in_a_hundred_thousand_schedules(first: int) -> None:
    """About an hour on two cores; in parts, so that one sees how far they are."""
    play_some(first, 2500)


def test_a_supplier_that_is_away_at_each_try_is_taken_for_a_sample_at_fault() -> None:
    """Schedule 43,929 meets it: nobody can tell the two apart."""
    (device, *_) = play_schedule(43_929).devices.values()
    errors = [one.error for one in device.disk.failures() if one.set_aside]
    assert any(one.startswith(world.AWAY) for one in errors)


def test_a_sample_paid_for_before_a_crash_may_be_set_aside_after_it() -> None:
    """Schedule 82,152 meets it: its supplier is away each time it is asked again."""
    (device, *_) = play_schedule(82_152).devices.values()
    aside = {one.key for one in device.disk.failures() if one.set_aside}
    assert aside & device.bought.keys()


def test_a_restart_compares_all_that_a_server_saves() -> None:
    played = World(terms("tide", strict=False, seed=1))
    played.join(6, 1000)
    played.open_round()
    state, record = written(played.saved)
    standing = played.controller.standing
    ((run, saved_terms, once),) = played.books._connection.execute(
        "SELECT name, terms, state FROM run"
    )
    in_file = {"run": run, "terms": json.loads(saved_terms), **json.loads(once)}
    allocation = {name: in_file["allocation"][name] for name in ALLOCATION}
    for name in ("allocation", "plan", "rows"):  # the first is a part of the state
        del in_file[name]
    told = json.loads(record)
    accounts, absences = told.pop("accounts"), told.pop("absences")
    assert told == in_file
    assert allocation == {name: getattr(standing.fleet.allocation, name) for name in ALLOCATION}
    archive = io.BytesIO()
    saving.write((standing.rule_state, standing.fleet.allocation), archive)
    assert state == archive.getvalue()
    assert accounts.keys() == {*standing.ledger.clients}
    assert absences == standing.fleet.roster.absences


def test_an_order_for_a_lost_disk_buys_nothing_on_the_next() -> None:
    """Order 1 is delayed, order 2 booked, the disk lost; then order 1 arrives."""
    played = World(terms("constant_admission", strict=False, seed=1))
    played.join(6, 1000)
    played.open_round()
    played.close_round()
    played.open_round()
    played.deliver(1)
    played.receive(0)
    played.close_round()
    played.lose_disk("client-0")
    played.restart_server()
    played.open_round()
    played.check()
    assert [letter.order and letter.order.round_number for letter in played.orders] == [1, 3]
    played.deliver(0)
    played.check()
    assert played.devices["client-0"].disk.books().admitted == 0
    played.deliver(0)
    played.receive(1)
    played.check()
    played.calm_down()


def _another_order(accounts: Accounts, clients: Iterable[str], orders: Mapping[str, Order]) -> None:
    """A server that dies after it has decided sends other orders when it is back."""
    others = {one: replace(order, count=order.count + 1) for one, order in orders.items()}
    note(accounts, clients, others)


def _believe_any_address(_: Books, __: Address) -> None:
    """Orders for a buffer that is lost go to the next one."""


def _skip_nothing(account: Account, run: str, client: str) -> Address:
    """A new buffer begins with what the lost one had."""
    return replace(address(account, run, client), skip=0, last_taken="", skip_after=0)


def _forget_without_a_promise(books: Ledger, client: str, last_round: int, _: int) -> None:
    """Orders that are late are taken for lost."""
    void(books, client, last_round, 10**6)


def _spend_what_may_be_gone(controller: Controller, budget: float, _: float) -> float:
    return cash(budget, controller._at.round_number, controller._at.overspend)


def _begin_at_the_start(_: IndexedStream, __: str) -> None:
    """A stream that does not know how far it was read."""


def _write_half(change: Change, order: Order, receipt: Receipt) -> None:
    answer(change, order, receipt)
    for number in change.numbers("state = 'stored' ORDER BY place DESC LIMIT 1"):
        change.drop(number)


def _forget_the_choice(device: Device) -> None:
    """A new process chooses anew, and the ranking may say something else then."""
    if hasattr(device, "gate"):
        execute = device.disk.file.execute
        execute("UPDATE samples SET state = 'candidate' WHERE state = 'chosen'")
        execute("UPDATE clients SET chosen_round = 0")
    start(device)


def _never_push_out(change: Change, number: int) -> None:
    if not change.numbers("number = ? AND state = 'candidate'", number):
        drop(change, number)


def _leave_what_was_bought(change: Change, fresh: Fresh, state: State) -> int:
    return take(change, replace(fresh, number=0), state)


def _read_only_what_was_bought(account: Account, buffer_id: str) -> Account:
    """What a client looked at and did not choose counts as unread."""
    newest = replace(account.newest, read=account.newest.admitted)
    return with_new_buffer(replace(account, newest=newest), buffer_id)


def _ask_first(gate: Gate, order: Order, *rest: Any) -> Receipt:
    """The supplier is asked before the books know."""
    purchasing = gate._purchasing
    assert purchasing is not None
    store = gate._store
    contents = {one.key: store.content(one.number) or b"" for one in store.held("chosen")}
    requests = [Request(key, store.unpack(one), order.price) for key, one in contents.items()]
    purchasing._supplier.ask(requests)
    return apply(gate, order, *rest)


def _deliver_again(gate: Gate, change: Change, answers: Answers) -> list[int]:
    """What has arrived is still under way."""
    for purchase, packed, _ in answers.arrived:
        change.hold("under way", Fresh(purchase.key, packed))
    return settle(gate, change, answers)


def _forget_what_is_under_way(gate: Gate, books: Books) -> Receipt:
    """It counts in no plan, and is bought again."""
    receipt = newest(gate, books)
    under_way = gate._store.held("under way")
    ages = Counter(books.orders - one.bought_in + 1 for one in under_way)
    return replace(receipt, holding=buffer.less(receipt.holding, buffer.holding(ages)))


def _plan_what_was_replaced(held: Counter[tuple[int, str]], _: int) -> dict[int, int]:
    """What purchases replace in the plan stays in it until they arrive."""
    ages = Counter[int]()
    for (age, _group), count in held.items():
        ages[age] += count
    return ages


def _never_ask(_: Purchasing) -> None:
    """It is booked, and nobody ever asks."""


def _refund_twice(purchasing: Purchasing, round_number: int, most: int) -> Answers:
    answers = collect(purchasing, round_number, most)
    answers.refused = [(purchase, 2 * refund) for purchase, refund in answers.refused]
    return answers


def _believe_any_refund(account: Account, receipt: Receipt) -> Account:
    """Twice what a client says was paid back is booked."""
    refunded = receipt.refunded - account.newest.refunded
    booked = after(account, receipt)
    return replace(booked, newest=replace(booked.newest, refunded=receipt.refunded + refunded))


settle, newest, apply, collect = Gate._settle, Gate._newest, Gate.apply, Purchasing.collect
after, address, with_new_buffer = Account.after, Account.address, Account.with_new_buffer
take, drop, answer = Change.take, Change.drop, Change.answer
start, void, note = Device.start, Ledger.void, Accounts.note


PLAIN, CHOOSING, LATE = dict[str, bool](), {"choosing": True}, {"late": True}


@pytest.mark.long
@pytest.mark.parametrize(
    ("owner", "name", "sabotage", "kind"),
    [
        (Accounts, "note", _another_order, PLAIN),
        (world, "check_meant_for", _believe_any_address, PLAIN),
        (Account, "address", _skip_nothing, PLAIN),
        (Ledger, "void", _forget_without_a_promise, PLAIN),
        (Controller, "_cash", _spend_what_may_be_gone, PLAIN),
        (IndexedStream, "seek", _begin_at_the_start, PLAIN),
        (Change, "answer", _write_half, PLAIN),
        (Device, "start", _forget_the_choice, CHOOSING),
        (Change, "drop", _never_push_out, CHOOSING),
        (Change, "take", _leave_what_was_bought, CHOOSING),
        (Account, "with_new_buffer", _read_only_what_was_bought, CHOOSING),
        (Gate, "apply", _ask_first, LATE),
        (Gate, "_settle", _deliver_again, LATE),
        (Gate, "_newest", _forget_what_is_under_way, LATE),
        (buffer, "planned", _plan_what_was_replaced, LATE),
        (Purchasing, "ask", _never_ask, LATE),
        (Purchasing, "collect", _refund_twice, LATE),
        (Account, "after", _believe_any_refund, LATE),
        (Accounts, "note", _another_order, LATE),
    ],
)
def test_sabotage_is_noticed(
    owner: Any, name: str, sabotage: Any, kind: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The schedules can fail: each of these mistakes is found by a few of them."""
    monkeypatch.setattr(owner, name, sabotage)
    first = NOTICED_BY.get(sabotage, 0)
    for number in range(first, first + 100):
        try:
            play_schedule(number, **kind)
        except AssertionError:
            return
    pytest.fail("100 schedules found nothing")


NOTICED_BY = {_spend_what_may_be_gone: 82, _forget_the_choice: 50, _ask_first: 53}
"""Schedules that notice what few others do; the search begins there, or else at 0."""
