"""The server's books: what was ordered, admitted and paid, each order once.

Receipts are cumulative, so a lost one is made good by the next; what was sent and has not been
answered is kept, so that no client can report more than it was ever asked for.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from tidegate.admission.rule import RoundTotals
from tidegate.wire import Order, Receipt, WireError


@dataclass(frozen=True)
class Account:
    """What the server knows of one client."""

    buffer_capacity: int
    """B_m, a hard limit on what a receipt may claim to store, and a rule to admit in a round."""
    total_admitted: int = 0
    total_spent: float = 0.0
    last_round: int = 0
    """Of the newest receipt that was booked."""
    outstanding: tuple[Order, ...] = ()
    """Sent and not answered, oldest first; the client may have applied any of them."""

    def most_admitted(self, order: Order) -> int:
        """Samples that an order can lead to."""
        return self.buffer_capacity if order.thresholds else order.count

    @property
    def exposure(self) -> float:
        """What the orders that are not answered may turn out to have cost."""
        return sum(self.most_admitted(order) * order.price for order in self.outstanding)


@dataclass(frozen=True)
class Booking:
    """What one receipt added to the books."""

    admitted: int
    spent: float
    on_time: bool
    """It answers the newest order; a late one is paid but trained on an old model."""


class Ledger:
    """Accounts of all clients, and what was booked since the last round was closed."""

    def __init__(self, run: str, accounts: Mapping[str, Account] | None = None) -> None:
        self.run = run
        self._accounts = dict(accounts or {})
        self._round: list[tuple[Booking, Receipt]] = []

    def account(self, client: str) -> Account:
        """The account of a client."""
        if client not in self._accounts:
            raise WireError(f"no client {client!r} has an account")
        return self._accounts[client]

    @property
    def clients(self) -> list[str]:
        """Everybody with an account."""
        return list(self._accounts)

    @property
    def exposure(self) -> float:
        """What unanswered orders may turn out to have cost, all clients together."""
        return sum(account.exposure for account in self._accounts.values())

    def open(self, client: str, buffer_capacity: int) -> None:
        """Give a client an account; one that has it keeps it."""
        self._accounts.setdefault(client, Account(buffer_capacity))

    def send(self, client: str, order: Order) -> None:
        """Write down an order before it is sent."""
        account = self.account(client)
        if order.run != self.run:
            raise WireError(f"the ledger keeps run {self.run!r}, not {order.run!r}")
        newest = max([account.last_round, *(one.round_number for one in account.outstanding)])
        if order.round_number <= newest:
            raise WireError(f"{client} has an order of round {newest}, then one of an older round")
        self._accounts[client] = replace(account, outstanding=(*account.outstanding, order))

    def book(self, client: str, receipt: Receipt) -> Booking:
        """Book a receipt; one that was booked before adds nothing, an impossible one is refused."""
        account = self.account(client)
        if receipt.run == self.run and receipt.round_number <= account.last_round:
            return Booking(0, 0.0, on_time=False)
        order = next(
            (one for one in account.outstanding if one.round_number == receipt.round_number), None
        )
        if order is None:
            raise WireError(f"{client} was sent no order of round {receipt.round_number}")
        receipt.check_answers(order, buffer_capacity=account.buffer_capacity)
        booking = self._difference(client, account, receipt)
        self._accounts[client] = replace(
            account,
            total_admitted=receipt.total_admitted,
            total_spent=receipt.total_spent,
            last_round=receipt.round_number,
            outstanding=tuple(
                one for one in account.outstanding if one.round_number > receipt.round_number
            ),
        )
        self._round.append((booking, receipt))
        return booking

    def close_round(self) -> RoundTotals:
        """What the fleet did since the last call, as a rule's ``settle`` takes it.

        Money and samples of late receipts count; what they trained on does not, because it is kept
        out of the average.
        """
        on_time = [receipt for booking, receipt in self._round if booking.on_time]
        totals = RoundTotals(
            admitted=sum(booking.admitted for booking, _ in self._round),
            spent=sum(booking.spent for booking, _ in self._round),
            training_size=sum(receipt.occupancy for receipt in on_time),
            expiring=sum(receipt.expiring for receipt in on_time),
            prior_uses=sum(receipt.prior_uses for receipt in on_time),
        )
        self._round = []
        return totals

    def to_record(self) -> dict[str, Any]:
        """The accounts as JSON can carry them; between rounds, when nothing waits to be closed."""
        if self._round:
            raise ValueError("close the round before the ledger is saved")
        accounts = {
            client: {
                **vars(account),
                "outstanding": [order.to_record() for order in account.outstanding],
            }
            for client, account in self._accounts.items()
        }
        return {"run": self.run, "accounts": accounts}

    @classmethod
    def from_record(cls, record: Mapping[str, Any]) -> "Ledger":
        """The ledger that ``to_record`` gave."""
        accounts = {}
        for client, values in record["accounts"].items():
            orders = tuple(Order.from_record(order) for order in values["outstanding"])
            accounts[client] = Account(**{**values, "outstanding": orders})
        return cls(record["run"], accounts)

    def _difference(self, client: str, account: Account, receipt: Receipt) -> Booking:
        """What a receipt adds, if the orders up to its round can have led to it."""
        missed = [o for o in account.outstanding if o.round_number < receipt.round_number]
        admitted = receipt.total_admitted - account.total_admitted
        spent = receipt.total_spent - account.total_spent
        rounding = 1e-9 * (1 + receipt.total_spent)
        most = receipt.admitted + sum(account.most_admitted(one) for one in missed)
        dearest = receipt.spent + sum(account.most_admitted(one) * one.price for one in missed)
        if not receipt.admitted <= admitted <= most:
            raise WireError(
                f"{client} reports {admitted} samples since round {account.last_round}, "
                f"its orders allow {receipt.admitted} to {most}"
            )
        if not receipt.spent - rounding <= spent <= dearest + rounding:
            raise WireError(
                f"{client} reports {spent} spent since round {account.last_round}, "
                f"its orders allow {receipt.spent} to {dearest}"
            )
        newest = account.outstanding[-1].round_number
        return Booking(admitted, max(spent, 0.0), on_time=receipt.round_number == newest)
