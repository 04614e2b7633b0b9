"""The server's books: what was ordered, admitted and paid, each order once.

A client has one order at a time. Before the next one it replies, or says how far it got and that it
will no longer apply the order. The newest receipt therefore says what a client bought, paid and
holds, and the server refuses one that does not follow from the receipt before it.
"""

import logging
import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

from tidegate.admission.rule import RoundTotals
from tidegate.errors import WireError
from tidegate.server.account import Account
from tidegate.server.accounts import UNITS, Accounts
from tidegate.wire import Introduction, Order, Receipt


@dataclass(frozen=True)
class Booking:
    """What one receipt added to the books."""

    admitted: int
    spent: float
    """Committed, less refunds."""
    on_time: bool
    """Its round is still open; the money of a late one counts, but it trained on an old model."""


logger = logging.getLogger(__name__)

NOTHING = RoundTotals(admitted=0, spent=0.0, training_size=0, prior_uses=0, carried=0)


class Ledger:
    """Accounts of all clients, and what was booked since the last round was closed."""

    def __init__(
        self,
        run: str,
        accounts: Accounts | None = None,
        closed_round: int = 0,
        booked: RoundTotals = NOTHING,
    ) -> None:
        self.run = run
        self.accounts = Accounts() if accounts is None else accounts
        self.closed_round = closed_round
        self.booked = booked
        """Since the last round was closed."""

    def account(self, client: str) -> Account:
        """Return the account of a client."""
        return self.accounts[client]

    def __contains__(self, client: str) -> bool:
        """Whether a client has an account."""
        return client in self.accounts

    @property
    def clients(self) -> list[str]:
        """All clients with an account."""
        return list(self.accounts)

    @property
    def exposure(self) -> float:
        """What orders without a reply may turn out to have cost, for all clients."""
        return math.fsum(self.accounts[one].exposure for one in self.accounts.unanswered)

    @property
    def under_way(self) -> int:
        """Samples that clients of the fleet have bought and that have not arrived yet."""
        return self.accounts.sums.under_way

    @property
    def under_way_spent(self) -> float:
        """Committed for them."""
        return self.accounts.sums.under_way_spent / UNITS

    @property
    def health(self) -> dict[str, float]:
        """What clients report of themselves, by name, summed."""
        sums = self.accounts.sums.health
        return {name: sums[name] for name in sums if sums[name] and name != "waiting_since"}

    def oldest_under_way(self, now: int) -> int:
        """Return the rounds since the oldest purchase under way was bought, as clients say."""
        waiting = (
            self.accounts[client].newest.health.get("waiting_since", 0)
            for client in self.accounts.waiting
        )
        return now - int(min(filter(None, waiting), default=now))

    @property
    def refunded(self) -> float:
        """What suppliers have paid back, for all clients."""
        return self.accounts.sums.refunded / UNITS

    def open(self, client: str, buffer_capacity: int, buffer_id: str = "") -> None:
        """Open an account for a client; an existing one stays as it is."""
        if client not in self.accounts:
            self.accounts[client] = Account(buffer_capacity, buffer_id)

    def introduce(self, client: str, introduction: Introduction) -> None:
        """Note how far a client has read its stream, and how much it reads for an order."""
        after = self.account(client).introduced(introduction)
        if introduction.candidates and introduction.read > after.newest.read:
            logger.warning(
                "%s reports %d samples read from its stream, more than its orders allow; the "
                "server ignores this count",
                *(client, introduction.read),
            )
        self.accounts[client] = after

    def begin_again(self, client: str, buffer_id: str = "") -> float:
        """Continue with a client that has lost its buffer and its books.

        What it may have paid for an order without a reply is unknown, so it is booked as spent. An
        order that is still on its way is for the lost buffer. The first new buffer is filled at
        once; later ones only as fast as samples are replaced in a buffer that was not lost, so that
        a client cannot gain money by losing buffers.

        Returns:
            The amount booked as spent.
        """
        account = self.account(client)
        lost = account.exposure
        self.accounts[client] = account.with_new_buffer(buffer_id)
        self.booked = replace(self.booked, spent=self.booked.spent + lost)
        return lost

    def is_retired(self, client: str) -> bool:
        """Return whether an operator has retired a client."""
        return client in self.accounts.retired

    @property
    def retired(self) -> int:
        """Clients that an operator has retired."""
        return len(self.accounts.retired)

    def retire(self, client: str, round_number: int) -> float:
        """Retire a client for good; doing so twice changes nothing.

        What it has spent stays in the books. An order without a reply is given up, with the buffer
        that it was for: what it may have cost is booked as spent.

        Args:
            client: the client, which gets no further orders.
            round_number: the first round in which it gets none.

        Returns:
            The amount booked as spent.
        """
        account = self.account(client)
        if account.retired_in:
            return 0.0
        lost = 0.0 if account.outstanding is None else self.begin_again(client)
        self.accounts[client] = replace(self.account(client), retired_in=round_number)
        return lost

    def reinstate(self, client: str) -> None:
        """Let a retired client introduce itself again; others are not affected."""
        self.accounts[client] = replace(self.account(client), retired_in=0)

    def void(self, client: str, last_round: int, void_round: int) -> None:
        """Drop an order that a client will never apply: one after its last, up to a round."""
        account = self.account(client)
        order = account.outstanding
        if order is not None and last_round < order.round_number <= void_round:
            self.accounts[client] = replace(account, outstanding=None)

    def send(self, client: str, order: Order) -> None:
        """Record an order before it is sent."""
        account = self.account(client)
        if order.run != self.run:
            raise WireError(f"the ledger is of run {self.run!r}, not {order.run!r}")
        if account.outstanding is not None:
            raise WireError(
                f"{client} has not replied to round {account.outstanding.round_number}; it needs "
                "to before it gets another order"
            )
        booked = account.newest.round_number
        if order.round_number <= booked:
            raise WireError(
                f"{client} has replied to round {booked} and cannot get an order for an earlier "
                "round"
            )
        self.accounts.send(client, order)

    def orders_of(
        self, round_number: int, clients: Sequence[str], reachable: Collection[str]
    ) -> dict[str, Order]:
        """Return the recorded orders of a round; clients without one wait for the next."""
        return {
            client: order
            for client in clients
            if client in reachable
            and (order := self.account(client).outstanding) is not None
            and order.round_number == round_number
        }

    def book(self, client: str, receipt: Receipt) -> Booking:
        """Book a receipt; one booked before adds nothing, an impossible one is refused."""
        account = self.account(client)
        before = account.newest
        if receipt.run != self.run:
            raise WireError(f"the receipt of {client} is for run {receipt.run!r}")
        if receipt.round_number <= before.round_number:
            return Booking(0, 0.0, on_time=False)
        order = account.outstanding
        if account.retired_in:
            raise WireError(
                f"{client} was retired in round {account.retired_in}, and what it may have paid "
                f"for round {receipt.round_number} is already booked as spent"
            )
        if order is None or order.round_number != receipt.round_number:
            raise WireError(f"{client} was not sent an order for round {receipt.round_number}")
        try:
            after = account.after(receipt)
        except WireError as refused:
            raise WireError(f"the receipt of {client} is refused: {refused}") from None
        set_aside = receipt.health.get("set_aside", 0)
        if set_aside > before.health.get("set_aside", 0):
            logger.warning(
                "%s set aside samples that it could not read, acquire or store: %d in all; its "
                "own log and its buffer name them",
                *(client, set_aside),
            )
        booking = Booking(
            admitted=receipt.admitted - before.admitted,
            spent=after.paid - account.paid,
            on_time=receipt.round_number > self.closed_round,
        )
        self.accounts[client] = after
        self.booked = _plus(self.booked, booking, receipt)
        return booking

    def close_round(self, round_number: int) -> RoundTotals:
        """Return what the fleet did since the last call, for a rule's ``settle``.

        Money and samples of late receipts count. What they trained on does not, because late models
        are not averaged. From now on a receipt of this round is late.
        """
        if round_number <= self.closed_round:
            raise ValueError(
                f"round {round_number} is closed already; the last closed round is "
                f"{self.closed_round}"
            )
        totals, self.booked = self.booked, NOTHING
        self.closed_round = round_number
        return totals


def _plus(totals: RoundTotals, booking: Booking, receipt: Receipt) -> RoundTotals:
    """Return the sums with one more receipt; what a late one trained on does not count."""
    trained = int(booking.on_time)
    return RoundTotals(
        admitted=totals.admitted + booking.admitted,
        spent=totals.spent + booking.spent,
        training_size=totals.training_size + trained * receipt.occupancy,
        prior_uses=totals.prior_uses + trained * (receipt.uses - receipt.occupancy),
        carried=totals.carried + trained * (sum(receipt.holding) - receipt.expiring),
    )
