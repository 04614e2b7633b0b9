"""A controller that is saved to a server's books, and one that is brought back from them."""

import json
from pathlib import Path
from typing import Any

from tidegate.runs.books import RunBooks
from tidegate.runs.folder import FORMAT_VERSION
from tidegate.server.accounts import Accounts
from tidegate.server.controller import Controller
from tidegate.server.fleet import Terms
from tidegate.server.roster import Roster
from tidegate.server.saved_state import to_bytes
from tidegate.server.standing import Books, Standing


def saved(controller: Controller) -> RunBooks:
    """Books in memory, with all of a controller, which goes on as it was."""
    standing = controller.standing
    own, roster = standing.to_books(), standing.fleet.roster
    accounts = Accounts()
    for client in standing.ledger.clients:
        accounts[client] = standing.ledger.account(client)
    same = Roster(roster.places, roster.away, roster.looks)
    books = RunBooks(Path(":memory:"))
    books.save(
        Books(own.control, own.rule, accounts, same, own.allocation), {"version": FORMAT_VERSION}
    )
    return books


def brought_back(books: RunBooks, on: Terms) -> Controller:
    """The controller that was saved."""
    found = books.load()
    assert found is not None, "nothing was saved"
    return Controller.resumed(Standing.from_books(on, found[1], "the books"))


def restored(controller: Controller, on: Terms) -> Controller:
    """Another controller, as after a restart."""
    return brought_back(saved(controller), on)


def parts(standing: Standing) -> tuple[Any, ...]:
    """All that a server saves, in parts that later rounds do not change."""
    allocation = standing.fleet.allocation
    state = None if allocation is None else (standing.rule_state, allocation)
    ledger = standing.ledger
    accounts = {client: ledger.account(client) for client in ledger.clients}
    books = ledger.to_record(), accounts, standing.fleet.roster.absences
    return state, standing.terms.fixed(), standing.at, *books


def written(all_parts: tuple[Any, ...]) -> tuple[bytes | None, str]:
    """The parts as bytes and text, which are equal only where every bit is."""
    state, fixed, at, ledger, accounts, absences = all_parts
    books = {**ledger, "accounts": {name: repr(accounts[name]) for name in accounts}}
    record = {"terms": fixed, **at.to_record(), "ledger": books, "absences": absences}
    return state and to_bytes(state), json.dumps(record)
