"""The server's books: what was ordered, admitted and paid, each order once.

Receipts are cumulative, so a lost one is made good by the next; what was sent and has not been
answered is kept, so that no client can report more than it was ever asked for.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from tidegate.admission.rule import RoundTotals
from tidegate.saving import plain
from tidegate.wire import Order, Receipt, WireError


@dataclass(frozen=True)
class Account:
    """What the server knows of one client."""

    buffer_capacity: int
    """B_m, a hard limit on what a receipt may claim to store, and so to admit in a round."""
    buffer_id: str = ""
    """Of the buffer that its orders are for."""
    total_admitted: int = 0
    total_spent: float = 0.0
    last_round: int = 0
    """Of the newest receipt that was booked since the client's books began."""
    earlier_admitted: int = 0
    """Part of the total that belongs to books which the client has lost."""
    earlier_spent: float = 0.0
    losses: int = 0
    """Buffers that the client has lost."""
    lost_cohorts: tuple[tuple[int, int], ...] = ()
    """What may have been in them, from the second on, and has not been bought again."""
    cohorts: tuple[tuple[int, int], ...] = ()
    """(round, samples admitted in it) of what was stored when it was given, oldest first. Where
    the round was not heard: the latest that can be, if samples expire, so that none is taken for
    gone too early; else the earliest, so that none is taken for too young."""
    outstanding: tuple[Order, ...] = ()
    """Sent and not answered, oldest first; the client may have applied any of them."""

    def most_admitted(self, order: Order) -> int:
        """Samples that an order can lead to, whatever the client did without being heard.

        A rule by age leads to no more than there are slots that are empty, or old enough for the
        price: a client cannot claim to have bought again what it claimed to have bought just now.
        """
        if not order.thresholds:
            return min(order.count, self.buffer_capacity)
        now, last = order.round_number, len(order.thresholds) - 1

        def takes(uses: int) -> bool:
            return order.price <= order.thresholds[min(uses, last)]

        # An empty slot may have been filled in a round that was not heard of.
        unheard_rounds = now - self.last_round - 1
        empty = self.buffer_capacity - sum(count for _, count in self.cohorts)
        fresh = empty if takes(0) or (unheard_rounds and takes(unheard_rounds)) else 0
        old = sum(count for admitted_round, count in self.cohorts if takes(now - admitted_round))
        return min(order.count, fresh + old)

    @property
    def all_cohorts(self) -> tuple[tuple[int, int], ...]:
        """What is stored, and what was lost and not bought again, oldest first."""
        return tuple(sorted((*self.lost_cohorts, *self.cohorts)))

    def within_losses(self, order: Order) -> Order:
        """A rule that replaces what was lost as if it were still there."""
        if not (order.thresholds and self.lost_cohorts):
            return order
        return replace(order, count=replace(self, cohorts=self.all_cohorts).most_admitted(order))

    def carried_samples(self, round_number: int, retention_horizon: int) -> int:
        """Samples that are still stored when a round begins, as far as was heard.

        Args:
            round_number: t.
            retention_horizon: K, or 0 where samples do not expire.
        """
        if not retention_horizon:
            return sum(admitted for _, admitted in self.cohorts)
        oldest = round_number - retention_horizon
        return sum(admitted for admitted_round, admitted in self.cohorts if admitted_round > oldest)

    @property
    def exposure(self) -> float:
        """What the orders that are not answered may turn out to have cost."""
        return math.fsum(self.most_admitted(order) * order.price for order in self.outstanding)


@dataclass(frozen=True)
class Booking:
    """What one receipt added to the books."""

    admitted: int
    spent: float
    on_time: bool
    """Its round is still open; a late one is paid but trained on an old model."""


NOTHING = RoundTotals(admitted=0, spent=0.0, training_size=0, expiring=0, prior_uses=0)


class Ledger:
    """Accounts of all clients, and what was booked since the last round was closed."""

    def __init__(
        self,
        run: str,
        accounts: Mapping[str, Account] | None = None,
        closed_round: int = 0,
        booked: RoundTotals = NOTHING,
    ) -> None:
        self.run = run
        self._accounts = dict(accounts or {})
        self._closed_round = closed_round
        self._booked = booked

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
    def booked(self) -> RoundTotals:
        """What was booked since the last round was closed."""
        return self._booked

    @property
    def exposure(self) -> float:
        """What unanswered orders may turn out to have cost, all clients together."""
        return math.fsum(account.exposure for account in self._accounts.values())

    def open(self, client: str, buffer_capacity: int, buffer_id: str = "") -> None:
        """Give a client an account; one that has it keeps it."""
        self._accounts.setdefault(client, Account(buffer_capacity, buffer_id))

    def begin_again(self, client: str, buffer_id: str = "") -> float:
        """Go on with a client that has lost its buffer and its books with it.

        What it may have paid for orders that were never answered can no longer be told; it is
        booked as spent. Those that are still on their way are for the buffer that is gone. The
        first new buffer is filled at once; one that is lost after it only as fast as samples are
        replaced in a buffer that is not, so that losing them earns nobody more money.

        Returns:
            that amount.
        """
        account = self.account(client)
        lost = account.exposure
        self._accounts[client] = Account(
            buffer_capacity=account.buffer_capacity,
            buffer_id=buffer_id,
            total_admitted=account.total_admitted,
            total_spent=account.total_spent + lost,
            earlier_admitted=account.total_admitted,
            earlier_spent=account.total_spent + lost,
            losses=account.losses + 1,
            lost_cohorts=_lost(account) if account.losses else (),
        )
        self._booked = replace(self._booked, spent=self._booked.spent + lost)
        return lost

    def void(self, client: str, last_round: int, void_round: int) -> None:
        """Forget orders that a client will never apply: those after its last, up to a round."""
        account = self.account(client)
        left = (
            one for one in account.outstanding if not last_round < one.round_number <= void_round
        )
        self._accounts[client] = replace(account, outstanding=tuple(left))

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
        booking = self._difference(client, account, order, receipt)
        _check_occupancy(account, order, booking, receipt)
        self._accounts[client] = replace(
            account,
            total_admitted=account.earlier_admitted + receipt.total_admitted,
            # What rounding lets through must not make it fall.
            total_spent=max(account.total_spent, account.earlier_spent + receipt.total_spent),
            last_round=receipt.round_number,
            cohorts=_cohorts(account, order, booking, receipt),
            lost_cohorts=_without_oldest(account.lost_cohorts, booking.admitted),
            outstanding=tuple(
                one for one in account.outstanding if one.round_number > receipt.round_number
            ),
        )
        self._booked = _plus(self._booked, booking, receipt)
        return booking

    def close_round(self, round_number: int) -> RoundTotals:
        """What the fleet did since the last call, as a rule's ``settle`` takes it.

        Money and samples of late receipts count; what they trained on does not, because it is kept
        out of the average. From now on a receipt of this round is late.
        """
        if round_number <= self._closed_round:
            raise ValueError(f"round {round_number} is closed, {self._closed_round} was the last")
        totals, self._booked = self._booked, NOTHING
        self._closed_round = round_number
        return totals

    def to_record(self) -> dict[str, Any]:
        """All of it as JSON can carry it."""
        accounts = {
            client: {
                **vars(account),
                "outstanding": [order.to_record() for order in account.outstanding],
            }
            for client, account in self._accounts.items()
        }
        return {
            "run": self.run,
            "closed_round": self._closed_round,
            "booked": vars(self._booked),
            "accounts": accounts,
        }

    @classmethod
    def from_record(cls, record: Mapping[str, Any]) -> "Ledger":
        """The ledger that ``to_record`` gave."""
        accounts = {}
        for client, values in record["accounts"].items():
            cohorts = {
                name: tuple((int(now), int(count)) for now, count in values[name])
                for name in ("cohorts", "lost_cohorts")
            }
            orders = tuple(Order.from_record(order) for order in values["outstanding"])
            known = {**values, **cohorts, "outstanding": orders}
            accounts[client] = plain(Account, known)
        booked = plain(RoundTotals, record["booked"])
        return cls(record["run"], accounts, record["closed_round"], booked)

    def _difference(self, client: str, account: Account, order: Order, receipt: Receipt) -> Booking:
        """What a receipt adds, if the orders up to its round can have led to it."""
        possible = account.most_admitted(order)
        if receipt.admitted > possible:
            raise WireError(
                f"{client} reports {receipt.admitted} samples of round {receipt.round_number}, "
                f"where its order can have led to {possible} at most"
            )
        missed = [o for o in account.outstanding if o.round_number < receipt.round_number]
        admitted = account.earlier_admitted + receipt.total_admitted - account.total_admitted
        spent = account.earlier_spent + receipt.total_spent - account.total_spent
        rounding = 1e-9 * (1 + account.earlier_spent + receipt.total_spent)
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
        on_time = receipt.round_number > self._closed_round
        return Booking(admitted, max(spent, 0.0), on_time=on_time)


def _check_occupancy(account: Account, order: Order, booking: Booking, receipt: Receipt) -> None:
    """Refuse a receipt with more samples than were bought, or fewer where none ever leave."""
    kept = account.carried_samples(receipt.round_number, order.retention_horizon)
    most = min(kept + booking.admitted, account.buffer_capacity)
    least = most if order.retention == "oldest_first" else receipt.admitted
    if not least <= receipt.occupancy <= most:
        raise WireError(
            f"occupancy must be from {least} to {most} after {booking.admitted} new samples, "
            f"got {receipt.occupancy}"
        )


def _cohorts(
    account: Account, order: Order, booking: Booking, receipt: Receipt
) -> tuple[tuple[int, int], ...]:
    """When the samples that a client keeps were admitted.

    The oldest always leave first, so the newest ones make up what is left.
    """
    now, unheard = receipt.round_number, booking.admitted - receipt.admitted
    unheard_round = now - 1 if order.retention == "k_step" else account.last_round + 1
    newest_first = (now, receipt.admitted), (unheard_round, unheard), *account.cohorts[::-1]
    left = receipt.occupancy
    kept: list[tuple[int, int]] = []
    for admitted_round, admitted in newest_first:
        count = min(admitted, left)
        if count:
            kept.append((admitted_round, count))
        left -= count
    return tuple(reversed(kept))


def _lost(account: Account) -> tuple[tuple[int, int], ...]:
    """What a client may have had and lost: all that was booked, and all that was not answered."""
    unheard = tuple((one.round_number, account.most_admitted(one)) for one in account.outstanding)
    cohorts = tuple(one for one in (*account.all_cohorts, *unheard) if one[1])
    too_many = sum(count for _, count in cohorts) - account.buffer_capacity
    return _without_oldest(cohorts, max(too_many, 0))


def _without_oldest(
    cohorts: tuple[tuple[int, int], ...], count: int
) -> tuple[tuple[int, int], ...]:
    """All but so many of the oldest samples."""
    left = []
    for admitted_round, admitted in cohorts:
        taken = min(count, admitted)
        count -= taken
        if taken < admitted:
            left.append((admitted_round, admitted - taken))
    return tuple(left)


def _plus(totals: RoundTotals, booking: Booking, receipt: Receipt) -> RoundTotals:
    """The sums with one receipt more; what a late one trained on does not count."""
    trained = int(booking.on_time)
    return RoundTotals(
        admitted=totals.admitted + booking.admitted,
        spent=totals.spent + booking.spent,
        training_size=totals.training_size + trained * receipt.occupancy,
        expiring=totals.expiring + trained * receipt.expiring,
        prior_uses=totals.prior_uses + trained * receipt.prior_uses,
    )
