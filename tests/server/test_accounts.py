"""Sums kept up to date are what counting gives, and accounts of a file are read when needed."""

import dataclasses
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import tidegate.server.ledger as module
from tidegate.errors import WireError
from tidegate.server.account import NOTHING, Account, Lost
from tidegate.server.ledger import UNITS, Accounts
from tidegate.wire import Order, Receipt

ORDER = Order(run="r", round_number=1, count=1, price=1.0, retention_horizon=5)
MONEY = st.floats(0, 1e15)
NAMES = ("set_aside", "failing_suppliers", "battery")
RECEIPTS = st.builds(
    Receipt,
    run=st.just("r"),
    round_number=st.integers(0, 9),
    bought=st.integers(3, 5),
    admitted=st.integers(0, 2),
    refused=st.integers(0, 1),
    refunded=MONEY,
    under_way_spent=MONEY,
    occupancy=st.integers(0, 2),
    health=st.dictionaries(st.sampled_from(NAMES), st.integers(0, 9), max_size=3),
) | st.just(NOTHING)
ACCOUNTS = st.builds(
    Account,
    buffer_capacity=st.integers(1, 9),
    newest=RECEIPTS,
    lost=st.builds(Lost, refunded=MONEY),
    outstanding=st.sampled_from([None, ORDER]),
    retired_in=st.sampled_from([0, 0, 7]),
)
CHANGES = st.lists(st.tuples(st.sampled_from("abcdef"), ACCOUNTS), max_size=30)


def check(accounts: Accounts, expected: dict[str, Account]) -> None:
    sums, members = accounts.sums, [one for one in expected.values() if not one.retired_in]
    newest = [one.newest for one in members]
    assert sums.refunded / UNITS == math.fsum(
        amount for one in expected.values() for amount in (one.lost.refunded, one.newest.refunded)
    )
    assert sums.under_way == sum(one.under_way for one in newest)
    assert sums.under_way_spent / UNITS == math.fsum(one.under_way_spent for one in newest)
    assert sums.empty_clients == sum(not (one.occupancy or one.under_way) for one in newest)
    for name in NAMES:
        assert sums.health.get(name, 0) == sum(one.health.get(name, 0) for one in newest)
    marked: dict[str, Any] = {
        "unanswered": lambda one: one.outstanding is not None,
        "waiting": lambda one: one.newest.under_way > 0 and not one.retired_in,
        "retired": lambda one: one.retired_in > 0,
    }
    for name, is_in in marked.items():
        assert set(getattr(accounts, name)) == {
            one for one, told in expected.items() if is_in(told)
        }
    assert {client: accounts[client] for client in accounts} == expected
    assert len(accounts) == len(expected)
    capacities = {client: accounts.capacity(client) for client in accounts}
    assert capacities == {client: one.buffer_capacity for client, one in expected.items()}


def changed(accounts: Accounts) -> dict[str, Account]:
    return {client: accounts[client] for client in accounts.changed}


def orders_in(file: dict[str, Account]) -> dict[str, Order]:
    orders = {client: account.outstanding for client, account in file.items()}
    return {client: order for client, order in orders.items() if order is not None}


@given(CHANGES)
def test_sums_are_what_counting_gives(changes: list[tuple[str, Account]]) -> None:
    accounts, expected = Accounts(), dict[str, Account]()
    for client, account in changes:
        accounts[client] = expected[client] = account
        check(accounts, expected)


@given(CHANGES, st.integers(0, 30))
def test_accounts_of_a_file_are_the_same(changes: list[tuple[str, Account]], saved_at: int) -> None:
    """After it was saved, brought back with what was noted, and changed again."""
    accounts, file, expected = Accounts(), dict[str, Account](), dict[str, Account]()
    for number, (client, account) in enumerate(changes):
        if number == saved_at:
            file = changed(accounts)
            known = [
                (client, account.buffer_capacity, account.train_on)
                for client, account in file.items()
            ]
            noted, orders = {*accounts.waiting, *accounts.retired}, orders_in(file)
            saved = [dataclasses.replace(account, outstanding=None) for account in file.values()]
            accounts = Accounts(saved.__getitem__, known, dataclasses.replace(accounts.sums))
            accounts.note(noted, orders)
            assert accounts.changed == {}
        accounts[client] = expected[client] = account
    check(accounts, expected)
    assert {**file, **changed(accounts)} == expected


def test_what_was_saved_need_not_stay_in_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_HELD", 3)
    file, read = dict[str, Account](), list[int]()

    def reader(number: int) -> Account:
        read.append(number)
        return list(file.values())[number]

    accounts = Accounts()
    for client in "abcde":
        accounts[client] = Account(9, outstanding=ORDER if client == "e" else None)
    file.update(changed(accounts))
    assert sorted(file) == ["a", "b", "c", "d", "e"]
    accounts.saved(reader)
    assert accounts.changed == {}
    assert (accounts["a"], accounts["a"], accounts["e"]) == (file["a"], file["a"], file["e"])
    assert read == [0]  # and who owes an answer is still there


def test_a_client_without_an_account_is_named() -> None:
    with pytest.raises(WireError, match="no client 'x' has an account"):
        Accounts()["x"]
    with pytest.raises(WireError, match="no client 'x' has an account"):
        Accounts().capacity("x")
    assert "x" not in Accounts(lambda number: Account(1))
