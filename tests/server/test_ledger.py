from dataclasses import replace
from typing import Any

import pytest
from check_size import at_size
from hypothesis import given, settings
from hypothesis import strategies as st

from tidegate.client.gate import Gate
from tidegate.client.store import Store
from tidegate.client.streams import IndexedStream
from tidegate.errors import WireError
from tidegate.server.ledger import Ledger
from tidegate.wire import NO_LIMIT, Order, Receipt

RUN = "r"


def order(now: int, count: int, price: float = 2.0, **changes: Any) -> Order:
    values: dict[str, Any] = {"retention_horizon": 3, "count": count, **changes}
    return Order(run=RUN, round_number=now, price=price, **values)


def opened(*clients: str) -> Ledger:
    ledger = Ledger(RUN)
    for client in clients:
        ledger.open(client, 10)
    return ledger


def gate(store: Store | None = None) -> Gate:
    return Gate(store or Store(None, RUN, "site", 10), IndexedStream(range(10_000)))


def test_a_round_is_ordered_booked_and_closed() -> None:
    ledger, gates = opened("a", "b"), {"a": gate(), "b": gate()}
    for client, count in (("a", 3), ("b", 4)):
        ledger.send(client, order(1, count))
    assert ledger.exposure == 14.0
    for client, one in gates.items():
        sent = ledger.account(client).outstanding
        assert sent is not None
        assert ledger.book(client, one.apply(sent)).on_time
    totals = ledger.close_round(1)
    assert (totals.admitted, totals.spent, totals.training_size) == (7, 14.0, 7)
    assert ledger.exposure == 0.0
    assert ledger.close_round(2).spent == 0.0
    with pytest.raises(ValueError, match="round 2 is closed already; the last closed round is 2"):
        ledger.close_round(2)


def test_a_client_has_one_order_at_a_time() -> None:
    """It answers, or says that it will not apply the order any more."""
    ledger, one = opened("a"), gate()
    ledger.send("a", order(1, 3))
    with pytest.raises(WireError, match="a has not replied to round 1; it needs to before"):
        ledger.send("a", order(2, 3))
    ledger.void("a", last_round=0, void_round=1)
    ledger.send("a", order(2, 3))
    assert ledger.book("a", one.apply(order(2, 3))).admitted == 3
    ledger.send("a", order(3, 3))
    ledger.void("a", last_round=3, void_round=3)  # it was applied: its receipt is still to come
    assert ledger.account("a").outstanding == order(3, 3)
    ledger.void("a", last_round=2, void_round=2)  # it may still arrive
    assert ledger.account("a").outstanding == order(3, 3)


def test_a_late_receipt_is_paid_and_kept_out_of_the_average() -> None:
    ledger, one = opened("a"), gate()
    ledger.send("a", order(1, 3))
    late = one.apply(order(1, 3))
    ledger.close_round(1)
    booking = ledger.book("a", late)  # before or after the next order, it is late
    assert (booking.admitted, booking.spent, booking.on_time) == (3, 6.0, False)
    ledger.send("a", order(2, 2))
    totals = ledger.close_round(2)
    assert (totals.spent, totals.training_size) == (6.0, 0)
    assert ledger.account("a").outstanding == order(2, 2)  # it may still be answered
    assert sum(ledger.account("a").kept(horizon=3)) == 3


def test_a_receipt_that_comes_twice_is_booked_once() -> None:
    ledger, one = opened("a"), gate()
    ledger.send("a", order(1, 3))
    receipt = one.apply(order(1, 3))
    ledger.book("a", receipt)
    assert ledger.book("a", receipt).spent == 0.0
    assert ledger.close_round(1).spent == 6.0


def honest(now: int = 1) -> Receipt:
    return Receipt(
        run=RUN,
        round_number=now,
        bought=3,
        admitted=3,
        spent=6.0,
        holding=(0,) * (now - 1) + (3,),
        occupancy=3,
        uses=3 * now,
        read=3,
    )


@pytest.mark.parametrize(
    ("lie", "reason"),
    [
        ({"run": "other"}, "the receipt of a is for run 'other'"),
        ({"round_number": 2}, "was not sent an order for round 2"),
        ({"bought": 4, "spent": 8.0}, "of a is refused: it reports 4 samples bought"),
        ({"admitted": 4, "occupancy": 4}, "it reports 4 samples admitted"),
        ({"occupancy": 11}, "it reports 11 samples stored"),
        ({"occupancy": 4, "uses": 4}, "it reports 4 samples stored"),
        ({"uses": 4}, "it reports 4 uses for round 1, but at least 3 and at most 3 are possible"),
        ({"expiring": 3}, "it reports 3 samples expiring"),
        ({"holding": (2, 1)}, "it reports 1 older samples"),
        ({"holding": (11,)}, "it reports 11 samples planned"),
        ({"spent": 3.0}, "it reports 3 money spent in all for round 1, but at least 6 and at"),
        ({"spent": 600.0}, "it reports 600 money spent in all"),
        ({"refunded": 1.0}, "it reports 1 money refunded"),
        ({"under_way_spent": 1.0}, "it reports 1 money under way"),
        ({"read": 1064}, "it reports 1064 samples read for round 1, .* at most 1063"),
    ],
)
def test_a_lie_is_refused_and_changes_nothing(lie: dict[str, Any], reason: str) -> None:
    ledger = opened("a")
    ledger.send("a", order(1, 3))
    before = ledger.account("a")
    with pytest.raises(WireError, match=reason):
        ledger.book("a", replace(honest(), **lie))
    assert ledger.account("a") == before
    assert ledger.close_round(1).spent == 0.0
    assert not ledger.health
    ledger.book("a", honest())


def test_samples_set_aside_are_counted_and_told_once(caplog: pytest.LogCaptureFixture) -> None:
    ledger = opened("a", "b")
    for client in ("a", "b"):
        ledger.send(client, order(1, 3))
    ledger.book("b", honest())
    assert "set aside" not in caplog.text
    ledger.book("a", replace(honest(), health={"set_aside": 2}))
    words = "a set aside samples that it could not read, acquire or store: 2 in all"
    assert words in caplog.text
    again = replace(honest(2), health={"set_aside": 2}, last_taken="0123456789abcdef")
    ledger.send("a", order(2, 3))
    ledger.book("a", again)
    assert caplog.text.count("set aside samples") == 1
    assert ledger.health == {"set_aside": 2}
    assert ledger.account("a").newest.last_taken == "0123456789abcdef"
    ledger.begin_again("a", "next")
    assert ledger.health == {}
    assert ledger.account("a").lost.read == 3
    assert ledger.account("a").lost.last_taken == "0123456789abcdef"


def test_a_cursor_that_is_not_known_leaves_the_one_that_was() -> None:
    ledger = opened("a")
    ledger.send("a", order(1, 3))
    ledger.book("a", replace(honest(), last_taken="0123456789abcdef"))
    ledger.send("a", order(2, 3))
    ledger.book("a", honest(2))
    assert ledger.account("a").newest.last_taken == "0123456789abcdef"


RULE: dict[str, Any] = {
    "retention": "oldest_first",
    "retention_horizon": 0,
    "thresholds": (9.0, 1.0, 4.0),
}
"""An empty slot takes a sample at up to 9, one of a round ago at up to 1, an older one at 4."""


def test_a_rule_leads_to_no_more_than_slots_that_are_empty_or_old_enough() -> None:
    ledger, one = opened("a"), gate()
    first = order(1, 6, price=8.0, **RULE)
    ledger.send("a", first)
    assert ledger.exposure == 48.0
    ledger.book("a", one.apply(first))
    most = [ledger.account("a").most_bought(order(2, NO_LIMIT, price, **RULE)) for price in
            (9.5, 8.0, 3.0, 1.0)]  # fmt: skip
    assert most == [0, 4, 4, 10]
    second = order(7, NO_LIMIT, price=8.0, **RULE)  # it was away: that makes nothing older
    ledger.send("a", second)
    receipt = one.apply(second)
    with pytest.raises(WireError, match=r"it reports 5 samples bought for round 7, but .* most 4"):
        ledger.book("a", replace(receipt, bought=11, admitted=11, spent=88.0))
    ledger.book("a", receipt)
    account = ledger.account("a")
    assert account.most_bought(order(8, NO_LIMIT, 3.0, **RULE)) == 6  # used twice by now


def test_a_buffer_that_never_changes_is_filled_once() -> None:
    ledger, one = opened("a"), gate()
    fill: dict[str, Any] = {"retention": "frozen", "retention_horizon": 0}
    ledger.send("a", order(1, 10, **fill))
    ledger.book("a", one.apply(order(1, 10, **fill)))
    assert ledger.account("a").most_bought(order(2, 10, **fill)) == 0


def test_orders_go_forward_to_clients_with_an_account() -> None:
    ledger = opened("a")
    with pytest.raises(WireError, match="no client 'b' has an account"):
        ledger.send("b", order(1, 1))
    ledger.send("a", order(3, 1))
    with pytest.raises(WireError, match="has not replied to round 3"):
        ledger.send("a", order(3, 1))
    ledger.book("a", gate().apply(order(3, 1)))
    with pytest.raises(WireError, match="has replied to round 3 and cannot get an order"):
        ledger.send("a", order(3, 1))
    with pytest.raises(WireError, match="the ledger is of run 'r', not 's'"):
        ledger.send("a", replace(order(4, 1), run="s"))
    ledger.open("a", 99)
    assert ledger.account("a").buffer_capacity == 10
    assert ledger.clients == ["a"]


deliveries = st.lists(
    st.tuples(
        st.integers(0, 6),  # count
        st.sampled_from([0.5, 1.0, 7.25]),  # price
        st.sampled_from(["answered", "order lost", "receipt lost", "receipt late"]),
    ),
    min_size=1,
    max_size=40,
)


def introduce(ledger: Ledger, store: Store, void_round: int) -> None:
    """Say how far the client came, and that earlier orders are void."""
    store.void(void_round)
    last_round = store.books().last_round
    answer = store.answer(last_round)
    if answer is not None:
        ledger.book("a", answer[1])
    ledger.void("a", last_round, void_round)


@settings(max_examples=at_size(40, 200), deadline=None)
@given(deliveries=deliveries)
def test_whatever_is_lost_the_books_agree_at_the_next_contact(
    deliveries: list[tuple[int, float, str]],
) -> None:
    ledger, store = opened("a"), Store(None, RUN, "site", 10)
    one = gate(store)
    waiting: list[Receipt] = []
    booked = 0.0
    for now, (count, price, fate) in enumerate(deliveries, start=1):
        for late in waiting:
            ledger.book("a", late)
        waiting = []
        if ledger.account("a").outstanding is not None:
            introduce(ledger, store, void_round=now - 1)
        sent = order(now, count, price)
        ledger.send("a", sent)
        if fate != "order lost":
            receipt = one.apply(sent)
            if fate == "answered":
                ledger.book("a", receipt)
            elif fate == "receipt late":
                waiting.append(receipt)
        booked += ledger.close_round(now).spent
        account = ledger.account("a")
        assert booked == pytest.approx(account.paid)
        # What the client really spent is never more than what is booked or may be outstanding.
        assert store.books().spent <= account.paid + account.exposure + 1e-9
    introduce(ledger, store, void_round=len(deliveries))
    last = order(len(deliveries) + 1, 1, 1.0)
    ledger.send("a", last)
    ledger.book("a", one.apply(last))
    books = store.books()
    account = ledger.account("a")
    assert (account.admitted, account.paid) == (books.admitted, books.spent)
    assert account.outstanding is None
