"""The file of a server's books: its tables, the content of a row, and what counts as damage.

Accounts are apart from orders without a reply: a round that is decided adds a short row for each
client that takes part; a round that is settled writes the accounts of the clients that replied. The
part that all clients of a round share (the rule) is written once.
"""

import json
import reprlib
import sqlite3
import zlib
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

from tidegate._internal.saving import plain, reading
from tidegate._internal.sqlite_file import FileKind, check_tables, opened_to_read, transaction
from tidegate.errors import ConfigurationError, DamagedFileError, RunDiffersError
from tidegate.runs.folder import FORMAT_VERSION, REMEDY
from tidegate.server.account import Account, Lost
from tidegate.wire import Order, Receipt

WHOLE, REAL, TEXT, BYTES = (f"{kind} NOT NULL" for kind in ("INTEGER", "REAL", "TEXT", "BLOB"))
DEALT = f"plan {WHOLE}", f"ordered {WHOLE}", f"credits {REAL}"
"""A client's part of a plan: samples since it began, and what the client is owed."""
TABLES = {
    "control": (
        "id INTEGER PRIMARY KEY CHECK (id = 1)",
        f"content {TEXT}",
        "rule_state BLOB",
        f"checksum {WHOLE}",
    ),
    "accounts": (
        "number INTEGER PRIMARY KEY",
        *(f"client {TEXT}", f"capacity {WHOLE}", f"is_noted {WHOLE}", f"is_planned {WHOLE}"),
        *(*DEALT, f"content {TEXT}", f"checksum {WHOLE}"),
    ),
    "orders": (
        "number INTEGER PRIMARY KEY",
        *(f"rule {WHOLE}", f"count {WHOLE}", f"price {REAL}", *DEALT, f"checksum {WHOLE}"),
    ),
    "rules": ("rule INTEGER PRIMARY KEY", f"content {TEXT}"),
    "away": ("number INTEGER PRIMARY KEY", f"since {WHOLE}"),
    "plans": (
        *("plan INTEGER PRIMARY KEY", f"shares {BYTES}", f"credits {BYTES}", f"checksum {WHOLE}"),
    ),
}
BOOKS_KIND = FileKind(
    name="server's books",
    application_id=0x74676273,
    schema=FORMAT_VERSION,
    tables=tuple(f"CREATE TABLE {name} ({', '.join(columns)})" for name, columns in TABLES.items()),
    remedy=REMEDY,
    page_size=1024,  # a round touches accounts all over the file, a page each
)
OF_ONE_CLIENT = ("count", "price")
"""Fields of an order that differ from client to client; the others are its rule."""


def checksum(*values: object) -> int:
    """Return the checksum of a row: SQLite itself does not notice a bit that changed on disk."""
    found = 0
    for one in values:
        if isinstance(one, bytes):
            found = zlib.crc32(one, found)
    told = json.dumps([None if isinstance(one, bytes) else one for one in values])
    return zlib.crc32(told.encode(), found)


def check(found: int, *values: object) -> None:
    """Refuse a row that is not what was written."""
    if found != checksum(*values):
        raise ValueError(f"the checksum of {reprlib.repr(values)} is wrong")


def account_text(account: Account) -> str:
    """Return an account as text, without what has columns or rows of its own."""
    return json.dumps(
        {
            "buffer_id": account.buffer_id,
            "newest": _without_defaults(account.newest),
            "candidates": account.candidates,
            "lost": _without_defaults(account.lost),
            "missing": account.missing,
            "retired_in": account.retired_in,
        }
    )


def _without_defaults(values: Receipt | Lost) -> dict[str, Any]:
    """Return the fields that differ from their defaults: most are 0 for most clients."""
    return {
        name: value
        for name, value in vars(values).items()
        if value or name in ("run", "round_number")
    }


def account_of(text: str, capacity: int, order: Order | None) -> Account:
    """Restore an account from ``account_text``."""
    content = json.loads(text)
    content["newest"]["holding"] = tuple(content["newest"].get("holding", ()))
    content["missing"] = tuple(content["missing"])
    content["newest"] = Receipt(**content["newest"])
    content["lost"] = plain(Lost, content["lost"])
    return plain(Account, {**content, "buffer_capacity": capacity, "outstanding": order})


def order_of(rule: Mapping[str, Any], count: int, price: float) -> Order:
    """Return the order that a rule gives one client."""
    return Order.from_record({**rule, "count": count, "price": price})


def rule_text(order: Order) -> str:
    """Return what an order has in common with those of other clients."""
    record = order.to_record()
    return json.dumps({name: value for name, value in record.items() if name not in OF_ONE_CLIENT})


def check_format(version: object, path: Path) -> None:
    """Refuse a format that this program does not understand."""
    if type(version) is not int:
        raise ValueError(f"its format is {reprlib.repr(version)}")
    if version != FORMAT_VERSION:
        raise RunDiffersError(
            f"{path} has format {reprlib.repr(version)}, but this program reads {FORMAT_VERSION}: "
            "another version of Tidegate wrote it; continue with that version, or start a new run "
            "in another folder",
            name="format",
            saved=version,
            given=FORMAT_VERSION,
        )


def control_in(connection: sqlite3.Connection, path: Path) -> tuple[dict[str, Any], Any] | None:
    """Return the small part, and the state of the rule; None before the first save."""
    found = connection.execute("SELECT content, rule_state, checksum FROM control").fetchall()
    if not found:
        return None
    ((text, state, told),) = found
    content: dict[str, Any] = json.loads(text)
    check_format(content["version"], path)
    check(told, text, state or b"")
    return content, state


def orders_in(connection: sqlite3.Connection) -> Iterator[tuple[int, Order, tuple[Any, ...]]]:
    """Yield the client's number, its order, and its part of the plan, for all without a reply."""
    rules = {
        number: (text, json.loads(text))
        for number, text in connection.execute("SELECT rule, content FROM rules")
    }
    for number, rule, count, price, *dealt, told in connection.execute("SELECT * FROM orders"):
        text, content = rules[rule]
        check(told, number, text, count, price, *dealt)
        yield number, order_of(content, count, price), tuple(dealt)


@contextmanager
def read_only(path: Path) -> Iterator[sqlite3.Connection]:
    """Open the file at one moment, also while it is written, and without the right to write."""
    try:
        with closing(opened_to_read(path)) as connection, transaction(connection, "DEFERRED"):
            check_tables(connection, path, BOOKS_KIND)
            yield connection
    except sqlite3.OperationalError as wrong:
        raise ConfigurationError(
            f"{path} cannot be read: {wrong}; check that this user may read it and the files "
            "beside it"
        ) from wrong
    except sqlite3.DatabaseError as wrong:
        raise DamagedFileError(path, f"is damaged ({wrong})", REMEDY) from wrong


def read_books(path: Path) -> dict[str, Any] | None:
    """Read all of a file as plain values: the small part, each client's account, and absences."""
    with read_only(path) as connection, reading(path, REMEDY):
        ((tables,),) = connection.execute("SELECT count(*) FROM sqlite_master")
        found = control_in(connection, path) if tables else None  # a server has just started
        if found is None:
            return None
        content, _ = found
        controller, looks = content["controller"], content["looks"]
        orders = {number: order.to_record() for number, order, _ in orders_in(connection)}
        away = dict(connection.execute("SELECT number, since FROM away").fetchall())
        accounts, absences = {}, {}
        for number, client, capacity, is_planned, text, told in connection.execute(
            "SELECT number, client, capacity, is_planned, content, checksum FROM accounts"
        ):
            check(told, client, capacity, text)
            account = account_of(text, capacity, None)
            accounts[client] = {**asdict(account), "outstanding": orders.get(number)}
            if is_planned:
                absences[client] = looks - away.get(number, looks)
        ledger = {**controller["ledger"], "accounts": accounts}
        return {**content, "controller": {**controller, "ledger": ledger, "absences": absences}}
