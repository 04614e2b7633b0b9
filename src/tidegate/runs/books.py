"""A server's books: a round writes the rows that it touched, a resume reads what it needs.

One transaction holds all that belongs together. A resume reads the names, capacities and places of
all clients, and the accounts of those that it waits for; the others when they take part.
"""

import io
import json
import sqlite3
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any

import numpy as np

from tidegate._internal import saving
from tidegate._internal.saving import plain
from tidegate._internal.sqlite_file import connect, opening, prepare, transaction
from tidegate.admission.allocation import Allocation
from tidegate.admission.arrivals import Arrivals
from tidegate.admission.rule import RoundTotals
from tidegate.errors import RunDiffersError
from tidegate.runs.books_file import BOOKS_KIND, read, read_only, readable, write
from tidegate.server.account import Account, Lost, with_changes
from tidegate.server.fleet import Fleet, Roster, Terms
from tidegate.server.ledger import Accounts, Ledger, Sums
from tidegate.server.standing import BuyingPause, Progress, RoundUnderWay, Standing
from tidegate.theory.reuse import ReuseTally
from tidegate.wire import LARGEST_CAPACITY, Order, Receipt

PAGES_IN_LOG = 4000
"""After which they are copied into the file: pages that several rounds change are copied once."""
NO_PLAN = 0
LOST = tuple(f"lost_{field.name}" for field in fields(Lost))
RECEIPT = tuple(field.name for field in fields(Receipt))
ALLOCATION = "owed", "credited", "handed_out"
"""What is one number for the whole fleet."""


@dataclass(frozen=True)
class SavedRun:
    """A run as a server resumes it."""

    standing: Standing
    model: str
    """The file of the model that belongs to it."""
    app: str
    """The app that plays it; empty if unknown."""


@dataclass(frozen=True)
class BooksView:
    """A server's books as others read them."""

    run: str
    app: str
    terms: Mapping[str, Any]
    round_number: int
    """The next round, or the one under way."""
    closed_round: int
    accounts: Mapping[str, Account]
    absences: Mapping[str, int]
    """Of the clients in the plan: the rounds since each was last online."""


class RunBooks:
    """The books of one run; one process writes them, others may read."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._connection = connect(path, any_thread=True, owner_only=False)
        with opening(self._connection, path, BOOKS_KIND):
            prepare(self._connection, path, BOOKS_KIND)
            self._connection.execute(f"PRAGMA wal_autocheckpoint = {PAGES_IN_LOG}")
        self._plan = NO_PLAN
        """Number of the plan in the file."""

    def close(self) -> None:
        """Close the file and remove the log beside it."""
        self._connection.close()

    def save(self, standing: Standing, model: str = "", app: str = "") -> None:
        """Write what has changed since the last time.

        Args:
            standing: of the same run as before.
            model: the file of the model that belongs to it.
            app: the name of the app that plays it.
        """
        fleet, accounts, connection = standing.fleet, standing.ledger.accounts, self._connection
        roster, number, plan = fleet.roster, accounts.number, self._plan
        with transaction(connection):
            if fleet.allocation is not None and roster.is_replanned:
                plan += 1
                write(connection, "plans", [_plan_row(plan, fleet.allocation, standing)])
            changed = [
                (
                    *account_row(number(client), client, accounts[client]),
                    *_dealt(client, plan, fleet),
                )
                for client in accounts.changed
            ]
            write(connection, "accounts", changed)
            self._save_orders(standing, plan)
            back = [(number(client),) for client in roster.moved if client not in roster.away]
            connection.executemany("DELETE FROM away WHERE number = ?", back)
            left = [client for client in roster.moved if client in roster.away]
            write(connection, "away", [(number(client), roster.away[client]) for client in left])
            write(connection, "run", [_run_row(standing, model, app, plan)])
        self._plan = plan
        accounts.saved(self._account)
        roster.saved()

    def load(self, terms: Terms) -> SavedRun | None:
        """Return the run, if it was saved on the same terms; None before the first save."""
        with readable(self.path):
            run = next(read(self._connection, "run"), None)
            if run is None:
                return None
            saved_terms, state = dict(json.loads(run["terms"])), json.loads(run["state"])
            self._plan = state["plan"]
            accounts = self._accounts(plain(Sums, state["sums"]), run["name"])
            members, allocation = self._planned(len(accounts), state["allocation"])
            roster = self._roster(list(accounts), members, state["looks"])
            rows = _row_counts(accounts, roster)
            if rows != state["rows"]:
                raise ValueError(f"it has {rows}, but {state['rows']} were written")
            booked = plain(RoundTotals, state["booked"])
            ledger = Ledger(run["name"], accounts, state["closed_round"], booked)
            at = _progress(state["progress"])
        _check_terms(saved_terms, terms.fixed())
        standing = Standing(terms, at, ledger, Fleet(terms, ledger, roster))
        if allocation is not None:
            standing = self._with_policy(standing, allocation, run["rule_state"])
        return SavedRun(standing, run["model"], run["app"])

    def _save_orders(self, standing: Standing, plan: int) -> None:
        """Write new orders, and delete those with a reply and rules without an order."""
        accounts, connection = standing.ledger.accounts, self._connection
        touched = accounts.changed | accounts.ordered
        changed = {client: accounts[client].outstanding for client in touched}
        ended = [(accounts.number(client),) for client, order in changed.items() if order is None]
        connection.executemany("DELETE FROM orders WHERE number = ?", ended)
        numbers = {rule: number for number, rule in _rules(connection, standing.ledger.run).items()}
        newest, rules, orders = max(numbers.values(), default=0), [], []
        for client, order in changed.items():
            if order is not None:
                rule = with_changes(order, count=0, price=0.0)
                if rule not in numbers:
                    newest += 1
                    numbers[rule] = newest
                    rules.append(_rule_row(newest, rule))
                cells = numbers[rule], order.count, order.price
                orders.append(
                    (accounts.number(client), *cells, *_dealt(client, plan, standing.fleet))
                )
        write(connection, "rules", rules)
        write(connection, "orders", orders)
        connection.execute("DELETE FROM rules WHERE rule NOT IN (SELECT rule FROM orders)")

    def _accounts(self, sums: Sums, run: str) -> Accounts:
        """Return all clients, with the accounts of those that the server waits for or retired."""
        accounts = Accounts(self._account, self._clients(), sums)
        names, orders = list(accounts), _orders(self._connection, run)
        noted = self._connection.execute(
            "SELECT number FROM accounts WHERE bought > admitted + refused OR retired_in > 0"
        )
        accounts.note(
            (names[number] for (number,) in noted.fetchall()),
            {names[number]: order for number, order in orders.items()},
        )
        return accounts

    def _clients(self) -> Iterator[tuple[str, int, int]]:
        """Yield every client's name, capacity and samples that train, in order of joining."""
        rows = self._connection.execute(
            "SELECT number, client, buffer_capacity, train_on FROM accounts ORDER BY number"
        )
        for place, (number, client, capacity, train_on) in enumerate(rows):
            if number != place or type(client) is not str:
                raise ValueError(f"account {place} is missing or has no name")
            if type(capacity) is not int or not 1 <= capacity <= LARGEST_CAPACITY:
                raise ValueError(f"the capacity of {client} is {capacity!r}, which is not possible")
            if type(train_on) is not int or not 0 <= train_on < capacity:
                raise ValueError(f"{client} trains on {train_on!r} samples, which is not possible")
            yield client, capacity, train_on

    def _account(self, number: int) -> Account:
        """Return the account of a client."""
        with readable(self.path):
            (row,) = read(self._connection, "accounts", "WHERE number = ?", number)
            return account_of(row)

    def _planned(
        self, clients: int, totals: Mapping[str, Any]
    ) -> tuple[list[int], Allocation | None]:
        """Return the numbers of the clients in the plan, and what they were ordered and are owed.

        Args:
            clients: how many there are.
            totals: what is one number for the whole fleet.
        """
        if self._plan == NO_PLAN:
            return [], None
        (plan,) = read(self._connection, "plans", "WHERE plan = ?", self._plan)
        members = np.frombuffer(plan["members"], dtype=np.int64)
        ordered, owed = np.zeros(clients, dtype=np.int64), np.zeros(clients)
        owed[members] = np.frombuffer(plan["credits"])
        for table in ("accounts", "orders"):  # which are newer
            query = f"SELECT number, ordered, credits FROM {table} WHERE plan = ?"  # noqa: S608
            for number, count, credit in self._connection.execute(query, (self._plan,)):
                ordered[number], owed[number] = count, credit
        arrays = {
            "shares": np.frombuffer(plan["shares"]),
            "ordered": ordered[members],
            "credits": owed[members],
        }
        if totals["handed_out"] != ordered[members].sum() or not np.isfinite(owed).all():
            raise ValueError("the clients' orders do not add up to the total")
        return members.tolist(), plain(Allocation, {**totals, **arrays})

    def _roster(self, names: list[str], members: list[int], looks: int) -> Roster:
        """Return the clients in the plan, and who of them is offline."""
        away = {names[number]: since for number, since in _away(self._connection).items()}
        return Roster((names[member] for member in members), away, looks)

    def _with_policy(
        self, standing: Standing, allocation: Allocation, rule_state: bytes
    ) -> Standing:
        """Return a run with the state of its policy; refuse another policy."""
        policy = standing.fleet.policy
        if not np.array_equal(allocation.shares, policy.shares):
            raise RunDiffersError(
                f"{self.path} was saved with other shares of the fleet than "
                f"{standing.terms.policy_name} gives now: it was saved by another policy or "
                "version",
                name="shares",
                saved=None,
                given=None,
            )
        standing.fleet.allocation, start = allocation, policy.admission.start()
        with readable(self.path):
            restored = saving.read(start, io.BytesIO(rule_state), self.path)
        return replace(standing, rule_state=restored)


def read_books(path: Path) -> BooksView | None:
    """Read all of a file, also while a server writes it; None before the first save."""
    with read_only(path) as connection:
        ((tables,),) = connection.execute("SELECT count(*) FROM sqlite_master")
        run = next(read(connection, "run"), None) if tables else None  # a server has just started
        if run is None:
            return None
        orders = _orders(connection, run["name"])
        accounts = {
            row["client"]: account_of(row, orders.get(row["number"]))
            for row in read(connection, "accounts", "ORDER BY number")
        }
        state, names, away = json.loads(run["state"]), list(accounts), _away(connection)
        looks = state["looks"]
        members = [
            member
            for plan in read(connection, "plans")
            for member in np.frombuffer(plan["members"], dtype=np.int64).tolist()
        ]
        return BooksView(
            run=run["name"],
            app=run["app"],
            terms=json.loads(run["terms"]),
            round_number=state["progress"]["round_number"],
            closed_round=state["closed_round"],
            accounts=accounts,
            absences={names[member]: looks - away.get(member, looks) for member in members},
        )


def account_row(number: int, client: str, account: Account) -> tuple[object, ...]:
    """Return the cells of an account, up to its order."""
    newest = {
        **vars(account.newest),
        "holding": json.dumps(account.newest.holding),
        "is_dry": int(account.newest.is_dry),
        "health": json.dumps(account.newest.health),
    }
    return (
        number,
        client,
        account.buffer_capacity,
        account.buffer_id,
        account.train_on,
        account.candidates,
        json.dumps(account.missing),
        account.retired_in,
        *vars(account.lost).values(),
        *newest.values(),
    )


def account_of(row: Mapping[str, Any], order: Order | None = None) -> Account:
    """Return the account that a row holds, with this order without a reply."""
    newest = {
        **{name: row[name] for name in RECEIPT},
        "holding": tuple(json.loads(row["holding"])),
        "is_dry": bool(row["is_dry"]),
        "health": json.loads(row["health"]),
    }
    return Account(
        buffer_capacity=row["buffer_capacity"],
        buffer_id=row["buffer_id"],
        train_on=row["train_on"],
        newest=Receipt(**newest),
        outstanding=order,
        candidates=row["candidates"],
        lost=Lost(*(row[name] for name in LOST)),
        missing=tuple(json.loads(row["missing"])),
        retired_in=row["retired_in"],
    )


def _dealt(client: str, plan: int, fleet: Fleet) -> tuple[int, int, float]:
    """Return a client's part of the plan: its number, what it was ordered, and what it is owed."""
    place, allocation = fleet.roster.places.get(client), fleet.allocation
    if place is None or allocation is None:
        return NO_PLAN, 0, 0.0
    return plan, int(allocation.ordered[place]), float(allocation.credits[place])


def _rule_row(number: int, rule: Order) -> tuple[object, ...]:
    thresholds = json.dumps(rule.thresholds)
    return number, rule.round_number, rule.retention, rule.retention_horizon, thresholds


def _rules(connection: sqlite3.Connection, run: str) -> dict[int, Order]:
    """Return what orders have in common, by number: orders without a count and a price."""
    return {
        row["rule"]: Order(
            run=run,
            round_number=row["round_number"],
            price=0.0,
            retention=row["retention"],
            retention_horizon=row["retention_horizon"],
            thresholds=tuple(json.loads(row["thresholds"])),
        )
        for row in read(connection, "rules")
    }


def _orders(connection: sqlite3.Connection, run: str) -> dict[int, Order]:
    """Return the orders without a reply, by the number of the client."""
    rules = _rules(connection, run)
    return {
        row["number"]: replace(rules[row["rule"]], count=row["count"], price=row["price"])
        for row in read(connection, "orders")
    }


def _plan_row(plan: int, allocation: Allocation, standing: Standing) -> tuple[object, ...]:
    """Return the row of a new plan: what every client in it is owed as it begins."""
    number, places = standing.ledger.accounts.number, standing.fleet.roster.places
    members = np.array([number(client) for client in places], dtype=np.int64)
    arrays = members, allocation.shares, allocation.credits
    return 1, plan, *(array.tobytes() for array in arrays)


def _away(connection: sqlite3.Connection) -> dict[int, int]:
    """Return the clients in the plan that are offline, and the last look that found each."""
    return {row["number"]: row["since"] for row in read(connection, "away")}


def _run_row(standing: Standing, model: str, app: str, plan: int) -> tuple[object, ...]:
    """Return what there is once; JSON for what has no table."""
    ledger, fleet = standing.ledger, standing.fleet
    allocation, rule_state = fleet.allocation, b""
    if standing.rule_state is not None:
        archive = io.BytesIO()
        saving.write(standing.rule_state, archive)
        rule_state = archive.getvalue()
    state = {
        "progress": asdict(standing.at),
        "closed_round": ledger.closed_round,
        "booked": vars(ledger.booked),
        "sums": vars(ledger.accounts.sums),
        "looks": fleet.roster.looks,
        "plan": plan,
        "allocation": allocation and {name: getattr(allocation, name) for name in ALLOCATION},
        "rows": _row_counts(ledger.accounts, fleet.roster),
    }
    terms = json.dumps(standing.terms.fixed())
    return 1, ledger.run, app, model, terms, json.dumps(state), rule_state


def _row_counts(accounts: Accounts, roster: Roster) -> dict[str, int]:
    """Return how many there are: a row that is missing has no checksum that is wrong."""
    return {
        "accounts": len(accounts),
        "orders": len(accounts.unanswered),
        "clients away": len(roster.away),
    }


def _progress(saved: Mapping[str, Any]) -> Progress:
    decision = saved["decision"]
    values = {
        **saved,
        "tally": plain(ReuseTally, saved["tally"]),
        "decision": None if decision is None else plain(RoundUnderWay, decision),
        "pause": plain(BuyingPause, saved["pause"]),
        "arrivals": _arrivals(saved["arrivals"]),
    }
    return plain(Progress, values)


def _arrivals(saved: Mapping[str, Any]) -> Arrivals:
    waiting = tuple((int(first), int(count)) for first, count in saved["waiting"])
    return plain(Arrivals, {**saved, "waiting": waiting})


def _check_terms(saved: Mapping[str, Any], terms: Mapping[str, Any]) -> None:
    """Refuse to resume a run that was started with other terms."""
    for name, value in {**dict.fromkeys(terms), **saved}.items():
        if value != terms.get(name):
            raise RunDiffersError(
                f"the checkpoint was made with {name} = {value}, this run has {terms.get(name)}; "
                "resume with the same, or start a new run in another folder",
                name=name,
                saved=value,
                given=terms.get(name),
            )
