"""The server's account of one client: its newest receipt, and the order without a reply.

A receipt says what the client bought, paid and holds. The server believes it if it follows from
the receipt before it and the order between them (``check``), and keeps it. What a client bought for
buffers that it has lost is kept as sums.
"""

import math
from dataclasses import dataclass, field, replace
from typing import TypeVar

from tidegate import buffer
from tidegate.buffer import Holding
from tidegate.errors import WireError
from tidegate.wire import (
    LARGEST_INTEGER,
    MOST_AGES,
    MOST_IN_A_ROW,
    MOST_PASSED,
    Address,
    Introduction,
    Order,
    Receipt,
)

ROUNDING = 1e-12
"""Of sums of money: for each unit of them."""
NOTHING = Receipt(run="none", round_number=0)
"""In place of the receipt of a buffer that has given none."""

Copied = TypeVar("Copied")


def with_changes(record: Copied, **changes: object) -> Copied:
    """As ``dataclasses.replace``, for a class that checks nothing when it is made.

    ``replace`` calls ``__init__`` with every field, which takes ten times as long: too much for a
    thousand accounts a round.
    """
    copied = object.__new__(type(record))
    fields = vars(copied)
    fields.update(vars(record))
    known = len(fields)
    fields.update(changes)
    if len(fields) > known:
        unknown = sorted(changes.keys() - vars(record).keys())
        raise TypeError(f"{type(record).__name__} has no {', '.join(unknown)}")
    return copied


@dataclass(frozen=True)
class Lost:
    """What a client bought for buffers that it has lost, as sums."""

    buffers: int = 0
    """How many it has lost with samples in them."""
    admitted: int = 0
    spent: float = 0.0
    """With what orders without a reply may have cost."""
    refunded: float = 0.0
    read: int = 0
    """Samples of the stream that they read, or may have read: the next one begins after these."""
    unsure: int = 0
    """The part of it that was perhaps read, after the newest receipt."""
    last_taken: str = ""
    """Digest of how far the stream was read by that receipt."""


@dataclass(frozen=True)
class Account:
    """One client's account."""

    buffer_capacity: int
    """B_m, a hard limit on what a receipt may claim to store, and so to admit in a round."""
    buffer_id: str = ""
    """Id of the buffer that its orders are for."""
    train_on: int = 0
    """The most samples that train in a round, the least used ones; 0 for all."""
    newest: Receipt = NOTHING
    """The newest receipt of this buffer."""
    outstanding: Order | None = None
    """The order without a reply, which the client may have applied."""
    candidates: int = 0
    """Candidates that it reads from its stream for an order, if it chooses among them."""
    lost: Lost = field(default_factory=Lost)
    """Its earlier buffers."""
    missing: Holding = ()
    """By age, what left the buffer early or was lost with it (from the second one on), and was not
    bought again. A rule counts it as stored, so that nobody gains money by losing samples."""
    retired_in: int = 0
    """The round in which an operator retired the client; 0 if it has not been retired."""

    @property
    def paid(self) -> float:
        """What the client has committed, less refunds."""
        return self.lost.spent + self.newest.spent - self.lost.refunded - self.newest.refunded

    @property
    def admitted(self) -> int:
        """Samples that have trained, for all of its buffers."""
        return self.lost.admitted + self.newest.admitted

    def kept(self, horizon: float) -> Holding:
        """Return what is planned when an order with this horizon comes, by age."""
        return buffer.kept(self.newest.holding, horizon, self.newest.expiring)

    @property
    def is_new(self) -> bool:
        """Whether its buffer has had no order, and nothing is known of what it began with."""
        return self.newest == NOTHING and self.outstanding is None

    @property
    def is_empty(self) -> bool:
        """Whether it holds nothing, and nothing is under way."""
        return not (self.newest.occupancy or self.newest.under_way)

    def most_bought(self, order: Order) -> int:
        """Return the most samples that the client can buy for an order, by its newest receipt."""
        return buffer.wanted(order, self.kept(order.horizon), self.buffer_capacity)

    def within_losses(self, order: Order) -> Order:
        """Return a rule that counts missing samples as if they were stored."""
        if not (order.thresholds and self.missing):
            return order
        assumed = buffer.both(self.missing, self.kept(order.horizon))
        return replace(order, count=buffer.wanted(order, assumed, self.buffer_capacity))

    @property
    def exposure(self) -> float:
        """What the order without a reply may turn out to have cost."""
        order = self.outstanding
        return 0.0 if order is None else self.most_bought(order) * order.price

    @property
    def _most_read(self) -> int:
        """Samples of the stream that the order without a reply may have read, besides failures."""
        order = self.outstanding
        return 0 if order is None else max(self.most_bought(order), self.candidates)

    def after(self, receipt: Receipt) -> "Account":
        """Return the account after a receipt; refuse one that cannot be the reply."""
        order = self.outstanding
        if order is None:
            raise WireError(f"there is no order of round {receipt.round_number}")
        before, bought, missing = self.newest, receipt.bought - self.newest.bought, self.missing
        check(receipt, self, order)
        expected = buffer.after(self.kept(order.horizon), bought, self.buffer_capacity)
        if missing or receipt.holding != expected:
            gone = buffer.less(buffer.both(buffer.aged(missing), expected), receipt.holding)
            missing = buffer.without_oldest(gone, bought + receipt.refused - before.refused)
        # A client that does not know how far it read has not started to read.
        last_taken = receipt.last_taken or before.last_taken
        newest = with_changes(receipt, last_taken=last_taken)
        return with_changes(self, newest=newest, missing=missing, outstanding=None)

    def with_new_buffer(self, buffer_id: str) -> "Account":
        """Return the account of a client that has lost its buffer, and its books with it.

        What it may have paid for an order without a reply counts as spent.
        """
        newest, lost, waits = self.newest, self.lost, self.outstanding is not None
        unheard = 0 if self.outstanding is None else self.most_bought(self.outstanding)
        held = buffer.aged(newest.holding, unheard) if waits else newest.holding
        gone = buffer.both(held, self.missing)
        too_many = max(sum(gone) - self.buffer_capacity, 0)
        unsure = self._most_read if newest.last_taken else lost.unsure + self._most_read
        return Account(
            buffer_capacity=self.buffer_capacity,
            buffer_id=buffer_id,
            train_on=self.train_on,
            lost=Lost(
                buffers=lost.buffers + bool(sum(newest.holding) or newest.under_way or waits),
                admitted=self.admitted,
                spent=lost.spent + newest.spent + self.exposure,
                refunded=lost.refunded + newest.refunded,
                read=min(lost.read + newest.read + self._most_read, LARGEST_INTEGER),
                unsure=unsure,
                last_taken=newest.last_taken or lost.last_taken,
            ),
            missing=buffer.without_oldest(gone, too_many) if lost.buffers else (),
        )

    def introduced(self, introduction: Introduction) -> "Account":
        """Return the account after a client said how far it has read its stream."""
        account = replace(self, candidates=introduction.candidates, train_on=introduction.train_on)
        if introduction.holding and self.is_new:
            account = replace(account, newest=Receipt.begun("none", introduction.holding))
        newest = account.newest
        # An order that is now void may have read samples, for the whole buffer or more candidates.
        most = max(introduction.candidates, self.candidates, self.buffer_capacity)
        if (
            newest.read < introduction.read <= newest.read + readable(most)
        ):  # else it cannot be true
            read, last_taken = introduction.read, introduction.last_taken
            account = replace(account, newest=replace(newest, read=read, last_taken=last_taken))
        return account

    def address(self, run: str, client: str) -> Address:
        """Return the address of an order: the client, and how far its books are known here."""
        return Address(
            run=run,
            client=client,
            buffer_id=self.buffer_id,
            booked_round=self.newest.round_number,
            skip=self.lost.read,
            last_taken=self.lost.last_taken,
            skip_after=self.lost.unsure,
        )


def readable(wanted: int) -> int:
    """Return the most samples of a stream that an order for so many can read, with failures."""
    return (1 + MOST_IN_A_ROW) * wanted + MOST_PASSED


def check(receipt: Receipt, account: Account, order: Order) -> None:
    """Refuse a receipt that does not follow from the one before it and the order."""
    before = account.newest
    held, reported = before.holding, receipt.holding
    bought = receipt.bought - before.bought
    admitted = receipt.admitted - before.admitted
    refused = receipt.refused - before.refused
    possible, planned = account.most_bought(order), sum(reported)
    spent = before.spent + order.price * bought
    ended = before.under_way_spent + order.price * bought - receipt.under_way_spent
    rounding = ROUNDING * (1 + receipt.spent)
    expiring = sum(reported[int(min(order.horizon, MOST_AGES)) - 1 :])
    ranges = {
        "samples bought": (bought, 0, possible),
        "samples refused": (refused, 0, before.under_way + bought),
        "samples admitted": (admitted, 0, before.under_way + bought - refused),
        "money spent in all": (receipt.spent, spent, spent),
        "money under way": (
            receipt.under_way_spent,
            0.0,
            (before.under_way_spent + order.price * bought + rounding) * (receipt.under_way > 0),
        ),
        "money refunded": (
            receipt.refunded - before.refunded,
            0.0,
            (ended + rounding) * (refused > 0),
        ),
        "samples planned": (planned, 0, account.buffer_capacity),
        "older samples": (planned - sum(reported[:1]), 0, sum(held) + before.under_way),
        "samples expiring": (
            receipt.expiring,
            expiring if order.horizon <= MOST_AGES else 0,
            0 if math.isinf(order.horizon) else expiring,
        ),
        "samples stored": (
            receipt.occupancy,
            0,
            min(account.train_on or account.buffer_capacity, before.occupancy + admitted),
        ),
        "uses": (
            receipt.uses,
            receipt.occupancy,
            # Those that train now need not be those that trained before.
            receipt.occupancy * (order.round_number + MOST_AGES)
            if account.train_on
            else before.uses + receipt.occupancy,
        ),
        "samples read": (
            receipt.read - before.read,
            0,
            readable(max(possible, account.candidates)),
        ),
    }
    for name, (value, least, most) in ranges.items():
        if not least <= value <= most:
            raise WireError(
                f"it reports {value:.10g} {name} for round {order.round_number}, but at least "
                f"{least:.10g} and at most {most:.10g} are possible"
            )
    expected = buffer.after(account.kept(order.horizon), bought, account.buffer_capacity)
    likely = not order.evicts or reported == expected
    if not (likely or buffer.may_follow(reported, held, bought, before.under_way)):
        raise WireError(
            f"it reports {reported[:20]} samples by age for round {order.round_number}, after "
            f"{held[:20]} and {bought} bought: samples cannot be older than that"
        )
