"""A receipt is believed in the ranges that its order and the receipt before it leave open."""

import math
from dataclasses import replace
from typing import Any

import pytest

from tidegate.errors import WireError
from tidegate.server.account import Account, Lost, check, readable
from tidegate.wire import MOST_AGES, NO_LIMIT, Order, Receipt

ORDER = Order(
    run="r",
    round_number=5,
    price=2.0,
    retention="oldest_first",
    retention_horizon=3,
    count=4,
)
BEFORE = Receipt(
    run="r",
    round_number=4,
    bought=8,
    admitted=5,
    refused=1,
    spent=16.0,
    refunded=2.0,
    under_way_spent=4.0,
    holding=(3, 3, 1),
    expiring=1,
    occupancy=5,
    uses=9,
    read=10,
)
"""Two samples are under way, and six of those planned are younger than 3."""
ACCOUNT = Account(10, newest=BEFORE, outstanding=ORDER)
HONEST: dict[str, Any] = {
    "run": "r",
    "round_number": 5,
    "bought": 11,
    "admitted": 7,
    "refused": 2,
    "spent": 22.0,
    "refunded": 3.0,
    "under_way_spent": 4.0,
    "holding": (3, 3, 3),
    "expiring": 3,
    "occupancy": 6,
    "uses": 12,
    "read": 14,
}


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"bought": 12, "spent": 24.0, "holding": (4, 3, 3)},
        {
            "bought": 8,
            "spent": 16.0,
            "admitted": 5,
            "occupancy": 5,
            "holding": (0, 3, 3),
            "under_way_spent": 2.0,
        },
        {"admitted": 9, "under_way_spent": 0.0},
        {"admitted": 5, "occupancy": 5},
        {"admitted": 5, "refused": 6, "under_way_spent": 0.0, "occupancy": 5},
        {"refused": 1, "refunded": 2.0},
        {"under_way_spent": 0.0},
        {"under_way_spent": 10.0, "refunded": 2.0},
        {"refunded": 2.0},
        {"refunded": 8.0},
        {"holding": (), "expiring": 0},
        {"holding": (1, 3, 6), "expiring": 6},  # what refused ones had replaced may be back
        {"holding": (2, 3, 0, 3), "expiring": 3},
        {"holding": (3, 3), "expiring": 0},
        {"occupancy": 0, "uses": 0},
        {"occupancy": 7},
        {"uses": 6},
        {"uses": 15},
        {"read": 10},
        {"read": 10 + readable(4)},
    ],
)
def test_what_is_possible_is_believed(changes: dict[str, Any]) -> None:
    receipt = Receipt(**{**HONEST, **changes})
    assert ACCOUNT.after(receipt).newest == receipt


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"bought": 7}, "-1 samples bought for round 5, but at least 0 and at most 4 are possible"),
        ({"bought": 13}, "5 samples bought for round 5, but at least 0 and at most 4 are possible"),
        ({"admitted": 4}, "-1 samples admitted for round 5, but at least 0 and at most 4"),
        ({"admitted": 10}, "5 samples admitted for round 5, but at least 0 and at most 4"),
        ({"refused": 0}, "-1 samples refused for round 5, but at least 0 and at most 5"),
        ({"refused": 7}, "6 samples refused for round 5, but at least 0 and at most 5"),
        ({"spent": 21.99}, "21.99 money spent in all for round 5, but at least 22 and at most 22"),
        ({"spent": 22.01}, "22.01 money spent in all for round 5, but at least 22 and at most 22"),
        ({"under_way_spent": 10.1}, "10.1 money under way for round 5, but at least 0 and at most"),
        ({"admitted": 9}, "4 money under way for round 5, but at least 0 and at most 0"),
        ({"refunded": 1.9}, "-0.1 money refunded for round 5, but at least 0 and at most 6"),
        ({"refunded": 8.1}, "6.1 money refunded for round 5, but at least 0 and at most 6"),
        ({"refused": 1}, "1 money refunded for round 5, but at least 0 and at most 0"),
        ({"holding": (3, 3, 5)}, "11 samples planned for round 5, but at least 0 and at most 10"),
        ({"holding": (0, 5, 5)}, "10 older samples for round 5, but at least 0 and at most 9"),
        ({"expiring": 2}, "2 samples expiring for round 5, but at least 3 and at most 3"),
        ({"expiring": 4}, "4 samples expiring for round 5, but at least 3 and at most 3"),
        ({"occupancy": 8}, "8 samples stored for round 5, but at least 0 and at most 7"),
        ({"uses": 5}, "5 uses for round 5, but at least 6 and at most 15"),
        ({"uses": 16}, "16 uses for round 5, but at least 6 and at most 15"),
        ({"read": 9}, "-1 samples read for round 5, but at least 0 and at most 1084"),
        ({"read": 1095}, "1085 samples read for round 5, but at least 0 and at most 1084"),
        ({"read": 2**63 - 1}, "samples read for round 5, but at least 0 and at most 1084"),
        ({"holding": (4, 3, 3)}, "samples by age .* and 3 bought: samples cannot be older than"),
        ({"holding": (1, 2, 7), "expiring": 7}, "samples cannot be older than that"),
        ({"holding": (2, 3, 0, 4), "expiring": 4}, "samples cannot be older than that"),
        ({"holding": (1, 3, 0, 0, 3), "expiring": 3}, "samples cannot be older than that"),
    ],
)
def test_what_is_just_outside_a_range_is_refused_by_name(
    changes: dict[str, Any], reason: str
) -> None:
    with pytest.raises(WireError, match=reason):
        ACCOUNT.after(Receipt(**{**HONEST, **changes}))


def test_no_range_has_its_ends_the_wrong_way_round() -> None:
    """Whatever the other fields are, a message says what would have been possible."""
    for changes in ({"refused": 10}, {"refused": 2**60}, {"admitted": 2**60}, {"bought": 2**60}):
        with pytest.raises(WireError) as refused:
            ACCOUNT.after(Receipt(**{**HONEST, **changes}))
        least, most = (
            float(str(refused.value).split(words)[1].split()[0])
            for words in ("at least ", "at most ")
        )
        assert least <= most


def test_more_may_be_read_by_who_chooses_among_candidates() -> None:
    chooses = replace(ACCOUNT, candidates=50)
    most = Receipt(**{**HONEST, "read": 10 + readable(50)})
    assert chooses.after(most).newest == most
    with pytest.raises(WireError, match="samples read for round 5"):
        chooses.after(replace(most, read=most.read + 1))


def test_nothing_expires_where_samples_stay_for_ever() -> None:
    stays = replace(ORDER, retention_horizon=0)
    receipt = Receipt(**{**HONEST, "expiring": 0})
    check(receipt, ACCOUNT, stays)
    with pytest.raises(WireError, match="1 samples expiring for round 5, but at least 0 and at mo"):
        check(replace(receipt, expiring=1), ACCOUNT, stays)


def test_what_expires_among_ages_that_are_not_told_apart_is_for_the_client_to_say() -> None:
    oldest = (0,) * (MOST_AGES - 1) + (5,)
    before = replace(BEFORE, holding=oldest, expiring=0)
    account = replace(ACCOUNT, newest=before)
    order = replace(ORDER, retention_horizon=MOST_AGES + 9)
    receipt = Receipt(**{**HONEST, "holding": (3, *oldest[1:])})
    for expiring in (0, 5):
        check(replace(receipt, expiring=expiring), account, order)
    with pytest.raises(WireError, match="6 samples expiring for round 5, but at least 0 and at mo"):
        check(replace(receipt, expiring=6), account, order)


def test_money_is_compared_to_the_last_bit_and_sums_of_it_nearly() -> None:
    """Sums over purchases that are under way, or were refunded, may be added in another order."""
    before = replace(BEFORE, spent=0.1 + 0.2, refunded=0.0, under_way_spent=0.3)
    account = replace(ACCOUNT, newest=before)
    order = replace(ORDER, price=0.1)
    spent = before.spent + 0.1 * 3
    values = {**HONEST, "spent": spent, "under_way_spent": 0.0, "refunded": 0.3 + 0.1 * 3 + 1e-16}
    check(Receipt(**values), account, order)
    with pytest.raises(WireError, match="money spent in all"):
        check(Receipt(**{**values, "spent": math.nextafter(spent, 1)}), account, order)
    with pytest.raises(WireError, match="money refunded"):
        check(Receipt(**{**values, "refunded": 0.6 + 1e-9}), account, order)


def test_an_account_without_an_order_believes_nothing() -> None:
    with pytest.raises(WireError, match="there is no order of round 5"):
        replace(ACCOUNT, outstanding=None).after(Receipt(**HONEST))


def test_health_is_kept_and_not_judged() -> None:
    receipt = Receipt(**HONEST, health={"set_aside": 1e15, "battery": 0.07})
    assert ACCOUNT.after(receipt).newest.health == {"set_aside": 1e15, "battery": 0.07}


def test_what_a_lost_buffer_may_have_cost_and_read_is_counted() -> None:
    begun = replace(ACCOUNT, newest=replace(BEFORE, last_taken="ab")).with_new_buffer("next")
    assert (begun.buffer_capacity, begun.buffer_id, begun.outstanding) == (10, "next", None)
    assert begun.lost == Lost(
        buffers=1, admitted=5, spent=24.0, refunded=2.0, read=14, unsure=4, last_taken="ab"
    )
    assert (begun.paid, begun.admitted, begun.is_empty) == (22.0, 5, True)
    assert begun.missing == ()  # the first loss is forgiven
    again = begun.with_new_buffer("another")  # which held nothing
    assert replace(again.lost, unsure=4) == begun.lost


def test_slots_of_a_second_lost_buffer_are_not_filled_for_less_than_those_that_were_not() -> None:
    rule = replace(ORDER, count=NO_LIMIT, thresholds=(9.0, 1.0, 1.0, 4.0), retention_horizon=0)
    once = replace(ACCOUNT, outstanding=None).with_new_buffer("second")
    assert once.within_losses(rule) == rule
    assert once.most_bought(rule) == 10
    full = Receipt(
        run="r",
        round_number=5,
        bought=10,
        admitted=10,
        spent=20.0,
        holding=(10,),
        occupancy=10,
        uses=10,
        read=10,
    )
    filled = replace(once, outstanding=rule).after(full)
    twice = filled.with_new_buffer("third")
    assert twice.missing == (10,)
    assert twice.within_losses(rule).count == 0  # as in a buffer with ten samples of age 1
    cheap = replace(rule, price=1.0)
    assert twice.within_losses(cheap).count == 10
