"""Several servers under one budget: the division, the messages, and what faults can do to them."""

import json
import math
from typing import Any

import numpy as np
import pytest
from check_size import at_size
from hypothesis import given, settings
from hypothesis import strategies as st

import shards as bench
from tidegate.errors import WireError
from tidegate.server.shards import Coordinator, Grant, Purse, Report

BUDGET = 30.0


def coordinator(*slots: int, **options: Any) -> Coordinator:
    return Coordinator("r", BUDGET, {f"s{n}": count for n, count in enumerate(slots)}, **options)


def report(shard: str, now: int, spends: float = 10.0, shadow_price: float = 4.0) -> Report:
    return Report(run="r", shard=shard, round_number=now, spends=spends, shadow_price=shadow_price)


def reports(shards: int, now: int) -> list[Report]:
    return [report(f"s{number}", now) for number in range(shards)]


def budgets(grants: list[Grant]) -> list[float]:
    """Of the round that begins."""
    return [grant.budgets[0] for grant in grants]


def test_slots_divide_the_budget_until_shards_have_reported() -> None:
    assert budgets(coordinator(1, 2, 3).divide(1)) == pytest.approx([5.0, 10.0, 15.0])


def test_money_goes_where_it_is_worth_more() -> None:
    one = coordinator(100, 100)
    for now in range(1, 60):
        news = [report("s0", now, 15.0, 16.0), report("s1", now, 15.0, 4.0)]
        grants = one.divide(now, news)
    assert budgets(grants) == pytest.approx([20.0, 10.0], rel=1e-3)  # as the roots of 16 and 4


@pytest.mark.parametrize("power", [0.5, 1.0, 2.0, 3.5])
def test_shares_settle_where_money_is_worth_the_same(power: float) -> None:
    """Worth k_i·s^-p of money s, whatever the power: the marginal worth becomes equal."""
    one, worth, spends = coordinator(1, 1, 1), (1.0, 3.0, 9.0), [10.0, 10.0, 10.0]
    for now in range(1, 400):
        prices = [k * s**-power for k, s in zip(worth, spends, strict=True)]
        news = [report(f"s{n}", now, spends[n], prices[n]) for n in range(3)]
        spends = budgets(one.divide(now, news))
    assert max(prices) / min(prices) < 1.01


def test_a_shard_that_has_all_it_can_use_keeps_it() -> None:
    """It reports what it spends, and the worth of the last of it: its share does not swing."""
    one, shares = coordinator(1, 1), []
    budget = 15.0
    for now in range(1, 200):
        full = budget >= 3.0  # it can use no more than 3
        price = 0.2 if full else 0.2 * (3.0 / budget) ** 2
        news = [report("s0", now, min(budget, 3.0), price), report("s1", now, 15.0, 40.0)]
        budget = one.divide(now, news)[0].budgets[0]
        shares.append(budget)
    assert np.ptp(shares[-50:]) < 0.01 * BUDGET


def test_no_shard_gets_more_than_ten_times_what_its_slots_would() -> None:
    one = coordinator(*[1] * 99, 1)
    for now in range(1, 60):
        lie = report("s0", now, 1e15, 1e15)
        grants = one.divide(now, [lie, *reports(100, now)[1:]])
    assert budgets(grants)[0] == pytest.approx(BUDGET * 0.1, rel=0.02)
    assert min(budgets(grants)) == pytest.approx(BUDGET * 0.9 / 99, rel=0.02)


def test_who_is_not_heard_of_is_promised_nothing_more_and_gets_its_share_when_it_is_back() -> None:
    one = coordinator(1, 1, patience=5, lead=20)
    for now in range(1, 60):
        there = reports(1 if 20 <= now < 50 else 2, now)
        s0, s1 = one.divide(now, there)
        assert math.fsum((s0.until(now), s1.until(now))) == pytest.approx(BUDGET * now)
        if 20 + 5 + 20 < now < 50:
            assert budgets([s0, s1]) == pytest.approx([BUDGET, 0.0])
        if now >= 50:
            assert budgets([s0, s1]) == pytest.approx([BUDGET / 2, BUDGET / 2])
            assert min(s1.budgets[1:]) == pytest.approx(0.45 * BUDGET)  # and it is promised again


def test_a_coordinator_that_hears_nobody_keeps_the_money_of_all() -> None:
    one = coordinator(1, 2, patience=2)
    one.divide(1)
    assert [grant.until(40) for grant in one.divide(40)] == pytest.approx([400.0, 800.0])


def test_nobody_is_away_for_rounds_that_nobody_divided() -> None:
    """One report is first when the coordinator is back: the others get their part all the same."""
    one = coordinator(*[1] * 20)
    for now in range(1, 6):
        one.divide(now, reports(20, now))
    first = [grant.until(40) for grant in one.divide(40, reports(1, 40))]
    assert first == pytest.approx([2 * BUDGET] * 20, rel=0.01)
    then = [grant.until(41) for grant in one.divide(41, reports(20, 41))]
    assert then == pytest.approx([41 / 20 * BUDGET] * 20, rel=0.01)


def test_a_shard_that_hears_nothing_goes_on_until_its_promises_end() -> None:
    one, purse, counted = coordinator(1, 1, lead=10), Purse("r", "s0"), 0.0
    for now in range(1, 31):
        purse.take(one.divide(now, reports(2, now))[0])
        counted += purse.budget(now, counted)
    later = []
    for now in range(31, 45):
        later.append(purse.budget(now, counted))
        counted += later[-1]
    assert later == pytest.approx([0.9 * BUDGET / 2] * 10 + [0.0] * 4)
    assert [purse.rate(now) for now in (30, 31, 40, 41)] == pytest.approx([15.0, 13.5, 13.5, 0.0])
    purse.take(one.divide(45)[0])
    assert purse.budget(45, counted) == pytest.approx(BUDGET / 2 * 45 - counted)
    assert purse.rate(45) == pytest.approx(BUDGET / 2)


def test_a_purse_that_is_lost_and_found_gives_nothing_twice() -> None:
    one = coordinator(1, 1)
    grant = one.divide(10)[0]
    for _ in range(2):
        purse = Purse("r", "s0")
        purse.take(grant)
        assert purse.budget(10, counted=140.0) == pytest.approx(10.0)
        assert purse.budget(10, counted=150.0) == pytest.approx(0.0, abs=1e-6)


def test_old_and_doubled_messages_add_nothing() -> None:
    one, purse = coordinator(1, 1), Purse("r", "s0")
    first, second = one.divide(1)[0], one.divide(5)[0]
    for grant in (second, first, second):
        purse.take(grant)
    assert purse.budget(5, 0.0) == pytest.approx(BUDGET / 2 * 5)
    one.divide(6, [report("s0", 4, shadow_price=1.0)])
    kept = one.to_record()
    one.divide(6, [report("s0", 4, shadow_price=9.0), report("s0", 3, shadow_price=9.0)])
    news = one.to_record()
    assert {**kept, "shards": 0} == {**news, "shards": 0}
    assert news["shards"]["s0"]["shadow_price"] == 1.0
    news["left"].append(7)  # a record is a copy
    assert one.to_record()["left"] == kept["left"]


def test_a_report_from_the_future_is_not_believed(caplog: pytest.LogCaptureFixture) -> None:
    one = coordinator(1, 1)
    with caplog.at_level("WARNING", logger="tidegate"):
        one.divide(1, [report("s0", 2**62), report("s9", 1)])
    assert (
        "ignored a report of s0 for round 4611686018427387904, because round 1 has just begun"
        in caplog.text
    )
    assert "ignored a report of shard 's9' of run 'r'" in caplog.text
    assert one.to_record()["shards"]["s0"]["reported"] == 0


def test_a_grant_survives_the_journey_and_nonsense_does_not() -> None:
    grant = coordinator(1, 1).divide(7)[0]
    assert Grant.from_record(json.loads(json.dumps(grant.to_record()))) == grant
    for wrong in ([math.nan], [-1.0], ["x"], [1], 7, [1.0] * 2000):
        with pytest.raises(WireError, match="budgets must be"):
            Grant.from_record({**grant.to_record(), "budgets": wrong})


@pytest.mark.parametrize(
    "change",
    [{"now": 0}, {"left": [-1]}, {"left": ["x"]}, {"budget": math.nan}, {"lead": 0}],
)
def test_a_record_that_cannot_be_is_refused(change: dict[str, Any]) -> None:
    one = coordinator(1, 1)
    one.divide(3)
    record = {**one.to_record(), **change}
    with pytest.raises((ValueError, TypeError)):
        Coordinator.from_record(record)


def test_messages_of_others_are_refused() -> None:
    one = coordinator(1, 1)
    with pytest.raises(WireError, match="a grant for 's1' of run 'r' was sent to 's0'"):
        Purse("r", "s0").take(one.divide(1)[1])
    with pytest.raises(WireError, match="shadow_price must be a float from 0"):
        report("s0", 1, shadow_price=-1.0)
    with pytest.raises(ValueError, match="round 1 is over; round 3 is under way"):
        (one.divide(3), one.divide(1))


@pytest.mark.parametrize(
    ("slots", "options"),
    [((), {}), ((0, 5), {}), ((5,), {"lead": 0}), ((5,), {"patience": 0})],
)
def test_impossible_coordinators_are_refused(slots: tuple[int, ...], options: Any) -> None:
    with pytest.raises(ValueError, match=r"at least one slot|need a positive budget"):
        coordinator(*slots, **options)


@given(
    wishes=st.lists(
        st.tuples(st.integers(1, 1000), st.floats(0, 1e6), st.floats(0, 1e9)),
        min_size=1,
        max_size=8,
    )
)
@settings(max_examples=at_size(40, 200), deadline=None)
def test_every_division_adds_up(wishes: list[tuple[int, float, float]]) -> None:
    one = coordinator(*(slots for slots, _, _ in wishes))
    one.divide(1)
    news = [report(f"s{n}", 1, spends, worth) for n, (_, spends, worth) in enumerate(wishes)]
    for now in (2, 3, 50, 51):
        grants = one.divide(now, news)
        assert all(budget >= 0 for grant in grants for budget in grant.budgets)
        total = math.fsum(grant.until(now) for grant in grants)
        assert total <= BUDGET * now
        assert total == pytest.approx(BUDGET * now, rel=1e-9)


@pytest.mark.long
@pytest.mark.no_cover
@pytest.mark.parametrize("trouble", bench.TROUBLES)
def test_shards_gain_what_one_server_gains(trouble: str) -> None:
    rounds = at_size(200, 400)
    outcome = bench.play(6, rounds, bench.TROUBLES[trouble], seed=1)
    alone = bench.central(6, rounds, bench.TROUBLES[trouble], seed=1)
    budget = bench.BUDGET * bench.CLIENTS * bench.CAPACITY * 6
    assert outcome.certificate_margin >= -1e-6 * budget
    assert outcome.granted_margin >= 0
    assert outcome.spent <= budget * 1.001
    assert outcome.gained[-1] >= 0.98 * alone[-1]
