"""A client says who it is, which buffer it has, and how far it came: what the server makes of that.

A new client gets an account. A client that was here before settles what it did without being
heard. A client that has lost its buffer begins again. A client that cannot be told
from another is refused, with the remedy.
"""

import logging

from tidegate.errors import WireError
from tidegate.server.account import Account
from tidegate.server.ledger import Ledger
from tidegate.wire import Introduction, Receipt

BEGIN_AGAIN = "Delete its file, and it begins again"

logger = logging.getLogger("flwr.tidegate")
"""Below Flower's own, so that it is seen wherever Flower's log is; without Flower a plain name."""


def welcome(
    ledger: Ledger,
    introduction: Introduction,
    newest: Receipt | None,
    *,
    now: int,
    largest_buffer: int | None,
) -> None:
    """Know a client from now on; what it did without being heard is settled.

    Args:
        ledger: the server's books.
        introduction: who it is, what it can hold, and which buffer it has.
        newest: the last receipt that this buffer gave, if any.
        now: the round that comes next, or is under way.
        largest_buffer: the capacity above which no client is believed.
    """
    client, buffer_id = introduction.client, introduction.buffer_id
    fresh = Account(introduction.buffer_capacity, buffer_id)
    account = ledger.account(client) if client in ledger else fresh
    if account.retired_in:
        raise WireError(
            f"{client} was retired in round {account.retired_in}; if it is to take part again, "
            f"tidegate retire FOLDER {client} --undo"
        )
    _check_capacity(account, introduction, largest_buffer)
    if account.buffer_id == buffer_id:
        last_round = newest.round_number if newest else 0
        if last_round < account.last_round:
            raise WireError(
                f"the buffer of {client} is an old copy: round {account.last_round} was "
                f"booked, and it knows of none after {last_round}. {BEGIN_AGAIN}"
            )
        if newest is not None and last_round != account.last_round:
            _settle_unheard(ledger, client, newest, now)
        ledger.open(client, introduction.buffer_capacity, buffer_id)
        ledger.void(client, last_round, introduction.void_round)
    elif newest is not None and account.losses and not account.buffer_id:
        raise WireError(
            f"{client} owed an answer when it was retired, and its buffer was given up with the "
            f"order. {BEGIN_AGAIN}"
        )
    elif newest is not None:
        raise _unknown(ledger, client, newest)
    else:
        lost = ledger.begin_again(client, buffer_id)
        logger.warning(
            "%s has lost its buffer, with what was booked up to round %d. It begins again; "
            "%.4g that it may have paid unheard is booked as spent",
            *(client, account.last_round, lost),
        )
    ledger.introduce(client, introduction)


def _check_capacity(account: Account, introduction: Introduction, largest: int | None) -> None:
    """Refuse a capacity that has changed, or that is not believed."""
    client, capacity = introduction.client, introduction.buffer_capacity
    if largest is not None and capacity > largest:
        raise WireError(
            f"{client} says that it can store {capacity} samples, which is not believed above "
            f"{largest}; raise largest_buffer if it is so"
        )
    if account.buffer_capacity != capacity:
        raise WireError(
            f"{client} has a capacity of {capacity} now, and had {account.buffer_capacity} "
            "before; it must stay the same in a run"
        )


def _settle_unheard(ledger: Ledger, client: str, newest: Receipt, now: int) -> None:
    """Book what a client did in a round that is over; an open round's receipt will come."""
    order = ledger.account(client).outstanding if client in ledger else None
    if order is None or order.round_number != newest.round_number:
        raise _unknown(ledger, client, newest)
    if newest.round_number < now:
        try:
            ledger.book(client, newest)
        except WireError as refused:
            raise WireError(f"{refused}. {BEGIN_AGAIN}") from refused


def _unknown(ledger: Ledger, client: str, newest: Receipt) -> WireError:
    return WireError(
        f"{client} is at round {newest.round_number} of run {ledger.run!r}, of which "
        "nothing is known here: resume from its checkpoint, or name another run"
    )
