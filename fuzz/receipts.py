"""What an honest client says after an order."""

import math
from contextlib import closing
from pathlib import Path

from tidegate import buffer
from tidegate.policies import DEFAULT_OPTIONS
from tidegate.policies.presets import find_policy
from tidegate.prices import PricePath, UniformPrice
from tidegate.runs.books import RunBooks
from tidegate.server.account import Account
from tidegate.server.fleet import Fleet, Terms
from tidegate.server.ledger import Accounts, Ledger
from tidegate.server.standing import Progress, Standing
from tidegate.wire import MOST_AGES, Order, Receipt

TERMS = Terms(
    policy=lambda problem: find_policy("acdpp")(problem, DEFAULT_OPTIONS),
    policy_name="fuzzed",
    budget=1.0,
    prices=PricePath(UniformPrice(1, 10), seed=1),
    num_rounds=1,
)


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
    with closing(RunBooks(Path(":memory:"))) as books:
        accounts = Accounts()
        for client in ledger.clients:
            accounts[client] = ledger.account(client)
        copied = Ledger(ledger.run, accounts, ledger.closed_round, ledger.booked)
        books.save(Standing(TERMS, Progress(), copied, Fleet(TERMS, copied)))
        saved = books.load(TERMS)
        if saved is None:
            raise AssertionError("nothing was saved")
        after = saved.standing.ledger
        for client in ledger.clients:
            if after.account(client) != ledger.account(client):
                raise AssertionError(f"the account of {client} is another after a restart")
    return after
