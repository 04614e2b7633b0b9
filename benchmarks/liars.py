"""What lying clients of ten can do to the spending and the samples of the others.

python benchmarks/liars.py
"""

import argparse
import logging
import math
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace

import numpy as np

from tidegate import buffer
from tidegate.buffer import Holding
from tidegate.client.gate import Gate
from tidegate.client.store import Store
from tidegate.client.streams import IndexedStream
from tidegate.errors import WireError
from tidegate.policies import ControlOptions
from tidegate.policies.presets import make_policy
from tidegate.prices import PricePath, UniformPrice
from tidegate.server.account import Account
from tidegate.server.controller import Controller
from tidegate.server.fleet import Terms
from tidegate.simulation.summary import estimate
from tidegate.theory.reuse import ReuseTally
from tidegate.wire import MOST_AGES, Introduction, Order, Receipt

RUN = "run"
BUDGET = 55.0
CAPACITY = 10
CLIENTS = tuple(f"client-{number}" for number in range(10))
LIAR = CLIENTS[0]
POLICIES = ("acdpp", "constant_admission", "tide")


@dataclass
class Client:
    """A client with a gate of its own; what it says may be something else."""

    name: str

    def __post_init__(self) -> None:
        self.begin_again()

    def begin_again(self) -> None:
        """Forget everything, as with a new disk."""
        self.store = Store(None, RUN, self.name, CAPACITY)
        self.gate = Gate(self.store, IndexedStream(range(10**6)))

    @property
    def introduction(self) -> Introduction:
        """As its store is now."""
        books = self.store.books()
        return Introduction(
            run=RUN,
            client=self.name,
            buffer_capacity=CAPACITY,
            buffer_id=books.buffer_id,
            void_round=books.void_round,
        )


Lie = Callable[[Client, Account, Order], Receipt]
"""From what the server knows of the liar, and the order, to what the liar says."""


def honest(client: Client, _: Account, order: Order) -> Receipt:
    return client.gate.apply(order)


def believable(account: Account, order: Order, bought: int, held: Holding | None = None) -> Receipt:
    """Return what an honest client would say that bought so many samples.

    Args:
        account: what the server knows of the client.
        order: the order.
        bought: samples bought, which arrived at once.
        held: samples by age afterwards; None for those of a client that lets go the oldest.
    """
    newest = account.newest
    if held is None:
        held = buffer.after(account.kept(order.horizon), bought, CAPACITY)
    occupancy = min(sum(held), newest.occupancy + bought)
    uses = sum(age * count for age, count in enumerate(held, start=1))
    expiring = sum(held[int(min(order.horizon, MOST_AGES)) - 1 :])
    return Receipt(
        run=RUN,
        round_number=order.round_number,
        bought=newest.bought + bought,
        admitted=newest.admitted + bought,
        refused=newest.refused,
        spent=newest.spent + order.price * bought,
        refunded=newest.refunded,
        under_way_spent=newest.under_way_spent,
        holding=held,
        expiring=0 if math.isinf(order.horizon) else expiring,
        occupancy=occupancy,
        uses=max(occupancy, min(uses, newest.uses + occupancy)),
    )


def pocket(_: Client, account: Account, order: Order) -> Receipt:
    """Claim to have bought all that is believed; buy nothing."""
    return believable(account, order, account.most_bought(order))


def full(_: Client, account: Account, order: Order) -> Receipt:
    """Claim a full buffer, and to have bought nothing."""
    receipt = believable(account, order, 0)
    return replace(receipt, occupancy=CAPACITY, holding=(0, CAPACITY), uses=CAPACITY)


def conceal(client: Client, account: Account, order: Order) -> Receipt:
    """Buy what is ordered, and report nothing of it."""
    client.gate.apply(order)
    return believable(account, order, 0)


def age(_: Client, account: Account, order: Order) -> Receipt:
    """Claim to have bought all that is believed in place of the newest: the others look old."""
    bought = account.most_bought(order)
    kept = account.kept(order.horizon)
    newest_first, ages = max(sum(kept) + bought - CAPACITY, 0), list(kept)
    for place, count in enumerate(kept):
        ages[place] = max(count - newest_first, 0)
        newest_first -= count - ages[place]
    return believable(account, order, bought, buffer.aged(tuple(ages), bought))


def refund(_: Client, account: Account, order: Order) -> Receipt:
    """Claim that all that is believed was bought and will come, and then that it was paid back."""
    newest, bought = account.newest, account.most_bought(order)
    return replace(
        believable(account, order, bought),
        admitted=0,
        refused=newest.bought,
        refunded=newest.spent,
        under_way_spent=order.price * bought,
        occupancy=0,
        uses=0,
    )


def forget(client: Client, _: Account, __: Order) -> Receipt:
    """Lose the disk in every round, after the order and before the answer."""
    client.begin_again()
    raise WireError("it has lost its buffer")


def stay_silent(client: Client, account: Account, order: Order) -> Receipt:
    """Answer every tenth order only, and claim then all that is believed."""
    if order.round_number % 10:
        raise TimeoutError
    return pocket(client, account, order)


LIES: dict[str, Lie] = {
    "honest": honest,
    "claims to spend and does not": pocket,
    "always claims a full buffer": full,
    "buys and does not tell": conceal,
    "makes its samples older": age,
    "claims that it was paid back": refund,
    "loses its disk in every round": forget,
    "answers every tenth order": stay_silent,
}


@dataclass(frozen=True)
class Outcome:
    """Of one run."""

    booked: float
    """Money a round, all clients."""
    liars: float
    """That part of it which is booked for the liars."""
    others: float
    """Effective samples a round of the others."""


def play(policy: str, lie: Lie, seed: int, rounds: int, *, liars: int = 1) -> Outcome:
    """One run of ten clients, of whom so many tell the same lie."""
    lying = CLIENTS[:liars]
    options = ControlOptions(hard_capacity=True, spend_ahead=None)
    terms = Terms(
        policy=lambda problem: make_policy(policy, problem, options),
        policy_name=policy,
        budget=BUDGET,
        prices=PricePath(UniformPrice(1, 10), seed),
        num_rounds=rounds,
    )
    controller = Controller(terms, RUN)
    clients = {name: Client(name) for name in CLIENTS}
    unknown = set(clients)
    tally = ReuseTally()
    for _ in range(rounds):
        for name in sorted(unknown):
            clients[name].store.void(controller.round_number - 1)
            with suppress(WireError):
                controller.join(clients[name].introduction)
                unknown.remove(name)
        present = [name for name in clients if name not in unknown]
        sums = np.zeros(3, dtype=np.int64)
        for name, order in controller.decide(present, present).items():
            try:
                says = lie if name in lying else honest
                before = controller.ledger.account(name).newest
                receipt = says(clients[name], controller.ledger.account(name), order)
                controller.book(name, receipt)
            except (WireError, TimeoutError):
                unknown.add(name)
            else:
                fresh = receipt.admitted - before.admitted
                prior_uses = receipt.uses - receipt.occupancy
                sums += name not in lying and (fresh, receipt.occupancy, prior_uses)
        row = controller.close()
        if row.overspend > row.cost_debt + 1e-6:
            raise AssertionError("the certificate does not hold")
        admitted, size, uses = (int(value) for value in sums)
        tally = tally.after_round(admitted=admitted, training_size=size, prior_uses=uses)
    ledger = controller.ledger
    booked = sum(ledger.account(name).paid for name in clients)
    believed = sum(ledger.account(name).paid for name in lying)
    return Outcome(booked / rounds, believed / rounds, tally.effective_sample_size / rounds)


def shown(values: list[float]) -> str:
    found = estimate(values)
    return f"{found.mean:.2f} ± {found.half_width:.2f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=200)
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--liars", type=int, nargs="+", default=[1, 5])
    options = parser.parse_args()
    logging.getLogger("tidegate").setLevel(logging.ERROR)  # of a disk lost in every round
    print(f"budget {BUDGET}, ten clients of {CAPACITY} slots, {options.rounds} rounds, "
          f"{options.seeds} seeds, mean ± 95 %\n")  # fmt: skip
    print(
        "| policy | liars | what they do | booked a round | for the liars | N_eff of the others |"
    )
    print("|---|---|---|---|---|---|")
    for policy in POLICIES:
        for liars in options.liars:
            for name, lie in LIES.items():
                runs = [
                    play(policy, lie, seed, options.rounds, liars=liars)
                    for seed in range(options.seeds)
                ]
                columns = (
                    shown([getattr(outcome, column) for outcome in runs])
                    for column in ("booked", "liars", "others")
                )
                print(f"| {policy} | {liars} | {name} | {' | '.join(columns)} |", flush=True)


if __name__ == "__main__":
    main()
