"""Handle introductions: a client says who it is, which buffer it has, and how far it got.

A new client gets an account. A known client settles what it did without a receipt reaching the
server. A client that has lost its buffer begins again. A client that cannot be told from another is
refused, with the remedy.
"""

import logging

from tidegate.errors import WireError
from tidegate.server.account import Account
from tidegate.server.ledger import Ledger
from tidegate.wire import Introduction, Receipt

BEGIN_AGAIN = "Delete its buffer file to begin again"

logger = logging.getLogger(__name__)


def welcome(
    ledger: Ledger,
    introduction: Introduction,
    newest: Receipt | None,
    *,
    now: int,
    largest_buffer: int | None,
) -> None:
    """Add a client, and settle what it did without a receipt reaching the server.

    Args:
        ledger: the server's books.
        introduction: who the client is, its capacity, and its buffer.
        newest: the last receipt of this buffer, if any.
        now: the next round, or the one under way.
        largest_buffer: the largest capacity that the server accepts from a client.
    """
    client, buffer_id = introduction.client, introduction.buffer_id
    fresh = Account(introduction.buffer_capacity, buffer_id)
    account = ledger.account(client) if client in ledger else fresh
    if account.retired_in:
        raise WireError(
            f"{client} was retired in round {account.retired_in}; to let it take part again, run "
            f"tidegate retire FOLDER {client} --undo"
        )
    _check_capacity(account, introduction, largest_buffer)
    if account.buffer_id == buffer_id:
        last_round = newest.round_number if newest else 0
        booked = account.newest.round_number
        if last_round < booked:
            raise WireError(
                f"the buffer of {client} is an old copy: the server booked round "
                f"{booked}, but the buffer has none after {last_round}. {BEGIN_AGAIN}"
            )
        if newest is not None and last_round != booked:
            _settle_unheard(ledger, client, newest, now)
        ledger.open(client, introduction.buffer_capacity, buffer_id)
        ledger.void(client, last_round, introduction.void_round)
    elif newest is not None and account.lost.buffers and not account.buffer_id:
        raise WireError(
            f"{client} had an order without a reply when it was retired, and the server gave up "
            f"its buffer with that order. {BEGIN_AGAIN}"
        )
    elif newest is not None and newest.round_number < now:
        raise WireError(
            f"{client} came with another buffer than the newest that the server knows, and with "
            f"receipts up to round {newest.round_number} only: it is an older buffer that was put "
            f"back, or another device with the same name. {BEGIN_AGAIN}, or give the other device "
            "a name of its own"
        )
    elif newest is not None:
        raise _unknown(ledger, client, newest, now)
    else:
        lost = ledger.begin_again(client, buffer_id)
        logger.warning(
            "%s has lost its buffer, with the receipts up to round %d. It begins again; %.4g "
            "that it may have paid without a reply is booked as spent",
            *(client, account.newest.round_number, lost),
        )
    ledger.introduce(client, introduction)


def _check_capacity(account: Account, introduction: Introduction, largest: int | None) -> None:
    """Refuse a capacity that has changed, or that is above the limit."""
    client, capacity = introduction.client, introduction.buffer_capacity
    if largest is not None and capacity > largest:
        raise WireError(
            f"{client} reports a capacity of {capacity} samples, above the limit of {largest}; "
            "raise largest_buffer if the capacity is right"
        )
    if account.buffer_capacity != capacity:
        raise WireError(
            f"{client} now has a capacity of {capacity}, but had {account.buffer_capacity} "
            "before; a capacity cannot change within a run, so restore it or start a new run"
        )


def _settle_unheard(ledger: Ledger, client: str, newest: Receipt, now: int) -> None:
    """Book what a client did in a closed round; the receipt of an open round is still to come."""
    order = ledger.account(client).outstanding if client in ledger else None
    if order is None or order.round_number != newest.round_number:
        raise _unknown(ledger, client, newest, now)
    if newest.round_number < now:
        try:
            ledger.book(client, newest)
        except WireError as refused:
            raise WireError(f"{refused}. {BEGIN_AGAIN}") from refused


def _unknown(ledger: Ledger, client: str, newest: Receipt, now: int) -> WireError:
    """Return why a receipt cannot be booked: the books are older, or of another run."""
    if 1 < now <= newest.round_number:
        return WireError(
            f"the server's books of run {ledger.run!r} end at round {now - 1}, and {client} is at "
            f"round {newest.round_number}: the server's folder is an older copy. Put the newer "
            "folder back, or start a new run under another name"
        )
    return WireError(
        f"{client} is at round {newest.round_number} of run {ledger.run!r}, which this server "
        "does not know: resume the run from its folder, or give the new run another name"
    )
