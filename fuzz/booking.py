"""A ledger that is told anything books no more than its orders allow."""

from dataclasses import replace
from typing import Any

from fuzz.choices import Choices
from fuzz.limits import LONGEST_REASON, may_refuse
from tidegate.errors import WireError
from tidegate.server.ledger import Ledger
from tidegate.wire import Order, Receipt

CLIENT = "site"
COUNTS = (2, 0, 1, 5, 9, 2**31 - 1)
PRICES = (2.5, 0.0, 0.1, 1e9, 1e15)
ROUNDING = 1e-6
"""Of a total: what sums of floats may differ by."""


class Check:
    """A ledger beside plain sums of what its orders allow."""

    def __init__(self, capacity: int) -> None:
        self.ledger = Ledger("r")
        self.ledger.open(CLIENT, capacity, "b")
        self.round_number = 0
        self._capacity = capacity
        self._orders: list[Order] = []
        self._booked_round = 0

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
        last_round = self.ledger.account(CLIENT).last_round
        self.ledger.void(CLIENT, last_round, void_round=self.round_number)
        self.ledger.send(CLIENT, order)
        self._orders.append(order)

    def honest(self) -> dict[str, Any]:
        """The receipt of a client that applied its order but had no fresh samples."""
        account = self.ledger.account(CLIENT)
        order = account.outstanding or Order(run="r", round_number=1, price=0.0, retention="frozen")
        held = account.stores_after(order, 0)
        return Receipt(
            run="r",
            round_number=max(self.round_number, 1),
            admitted=0,
            spent=0.0,
            occupancy=held.occupancy,
            expiring=held.expiring,
            prior_uses=held.prior_uses,
            total_admitted=account.total_admitted - account.earlier_admitted,
            total_spent=account.total_spent - account.earlier_spent,
        ).to_record()

    def lose_buffer(self) -> None:
        """Begin again: what was not answered is booked as spent, and never heard of again."""
        before = self.ledger.account(CLIENT)
        lost = self.ledger.begin_again(CLIENT, "b")
        after = self.ledger.account(CLIENT)
        _need(after.total_spent == before.total_spent + lost, f"{lost} was not booked")
        self._booked_round = self.round_number

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
        _need(after.total_spent >= before.total_spent, "total_spent fell")
        _need(after.total_admitted >= before.total_admitted, "total_admitted fell")
        _need(self.ledger.booked.spent >= booked.spent, "what was booked fell")
        allowed = [
            (_most(one, self._capacity), one.price)
            for one in self._orders
            if self._booked_round < one.round_number <= receipt.round_number
        ]
        self._booked_round = max(self._booked_round, receipt.round_number)
        samples = sum(most for most, _ in allowed)
        money = sum(most * price for most, price in allowed)
        _need(booking.admitted <= samples, f"{booking} is more than {samples} samples")
        rounding = ROUNDING * (1 + after.total_spent)
        _need(booking.spent <= money + rounding, f"{booking} cost more than {money}")


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
            check.ledger = Ledger.from_record(check.ledger.to_record())
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
