"""What an honest client says after an order."""

import math

from tidegate import buffer
from tidegate.runs.books_file import account_of, account_text
from tidegate.server.account import Account
from tidegate.server.accounts import Accounts
from tidegate.server.ledger import Ledger
from tidegate.wire import MOST_AGES, Order, Receipt


def honest_receipt(account: Account, order: Order, bought: int) -> Receipt:
    """Return what a client says that bought so many samples, which arrived at once.

    Nothing of what it had under way before has arrived.
    """
    newest = account.newest
    kept = account.kept(order.horizon)
    holding = buffer.after(kept, bought, account.buffer_capacity)
    beyond = holding[int(min(order.horizon, MOST_AGES)) - 1 :]
    occupancy = min(sum(holding), newest.occupancy + bought)
    uses = sum(age * count for age, count in enumerate(holding, start=1))
    return Receipt(
        run=order.run,
        round_number=order.round_number,
        bought=newest.bought + bought,
        admitted=newest.admitted + bought,
        refused=newest.refused,
        spent=newest.spent + order.price * bought,
        refunded=newest.refunded,
        under_way_spent=newest.under_way_spent,
        holding=holding,
        expiring=0 if math.isinf(order.horizon) else sum(beyond),
        occupancy=occupancy,
        uses=max(occupancy, min(uses, newest.uses + occupancy)),
        read=newest.read + bought,
    )


def saved_again(ledger: Ledger) -> Ledger:
    """Return a ledger as it is after it was written down and read."""
    accounts = Accounts()
    for client in ledger.clients:
        account = ledger.account(client)
        text = account_text(account)
        accounts[client] = account_of(text, account.buffer_capacity, account.outstanding)
        if accounts[client] != account:
            raise AssertionError(f"the account of {client} is another after a restart")
    return Ledger.from_record(ledger.to_record(), accounts)
