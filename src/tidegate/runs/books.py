"""A server's books in their file: a round writes what changed, a resume reads what it needs.

One transaction holds everything that belongs together: accounts, orders, clients that are away, the
part of the plan that each client has had, and the small rest (``control``). Accounts are read when
a client takes part; names, capacities and places of all clients are in memory from the start.
"""

import json
import sqlite3
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np

from tidegate._internal.saving import plain, reading
from tidegate._internal.sqlite_file import connect, is_damage, opening, prepare, transaction
from tidegate.admission.allocation import Allocation
from tidegate.errors import DamagedFileError
from tidegate.runs.books_file import (
    BOOKS_KIND,
    OF_ONE_CLIENT,
    account_of,
    account_text,
    check,
    checksum,
    control_in,
    orders_in,
    rule_text,
)
from tidegate.runs.folder import REMEDY
from tidegate.runs.known_clients import KnownClients
from tidegate.server.account import Account
from tidegate.server.accounts import Accounts, Sums
from tidegate.server.roster import Roster
from tidegate.server.standing import Books
from tidegate.wire import LARGEST_INTEGER, Order

PAGES_IN_LOG = 4000
"""After which they are copied into the file: pages that several rounds change are copied once."""
TERMS_OF_RULE = tuple(one.name for one in fields(Order) if one.name not in OF_ONE_CLIENT)
NO_PLAN = 0


class RunBooks:
    """The books of one run; one process writes them, others may read."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._connection = connect(path, any_thread=True, owner_only=False)
        with opening(self._connection, path, BOOKS_KIND):
            prepare(self._connection, path, BOOKS_KIND)
            self._connection.execute(f"PRAGMA wal_autocheckpoint = {PAGES_IN_LOG}")
        self._numbers: Accounts | None = None
        self._orders: dict[int, Order] = {}
        """Orders without a reply, while the accounts of their clients are read."""
        self._plan: int | None = None
        """Number of the plan in the file; None before the first."""

    def close(self) -> None:
        """Close the file and remove the log beside it."""
        self._connection.close()

    def load(self) -> tuple[dict[str, Any], Books] | None:
        """Return what the file holds, if anything: the books, and what was saved beside them."""
        with self._readable():
            found = control_in(self._connection, self.path)
            if found is None:
                return None
            content, state = found
            (plan, looks) = content["plan"], content["looks"]
            _need_whole(plan, looks)
            orders = list(orders_in(self._connection))
            known = self._known(plan, orders)
            if (len(known.names), len(known.planned)) != (content["known"], content["planned"]):
                raise ValueError(
                    f"it holds {len(known.names)} accounts, of which {len(known.planned)} are in "
                    "the plan"
                )
            away = dict(self._connection.execute("SELECT number, since FROM away").fetchall())
            _need_whole(*(looks - since for since in away.values()))
            names = known.names
            roster = Roster(
                (names[one] for one in known.planned),
                {names[one]: since for one, since in away.items()},
                looks,
            )
            allocation = self._allocation(content, known)
            accounts = Accounts(
                self._account,
                zip(names, known.capacities, strict=True),
                plain(Sums, content["sums"]),
            )
            if len(accounts) != len(names):
                raise ValueError("a client has two accounts")
            self._numbers, self._plan = accounts, plan
            self._orders = {number: order for number, order, _ in orders}
            accounts.note(names[one] for one in known.noted)
            self._orders = {}
            books = Books(content["controller"], state, accounts, roster, allocation)
        return content, books

    def save(self, books: Books, beside: Mapping[str, Any]) -> None:
        """Write what has changed since the last time.

        Args:
            books: of the same run as before.
            beside: what to save with them, for JSON.
        """
        accounts, roster, allocation = books.accounts, books.roster, books.allocation
        changed, is_new = accounts.changed, self._plan is None
        replanned = dict.fromkeys(roster.places) if is_new else roster.replanned
        plan = self._plan or NO_PLAN
        with transaction(self._connection):
            if allocation is not None and replanned is not None:
                plan += 1
                self._write_plan(plan, allocation)
                self._connection.executemany(
                    "UPDATE accounts SET is_planned = ? WHERE number = ?",
                    [
                        (client in roster.places, accounts.number(client))
                        for client in replanned
                        if client not in changed
                    ],
                )
            self._connection.executemany(
                "REPLACE INTO accounts VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
                [
                    self._account_row(client, account, books, plan)
                    for client, account in changed.items()
                ],
            )
            self._write_orders(books, changed, plan)
            moved = roster.away if is_new else roster.moved
            gone = [(accounts.number(one),) for one in moved if one not in roster.away]
            self._connection.executemany("DELETE FROM away WHERE number = ?", gone)
            went = [(accounts.number(one), roster.away[one]) for one in moved if one in roster.away]
            self._connection.executemany("REPLACE INTO away VALUES (?, ?)", went)
            content = {
                **beside,
                "controller": books.control,
                "sums": vars(accounts.sums),
                "looks": roster.looks,
                "plan": plan,
                "known": len(accounts),
                "planned": len(roster.places),
            }
            if allocation is not None:
                names = ("owed", "credited", "handed_out")
                content["allocation"] = {name: getattr(allocation, name) for name in names}
            self._write_control(content, books.rule)
        self._numbers, self._plan = accounts, plan
        accounts.saved(self._account)
        roster.saved()

    def _write_control(self, content: Mapping[str, Any], state: bytes | None) -> None:
        text = json.dumps(content)
        row = text, state, checksum(text, state or b"")
        self._connection.execute("REPLACE INTO control VALUES (1, ?, ?, ?)", row)

    def _account_row(
        self, client: str, account: Account, books: Books, plan: int
    ) -> tuple[object, ...]:
        text, capacity = account_text(account), account.buffer_capacity
        is_noted = account.newest.under_way > 0 or account.retired_in > 0
        is_planned = client in books.roster.places and books.allocation is not None
        told = checksum(client, capacity, text)
        dealt, number = _dealt(client, books, plan), books.accounts.number(client)
        return (number, client, capacity, is_noted, is_planned, *dealt, text, told)

    def _write_orders(self, books: Books, changed: Mapping[str, Account], plan: int) -> None:
        """Add new orders, and delete those with a reply and rules without an order."""
        accounts = books.accounts
        given = accounts.ordered
        answered = list[tuple[int]]()
        for client, account in changed.items():
            if account.outstanding is None:
                answered.append((accounts.number(client),))
            else:
                given[client] = account.outstanding
        self._connection.executemany("DELETE FROM orders WHERE number = ?", answered)
        if not (given or answered):
            return
        found = self._connection.execute("SELECT content, rule FROM rules").fetchall()
        rules: dict[str, int] = dict(found)
        newest = max(rules.values(), default=0)
        texts = dict[tuple[object, ...], str]()
        rows = []
        for client, order in given.items():
            terms = tuple(getattr(order, name) for name in TERMS_OF_RULE)
            if terms not in texts:
                texts[terms] = rule_text(order)
            text = texts[terms]
            if text not in rules:
                newest += 1
                rules[text] = newest
                self._connection.execute("INSERT INTO rules VALUES (?, ?)", (rules[text], text))
            number, dealt = accounts.number(client), _dealt(client, books, plan)
            price = order.price + 0.0  # SQLite does not tell -0.0 from 0
            told = checksum(number, text, order.count, price, *dealt)
            rows.append((number, rules[text], order.count, price, *dealt, told))
        self._connection.executemany("REPLACE INTO orders VALUES (?, ?, ?, ?, ?, ?, ?, ?)", rows)
        self._connection.execute("DELETE FROM rules WHERE rule NOT IN (SELECT rule FROM orders)")

    def _write_plan(self, plan: int, allocation: Allocation) -> None:
        """Write what every client in the plan has and is owed as it begins."""
        shares, owed = allocation.shares.tobytes(), allocation.credits.tobytes()
        self._connection.execute("DELETE FROM plans")
        row = plan, shares, owed, checksum(shares, owed)
        self._connection.execute("INSERT INTO plans VALUES (?, ?, ?, ?)", row)

    def _known(
        self, plan: int, orders: Iterable[tuple[int, Order, tuple[Any, ...]]]
    ) -> KnownClients:
        """Return all clients, without their accounts."""
        known = KnownClients()
        for row in self._connection.execute(
            "SELECT number, client, capacity, is_noted, is_planned, plan, ordered, credits "
            "FROM accounts ORDER BY number"
        ):
            known.add(row, plan)
        for number, _, dealt in orders:
            known.deal(number, dealt, plan)
            known.noted[number] = None
        known.planned.sort(key=known.names.__getitem__)
        return known

    def _allocation(self, content: Mapping[str, Any], known: KnownClients) -> Allocation | None:
        if "allocation" not in content:
            return None
        ((plan, shares, owed, told),) = self._connection.execute("SELECT * FROM plans")
        check(told, shares, owed)
        saved, count = (np.frombuffer(one, np.float64) for one in (shares, owed)), known.planned
        shares, owed = saved
        if plan != content["plan"] or {len(shares), len(owed)} != {len(count)}:
            raise ValueError(f"its plan is for {len(shares)} clients, but it has {len(count)}")
        ordered = np.array(known.ordered, dtype=np.int64)[known.planned]
        since = np.array(known.owed)[known.planned]
        owed = np.where(np.isnan(since), owed, since)
        arrays = {"shares": shares.copy(), "ordered": ordered, "credits": owed}
        allocation = plain(Allocation, {**content["allocation"], **arrays})
        if allocation.handed_out != int(ordered.sum()) or not np.isfinite(owed).all():
            raise ValueError("the clients' orders do not add up to the total")
        return allocation

    def _account(self, client: str) -> Account:
        """Return an account; those that wait for a reply stay in memory once read."""
        if self._numbers is None:
            raise ValueError("nothing was saved yet")
        number = self._numbers.number(client)
        with self._readable():
            ((name, capacity, text, told),) = self._connection.execute(
                "SELECT client, capacity, content, checksum FROM accounts WHERE number = ?",
                (number,),
            )
            check(told, client, capacity, text)
            if name != client:
                raise ValueError(f"the account of {client} is named {name}")
            return account_of(text, capacity, self._orders.get(number))

    @contextmanager
    def _readable(self) -> Iterator[None]:
        """Name the file in errors if it cannot be read."""
        try:
            with reading(self.path, REMEDY):
                yield
        except sqlite3.DatabaseError as wrong:
            if isinstance(wrong, sqlite3.ProgrammingError) or not is_damage(wrong):
                raise  # closed books are not damaged
            raise DamagedFileError(self.path, f"is damaged ({wrong})", REMEDY) from wrong


def _dealt(client: str, books: Books, plan: int) -> tuple[int, int, float]:
    """Return a client's part of the plan: its number, its orders, and what it is owed."""
    place, dealt = books.roster.places.get(client), books.allocation
    if place is None or dealt is None:
        return NO_PLAN, 0, 0.0
    return plan, int(dealt.ordered[place]), float(dealt.credits[place]) + 0.0


def _need_whole(*numbers: object) -> None:
    if not all(type(one) is int and 0 <= one <= LARGEST_INTEGER for one in numbers):
        raise ValueError("its rounds and plans are not whole numbers")
