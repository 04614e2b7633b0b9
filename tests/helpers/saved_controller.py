"""A controller that is saved to a server's books, and one that is brought back from them."""

import io
import json
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from tidegate._internal import saving
from tidegate.policies.presets import make_policy
from tidegate.prices import PricePath, UniformPrice
from tidegate.runs.books import RunBooks
from tidegate.server.controller import Controller
from tidegate.server.fleet import Fleet, Roster, Terms
from tidegate.server.ledger import Accounts, Ledger
from tidegate.server.standing import Progress, Standing


def saved(controller: Controller) -> RunBooks:
    """Books in memory, with all of a controller, which goes on as it was."""
    standing = controller.standing
    own, roster = standing.ledger, standing.fleet.roster
    accounts = Accounts()
    for client in own.clients:
        accounts[client] = own.account(client)
    ledger = Ledger(own.run, accounts, own.closed_round, own.booked)
    same = Roster(roster.places, roster.away, roster.looks)
    same.moved, same.is_replanned = dict.fromkeys(roster.away), bool(roster.places)
    fleet = Fleet(standing.terms, ledger, same)
    fleet.allocation = standing.fleet.allocation
    books = RunBooks(Path(":memory:"))
    books.save(replace(standing, ledger=ledger, fleet=fleet))
    return books


def saved_again(ledger: Ledger) -> Ledger:
    """A ledger that was saved to a server's books, and read again."""
    terms = Terms(
        policy=lambda problem: make_policy("acdpp", problem),
        policy_name="acdpp",
        budget=1.0,
        prices=PricePath(UniformPrice(1, 10), 1),
        num_rounds=1,
    )
    controller = Controller.resumed(Standing(terms, Progress(), ledger, Fleet(terms, ledger)))
    return restored(controller, terms).ledger


def brought_back(books: RunBooks, on: Terms) -> Controller:
    """The controller that was saved."""
    run = books.load(on)
    assert run is not None, "nothing was saved"
    return Controller.resumed(run.standing)


def restored(controller: Controller, on: Terms) -> Controller:
    """Another controller, as after a restart."""
    return brought_back(saved(controller), on)


def parts(standing: Standing) -> tuple[Any, ...]:
    """All that a server saves, in parts that later rounds do not change."""
    allocation = standing.fleet.allocation
    state = None if allocation is None else (standing.rule_state, allocation)
    ledger, roster = standing.ledger, standing.fleet.roster
    sums = ledger.accounts.sums
    accounts = {client: ledger.account(client) for client in ledger.clients}
    once = {
        "run": ledger.run,
        "closed_round": ledger.closed_round,
        "booked": dict(vars(ledger.booked)),
        "sums": {**vars(sums), "health": dict(sums.health)},
        "looks": roster.looks,
    }
    return state, standing.terms.fixed(), standing.at, once, accounts, roster.absences


def written(all_parts: tuple[Any, ...]) -> tuple[bytes | None, str]:
    """The parts as bytes and text, which are equal only where every bit is."""
    state, fixed, at, once, accounts, absences = all_parts
    books = {name: repr(account) for name, account in accounts.items()}
    record = {"terms": fixed, "progress": asdict(at), **once}
    text = json.dumps({**record, "accounts": books, "absences": absences})
    if state is None:
        return None, text
    archive = io.BytesIO()
    saving.write(state, archive)
    return archive.getvalue(), text
