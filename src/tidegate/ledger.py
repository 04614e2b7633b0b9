"""The server's books: what was ordered, admitted and paid, each order once.

A client has one order at a time: before the next one it answers, or says how far it came and that
it will not apply the order any more. So the server knows exactly what a client's buffer holds, and
believes no receipt that cannot follow from it.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from tidegate.admission.rule import RoundTotals
from tidegate.saving import plain
from tidegate.wire import Order, Receipt, WireError

ROUNDING = 1e-9
"""Of sums of money: for each unit of them."""


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
    lost_samples: int = 0
    """That may have gone into them: at most so many were read from the stream."""
    lost_cohorts: tuple[tuple[int, int], ...] = ()
    """What may have been in them, from the second on, and has not been bought again."""
    cohorts: tuple[tuple[int, int], ...] = ()
    """(round, samples admitted in it) of what is stored, oldest first."""
    outstanding: Order | None = None
    """Sent and not answered; the client may have applied it."""

    def most_admitted(self, order: Order) -> int:
        """Samples that an order can lead to, beside what is stored.

        A rule by age leads to no more than there are slots that are empty, or old enough for the
        price: a client cannot claim to have bought again what it claimed to have bought just now.
        """
        now, evicts = order.round_number, order.retention == "oldest_first"
        kept = self.carried_samples(now, _horizon(order))
        empty = self.buffer_capacity - kept
        if not order.thresholds:
            return min(order.count, self.buffer_capacity if evicts else empty)
        # Nobody has trained on a sample in more rounds than there were since it was admitted.
        takes = [order.price <= threshold for threshold in order.thresholds]
        old = sum(count for since, count in self.cohorts if takes[min(now - since, len(takes) - 1)])
        return min(order.count, empty * takes[0] + old)

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
        """Samples that are still stored when a round begins.

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
        """What the order that is not answered may turn out to have cost."""
        order = self.outstanding
        return 0.0 if order is None else self.most_admitted(order) * order.price


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

        What it may have paid for an order that was never answered can no longer be told; it is
        booked as spent. One that is still on its way is for the buffer that is gone. The first
        new buffer is filled at once; one that is lost after it only as fast as samples are
        replaced in a buffer that is not, so that losing them earns nobody more money.

        Returns:
            that amount.
        """
        account = self.account(client)
        lost, had_any = account.exposure, bool(account.all_cohorts or account.outstanding)
        self._accounts[client] = Account(
            buffer_capacity=account.buffer_capacity,
            buffer_id=buffer_id,
            total_admitted=account.total_admitted,
            total_spent=account.total_spent + lost,
            earlier_admitted=account.total_admitted,
            earlier_spent=account.total_spent + lost,
            losses=account.losses + had_any,
            lost_samples=account.lost_samples + _read_from_stream(account),
            lost_cohorts=_lost(account) if account.losses else (),
        )
        self._booked = replace(self._booked, spent=self._booked.spent + lost)
        return lost

    def void(self, client: str, last_round: int, void_round: int) -> None:
        """Forget an order that a client will never apply: one after its last, up to a round."""
        account = self.account(client)
        order = account.outstanding
        if order is not None and last_round < order.round_number <= void_round:
            self._accounts[client] = replace(account, outstanding=None)

    def send(self, client: str, order: Order) -> None:
        """Write down an order before it is sent."""
        account = self.account(client)
        if order.run != self.run:
            raise WireError(f"the ledger keeps run {self.run!r}, not {order.run!r}")
        if account.outstanding is not None:
            raise WireError(
                f"{client} has not answered round {account.outstanding.round_number}; it must "
                "before it gets another order"
            )
        if order.round_number <= account.last_round:
            raise WireError(
                f"{client} has answered round {account.last_round}, and gets no order of an older"
            )
        self._accounts[client] = replace(account, outstanding=order)

    def book(self, client: str, receipt: Receipt) -> Booking:
        """Book a receipt; one that was booked before adds nothing, an impossible one is refused."""
        account = self.account(client)
        if receipt.run == self.run and receipt.round_number <= account.last_round:
            return Booking(0, 0.0, on_time=False)
        order = account.outstanding
        if order is None or order.round_number != receipt.round_number:
            raise WireError(f"{client} was sent no order of round {receipt.round_number}")
        receipt.check_answers(order, buffer_capacity=account.buffer_capacity)
        cohorts = _after(client, account, order, receipt)
        # What rounding lets through must not make it fall.
        spent = max(account.total_spent, account.earlier_spent + receipt.total_spent)
        booking = Booking(
            admitted=receipt.admitted,
            spent=spent - account.total_spent,
            on_time=receipt.round_number > self._closed_round,
        )
        self._accounts[client] = replace(
            account,
            total_admitted=account.total_admitted + receipt.admitted,
            total_spent=spent,
            last_round=receipt.round_number,
            cohorts=cohorts,
            lost_cohorts=_without_oldest(account.lost_cohorts, receipt.admitted),
            outstanding=None,
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
                "outstanding": account.outstanding and account.outstanding.to_record(),
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
            sent = values["outstanding"]
            order = None if sent is None else Order.from_record(sent)
            known = {**values, **cohorts, "outstanding": order}
            accounts[client] = plain(Account, known)
        booked = plain(RoundTotals, record["booked"])
        return cls(record["run"], accounts, record["closed_round"], booked)


def _after(
    client: str, account: Account, order: Order, receipt: Receipt
) -> tuple[tuple[int, int], ...]:
    """What a client stores after an order, if its receipt can be the answer."""
    possible, admitted, now = account.most_admitted(order), receipt.admitted, order.round_number
    if admitted > possible:
        raise WireError(
            f"{client} reports {admitted} samples of round {now}, where its order can have led "
            f"to {possible} at most"
        )
    before = account.total_admitted - account.earlier_admitted
    if receipt.total_admitted != before + admitted:
        raise WireError(
            f"{client} reports {receipt.total_admitted} samples in all, after {before} and "
            f"{admitted} of round {now}"
        )
    paid = account.total_spent - account.earlier_spent + receipt.spent
    if abs(receipt.total_spent - paid) > ROUNDING * (1 + account.total_spent + receipt.total_spent):
        raise WireError(f"{client} reports {receipt.total_spent} spent in all, in place of {paid}")
    horizon = _horizon(order) or math.inf
    kept = tuple(one for one in account.cohorts if now < one[0] + horizon)
    cohorts = (*kept, *([(now, admitted)] if admitted else []))
    stored = sum(count for _, count in cohorts)
    cohorts = _without_oldest(cohorts, max(stored - account.buffer_capacity, 0))
    expiring = sum(count for since, count in cohorts if now + 1 >= since + horizon)
    held = sum(count for _, count in cohorts), expiring
    if (receipt.occupancy, receipt.expiring) != held:
        raise WireError(
            f"{client} must store {held[0]} samples, of which {held[1]} expire; it reports "
            f"{receipt.occupancy} and {receipt.expiring}"
        )
    most_uses = sum(count * (now - since) for since, count in cohorts)
    if receipt.prior_uses > most_uses:
        raise WireError(
            f"{client} cannot have used its samples {receipt.prior_uses} times, in {most_uses} "
            "rounds that they were there"
        )
    return cohorts


def _horizon(order: Order) -> int:
    """K, or 0 where samples do not expire."""
    return order.retention_horizon if order.retention == "k_step" else 0


def _read_from_stream(account: Account) -> int:
    """Samples that may have gone into the present buffer."""
    order, booked = account.outstanding, account.total_admitted - account.earlier_admitted
    return booked + (0 if order is None else account.most_admitted(order))


def _lost(account: Account) -> tuple[tuple[int, int], ...]:
    """What a client may have had and lost: all that was booked, and what was not answered."""
    order, cohorts = account.outstanding, account.all_cohorts
    if order is not None:
        cohorts = (*cohorts, (order.round_number, account.most_admitted(order)))
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
