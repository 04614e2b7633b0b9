"""A ledger that is told anything books no more than its orders allow."""

from dataclasses import replace
from typing import Any

from fuzz.choices import Choices
from fuzz.limits import LONGEST_REASON, may_refuse
from fuzz.receipts import honest_receipt, saved_again
from tidegate.errors import WireError
from tidegate.server.ledger import Ledger
from tidegate.wire import Order, Receipt

CLIENT = "site"
COUNTS = (2, 0, 1, 5, 9, 2**31 - 1)
PRICES = (2.5, 0.0, 0.1, 1e9, 1e15)
ROUNDING = 1e-6
"""Of a total: what sums of floats may differ by."""


class Check:
    """A ledger beside what its orders allow."""

    def __init__(self, capacity: int) -> None:
        self.ledger = Ledger("r")
        self.ledger.open(CLIENT, capacity, "b")
        self.round_number = 0
        self._capacity = capacity

    def order(self, choices: Choices) -> None:
        """Send one order more; one that was not answered is void."""
        self.round_number += 1
        order = Order(
            run="r",
            round_number=self.round_number,
            price=choices.pick(PRICES),
            retention_horizon=3,
            count=choices.pick(COUNTS),
        )
        if choices.number(3) == 1:
            rule = (choices.pick(PRICES), *sorted((choices.pick(PRICES), choices.pick(PRICES))))
            order = replace(order, retention="oldest_first", thresholds=rule)
        last_round = self.ledger.account(CLIENT).newest.round_number
        self.ledger.void(CLIENT, last_round, void_round=self.round_number)
        self.ledger.send(CLIENT, order)

    def honest(self) -> dict[str, Any]:
        """The receipt of a client that applied its order but had no fresh samples."""
        account = self.ledger.account(CLIENT)
        order = account.outstanding or Order(
            run="r", round_number=max(self.round_number, 1), price=0.0, retention="frozen"
        )
        return honest_receipt(account, order, 0).to_record()

    def lose_buffer(self) -> None:
        """Begin again: what was not answered is booked as spent, and never heard of again."""
        before = self.ledger.account(CLIENT)
        lost = self.ledger.begin_again(CLIENT, "b")
        after = self.ledger.account(CLIENT)
        spent = before.lost.spent + before.newest.spent + lost
        _need(after.lost.spent == spent, f"{lost} was not booked")
        _need(after.lost.admitted == before.admitted, "what was admitted is another")
        refunded = before.lost.refunded + before.newest.refunded
        _need(after.lost.refunded == refunded, "what was refunded is another")

    def book(self, record: dict[str, Any]) -> None:
        """Book a receipt, and compare what it added with what was ordered."""
        before, booked = self.ledger.account(CLIENT), self.ledger.booked
        try:
            receipt = Receipt.from_record(record)
            booking = self.ledger.book(CLIENT, receipt)
        except WireError:
            _need(self.ledger.account(CLIENT) == before, "a refused receipt left a trace")
            _need(self.ledger.booked == booked, "a refused receipt was booked")
            raise
        after = self.ledger.account(CLIENT)
        old, new = before.newest, after.newest
        for name in ("bought", "admitted", "refused", "spent", "refunded", "read", "round_number"):
            _need(getattr(new, name) >= getattr(old, name), f"{name} fell")
        order = before.outstanding
        samples = 0 if order is None else _most(order, self._capacity)
        money = 0.0 if order is None else samples * order.price
        rounding = ROUNDING * (1 + new.spent)
        bought, spent, refunded = (
            getattr(new, name) - getattr(old, name) for name in ("bought", "spent", "refunded")
        )
        _need(bought <= samples, f"{bought} bought are more than {samples} samples")
        _need(spent <= money + rounding, f"{spent} is more than {money}")
        open_before = old.under_way_spent + money
        _need(refunded <= open_before + rounding, f"{refunded} is more than was under way")
        _need(new.under_way >= 0, f"{new.under_way} are under way")
        _need(after.paid >= -rounding, f"{after.paid} is paid")
        _need(booking.admitted == new.admitted - old.admitted, f"{booking} is wrong")
        _need(booking.spent <= money + rounding, f"{booking} cost more than {money}")
        total = booked.spent + booking.spent
        _need(abs(self.ledger.booked.spent - total) <= rounding, f"{booking} was not booked")
        full = max(new.occupancy, sum(new.holding))
        _need(full <= self._capacity, f"{full} samples are in {self._capacity} slots")


def _most(order: Order, capacity: int) -> int:
    """Samples that an order can lead to."""
    if order.thresholds and order.price > max(order.thresholds):
        return 0
    return min(order.count, capacity)


def _need(fulfilled: bool, broken: str) -> None:
    if not fulfilled:
        raise AssertionError(broken)


def target(data: bytes) -> None:
    """Send orders, book receipts, lose a buffer, void orders and close rounds, as data say."""
    choices = Choices(data)
    check = Check(choices.pick((9, 1, 2, 100_000_000)))
    closed = 0
    for _ in range(choices.number(30)):
        what = choices.number(9)
        if what in (0, 1):
            check.order(choices)
        elif what == 2 and check.round_number > closed:
            closed = check.round_number
            check.ledger.close_round(closed)
        elif what == 3:
            check.ledger = saved_again(check.ledger)
        elif what == 4:
            check.lose_buffer()
        elif what == 5:
            check.ledger.void(CLIENT, choices.number(3), choices.number(9))
        else:
            record = check.honest()
            for _ in range(choices.number(6)):
                record[choices.pick(list(record))] = choices.value()
            with may_refuse(WireError, longest=LONGEST_REASON):
                check.book(record)


def seeds() -> list[bytes]:
    """Runs of orders and receipts; the fields that a receipt changes are decisions, too."""
    honest = bytes([0, 20]) + bytes([0, 0, 0, 0, 6, 0, 2]) * 5
    samples = bytes([0, 20]) + bytes([0, 0, 3, 0, 7, 5, 3, 1, 32, 0]) * 3
    return [honest, samples, bytes([3, 9]) + bytes(range(60)), bytes([0, 30]) + bytes(range(90))]
