"""Several servers under one budget: the division, the messages, and what faults can do to them."""

import json
import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import shards as bench
from tidegate.shards import Coordinator, Grant, Purse, Report
from tidegate.wire import WireError

BUDGET = 30.0


def coordinator(*slots: int, **options: Any) -> Coordinator:
    return Coordinator("r", BUDGET, {f"s{n}": count for n, count in enumerate(slots)}, **options)


def report(shard: str, now: int, allowance: float = 10.0, shadow_price: float = 4.0) -> Report:
    return Report(
        run="r",
        shard=shard,
        round_number=now,
        spent=0.0,
        allowance=allowance,
        shadow_price=shadow_price,
    )


def budgets(grants: list[Grant]) -> list[float]:
    """Of the round that begins."""
    return [grant.budgets[0] for grant in grants]


def test_slots_divide_the_budget_until_shards_have_reported() -> None:
    assert budgets(coordinator(1, 2, 3).divide(1)) == pytest.approx([5.0, 10.0, 15.0])


def test_money_goes_where_it_is_worth_more() -> None:
    one = coordinator(100, 100)
    one.divide(1)
    for now in range(2, 40):
        one.hear(report("s0", now, allowance=15.0, shadow_price=16.0))
        one.hear(report("s1", now, allowance=15.0, shadow_price=4.0))
        grants = one.divide(now)
    assert budgets(grants) == pytest.approx([20.0, 10.0])  # as the roots of 16 and 4


def test_prices_that_never_change_are_divided_rightly_at_once() -> None:
    """There μ is about c/s² of money s a slot, so that equal μ means money as the root of c."""
    one, prices = coordinator(100, 100), (1.0, 9.0)
    one.divide(1)
    for now in (2, 3):
        for shard, price in zip(("s0", "s1"), prices, strict=True):
            one.hear(report(shard, now, 15.0, price / 15.0**2))
    assert budgets(one.divide(4)) == pytest.approx([7.5, 22.5])


def test_a_shard_for_which_money_is_worth_nothing_keeps_a_little() -> None:
    one = coordinator(100, 100)
    one.divide(1)
    one.hear(report("s0", 1, shadow_price=0.0))
    one.hear(report("s1", 1))
    assert budgets(one.divide(20))[0] == pytest.approx(0.005 / 1.005 * BUDGET)
    for shard in ("s0", "s1"):
        one.hear(report(shard, 2, shadow_price=0.0))
    assert budgets(one.divide(21))[0] == pytest.approx(BUDGET / 2, rel=0.1)  # by slots again


def test_who_is_not_heard_of_is_promised_nothing_more_and_gets_its_share_when_it_is_back() -> None:
    one = coordinator(1, 1, patience=5, lead=20)
    one.divide(1)
    for now in range(1, 60):
        one.hear(report("s0", now))
        if not 20 <= now < 50:
            one.hear(report("s1", now))
        s0, s1 = one.divide(now + 1)
        assert math.fsum((s0.until(now + 1), s1.until(now + 1))) == pytest.approx(
            BUDGET * (now + 1)
        )
        if 20 + 5 + 20 < now < 50:
            assert budgets([s0, s1]) == pytest.approx([BUDGET, 0.0])
    assert budgets([s0, s1]) == pytest.approx([BUDGET / 2, BUDGET / 2])


def test_a_coordinator_that_hears_nobody_keeps_the_money_of_all() -> None:
    one = coordinator(1, 2, patience=2)
    one.divide(1)
    assert [grant.until(40) for grant in one.divide(40)] == pytest.approx([400.0, 800.0])


def test_rounds_that_nobody_divided_are_made_good() -> None:
    often, seldom = coordinator(1, 1), coordinator(1, 1)
    for now in range(1, 31):
        last = often.divide(now)
    seldom.divide(1)
    once = seldom.divide(30)
    assert [grant.until(30) for grant in once] == pytest.approx([one.until(30) for one in last])


def test_a_shard_that_hears_nothing_goes_on_until_its_promises_end() -> None:
    one, purse = coordinator(1, 1, lead=10), Purse("r", "s0")
    for now in range(1, 31):
        one.hear(report("s0", now))
        one.hear(report("s1", now))
        purse.take(one.divide(now)[0])
        purse.budget(now)
    later = [purse.budget(now) for now in range(31, 45)]
    assert later == pytest.approx([0.9 * BUDGET / 2] * 10 + [0.0] * 4)
    purse.take(one.divide(45)[0])
    made_good = BUDGET / 2 * 15 - math.fsum(later)
    assert purse.budget(45) == pytest.approx(made_good)


def test_old_and_doubled_messages_add_nothing() -> None:
    one, purse = coordinator(1, 1), Purse("r", "s0")
    first, second = one.divide(1)[0], one.divide(5)[0]
    for grant in (second, first, second):
        purse.take(grant)
    assert purse.budget(5) == pytest.approx(BUDGET / 2 * 5)
    assert purse.budget(5) == 0.0
    one.hear(report("s0", 4, shadow_price=1.0))
    kept = one.to_record()
    one.hear(report("s0", 4, shadow_price=9.0))
    one.hear(report("s0", 3, shadow_price=9.0))
    assert one.to_record() == kept


def test_messages_of_others_are_refused() -> None:
    one = coordinator(1, 1)
    with pytest.raises(WireError, match="no shard 's9' of run 'r' is known here"):
        one.hear(report("s9", 1))
    with pytest.raises(WireError, match="a grant for 's1' of run 'r' came to 's0'"):
        Purse("r", "s0").take(one.divide(1)[1])
    with pytest.raises(WireError, match="shadow_price must be a float from 0"):
        report("s0", 1, shadow_price=-1.0)
    with pytest.raises(ValueError, match="round 1 is over, 3 is under way"):
        (one.divide(3), one.divide(1))


@pytest.mark.parametrize(
    ("slots", "options"),
    [((), {}), ((0, 5), {}), ((5,), {"lead": 0}), ((5,), {"patience": 0})],
)
def test_impossible_coordinators_are_refused(slots: tuple[int, ...], options: Any) -> None:
    with pytest.raises(ValueError, match=r"at least one slot|positive budget, lead and patience"):
        coordinator(*slots, **options)


class Play:
    """A coordinator and shards that spend what they may, under a schedule of faults by number."""

    def __init__(self, seed: int, *, saves: bool = True) -> None:
        self.draw = np.random.default_rng(seed)
        shards = int(self.draw.integers(1, 6))
        slots = {f"s{n}": int(self.draw.integers(1, 50)) for n in range(shards)}
        lead, patience = (int(self.draw.integers(1, 15)) for _ in range(2))
        self.coordinator = Coordinator("r", BUDGET, slots, lead=lead, patience=patience)
        self.saved = json.dumps(self.coordinator.to_record())
        self.saves = saves
        self.purses = {name: Purse("r", name) for name in slots}
        self.rounds = dict.fromkeys(slots, 0)
        self.allowed = dict.fromkeys(slots, 0.0)
        self.letters: list[Report | Grant] = []

    def round(self, now: int) -> None:
        """One round of the coordinator; everything else happens or does not."""
        if self.chance(0.9):
            grants = self.coordinator.divide(now)
            if self.saves:
                self.saved = json.dumps(self.coordinator.to_record())
            self.letters += grants
        if self.chance(0.1):
            self.coordinator = Coordinator.from_record(json.loads(self.saved))
        self.draw.shuffle(self.letters)
        waiting, self.letters = self.letters, []
        for letter in waiting:
            if self.chance(0.3):
                continue  # lost
            if self.chance(0.3):
                self.letters.append(letter)  # late, or twice
            if self.chance(0.7):
                self.deliver(letter)
        for name in self.purses:
            if self.chance(0.8):
                self.play(name, now)

    def deliver(self, letter: Report | Grant) -> None:
        if isinstance(letter, Grant):
            self.purses[letter.shard].take(letter)
        else:
            self.coordinator.hear(letter)

    def play(self, name: str, now: int) -> None:
        self.rounds[name] = now
        budget = self.purses[name].budget(now)
        assert budget >= 0
        self.allowed[name] += budget
        self.letters.append(
            report(name, now, float(self.draw.uniform(0, 20)), float(self.draw.uniform(0, 9)))
        )

    def chance(self, probability: float) -> bool:
        return bool(self.draw.random() < probability)

    def check(self, now: int) -> None:
        """All that was ever allowed is at most what there was."""
        assert math.fsum(self.allowed.values()) <= BUDGET * now


def play_schedule(seed: int, *, saves: bool = True, rounds: int = 60) -> Play:
    world = Play(seed, saves=saves)
    for now in range(1, rounds + 1):
        world.round(now)
        world.check(now)
    return world


@pytest.mark.no_cover
@pytest.mark.parametrize("first", range(0, 1000, 100))
def test_shards_are_never_allowed_more_than_there_is(first: int) -> None:
    for seed in range(first, first + 100):
        try:
            play_schedule(seed)
        except AssertionError as wrong:
            raise AssertionError(f"schedule {seed}: {wrong}") from wrong


@pytest.mark.no_cover
def test_a_coordinator_that_forgets_what_it_granted_is_noticed() -> None:
    noticed = 0
    for seed in range(40):
        try:
            play_schedule(seed, saves=False)
        except AssertionError:
            noticed += 1
    assert noticed > 10


@pytest.mark.no_cover
def test_money_is_not_lost_by_faults() -> None:
    """Once messages come through again, all is allowed that there was."""
    for seed in range(50):
        world = play_schedule(seed)
        for now in range(61, 80):
            for grant in world.coordinator.divide(now):
                world.purses[grant.shard].take(grant)
            for name in world.purses:
                world.play(name, now)
                world.coordinator.hear(report(name, now))
            world.check(now)
        assert math.fsum(world.allowed.values()) == pytest.approx(BUDGET * 79, rel=1e-9)


@given(
    wishes=st.lists(
        st.tuples(st.integers(1, 1000), st.floats(0, 1e6), st.floats(0, 1e9)),
        min_size=1,
        max_size=8,
    )
)
@settings(max_examples=200, deadline=None)
def test_every_division_adds_up(wishes: list[tuple[int, float, float]]) -> None:
    one = coordinator(*(slots for slots, _, _ in wishes))
    one.divide(1)
    for number, (_, allowance, shadow_price) in enumerate(wishes):
        one.hear(report(f"s{number}", 1, allowance, shadow_price))
    for now in (2, 3, 50, 51):
        grants = one.divide(now)
        assert all(budget >= 0 for grant in grants for budget in grant.budgets)
        total = math.fsum(grant.until(now) for grant in grants)
        assert total <= BUDGET * now
        assert total == pytest.approx(BUDGET * now, rel=1e-9)


@pytest.mark.no_cover
@pytest.mark.parametrize("trouble", bench.TROUBLES)
def test_shards_gain_what_one_server_gains(trouble: str) -> None:
    outcome = bench.play(6, 400, bench.TROUBLES[trouble], seed=1)
    alone = bench.central(6, 400, seed=1)
    budget = bench.BUDGET * bench.CLIENTS * bench.CAPACITY * 6
    assert outcome.certificate_margin >= -1e-6 * budget
    assert outcome.granted_margin >= 0
    assert outcome.spent <= budget * 1.001
    assert outcome.gained[-1] >= 0.98 * alone[-1]
