import math

import numpy as np
import pytest
from check_size import at_size
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tidegate._internal.arrays import FloatArray
from tidegate._internal.randomness import generator
from tidegate.admission.allocation import Allocation


def shares_of(weights: list[int]) -> FloatArray:
    return np.array(weights) / sum(weights)


weights = st.lists(st.integers(0, 50), min_size=1, max_size=30).filter(any)
# Small totals are the hard ones: little to hand out, and many who are almost due.
totals = st.lists(
    st.one_of(st.floats(0, 400), st.floats(0, 3), st.integers(0, 60).map(float)),
    min_size=1,
    max_size=60,
)
ROUNDING = 1e-9


@settings(max_examples=at_size(100, 500), deadline=None)
@given(weights=weights, totals=totals)
def test_everyone_stays_within_one_sample_of_the_real_target(
    weights: list[int], totals: list[float]
) -> None:
    shares = shares_of(weights)
    allocation = Allocation.start(shares)
    admitted = np.zeros(len(shares))
    for number, total in enumerate(totals, start=1):
        samples, allocation = allocation.allocate(total)
        admitted += samples
        assert samples.min() >= 0
        target = math.fsum(totals[:number])
        assert np.abs(admitted - shares * target).max() <= 1 + ROUNDING
        assert abs(admitted.sum() - target) <= 1 + ROUNDING


def test_a_trickle_among_unequal_clients_needs_the_deadlines() -> None:
    """Handing out to whoever comes first on the list breaks the total here; deadlines do not."""
    draw = np.random.default_rng(1)
    for _ in range(20):
        shares = shares_of(draw.integers(1, 200, 60).tolist())
        allocation = Allocation.start(shares)
        for total in draw.uniform(0, 5, 400):
            _, allocation = allocation.allocate(float(total))
            assert np.abs(allocation.ordered - shares * allocation.owed).max() <= 1 + ROUNDING
            assert abs(int(allocation.ordered.sum()) - allocation.owed) <= 1 + ROUNDING


@settings(max_examples=at_size(60, 300), deadline=None)
@given(weights=weights, totals=totals, data=st.data())
def test_room_is_never_exceeded(
    weights: list[int], totals: list[float], data: st.DataObject
) -> None:
    allocation = Allocation.start(shares_of(weights))
    rooms = st.lists(st.integers(0, 20), min_size=len(weights), max_size=len(weights))
    for total in totals:
        room = np.array(data.draw(rooms))
        before = allocation
        samples, allocation = allocation.allocate(total, room)
        assert np.all((samples >= 0) & (samples <= room))
        # What is owed is handed out as far as anybody with a share has room for it.
        free = int(room[np.array(weights) > 0].sum())
        owed = math.floor(before.owed + total + ROUNDING) - int(before.ordered.sum())
        assert int(samples.sum()) == min(owed, free)
        # What did not fit is given up: what is owed runs at most one sample ahead.
        assert allocation.owed - allocation.ordered.sum() < 1


def test_what_one_client_cannot_store_goes_to_the_others() -> None:
    allocation = Allocation.start(shares_of([1, 1, 2]))
    samples, allocation = allocation.allocate(8.0, np.array([10, 0, 10]))
    assert samples.tolist() == [3, 0, 5]
    samples, allocation = allocation.allocate(8.0, np.array([10, 10, 10]))
    assert allocation.ordered.tolist() == [4, 4, 8]  # and it catches up when it has room
    samples, allocation = allocation.allocate(8.0, np.array([1, 1, 1]))
    assert samples.tolist() == [1, 1, 1]  # what fits nowhere is given up
    assert allocation.owed == 19.0


def test_a_few_present_clients_share_what_the_absent_cannot_take() -> None:
    """Ten of a thousand have room in each round: they get all ten samples, round after round."""
    allocation = Allocation.start(np.full(1000, 1e-3))
    draw = np.random.default_rng(0)
    for _ in range(50):
        room = np.zeros(1000, dtype=np.int64)
        room[draw.choice(1000, 10, replace=False)] = 10
        samples, allocation = allocation.allocate(10.0, room)
        assert samples.sum() == 10


def test_a_count_that_would_not_fit_four_bytes_is_refused() -> None:
    with pytest.raises(ValueError, match="the limit is 2147483647; a hard capacity"):
        Allocation.start(np.array([1.0])).allocate(3e9)


def test_clients_without_a_share_get_nothing() -> None:
    allocation = Allocation.start(np.array([0.5, 0.0, 0.5]))
    for _ in range(20):
        samples, allocation = allocation.allocate(1.7)
        assert samples[1] == 0


@pytest.mark.parametrize("shares", [[0.5, 0.4], [1.5, -0.5]])
def test_shares_must_be_a_split(shares: list[float]) -> None:
    with pytest.raises(ValueError, match="sum to 1"):
        Allocation.start(np.array(shares))


@pytest.mark.parametrize("total", [-1.0, math.inf, math.nan])
def test_impossible_totals_are_refused(total: float) -> None:
    with pytest.raises(ValueError, match="0 or more"):
        Allocation.start(np.array([1.0])).allocate(total)


@pytest.mark.parametrize("clients", [1_000_000, pytest.param(10_000_000, marks=pytest.mark.full)])
def test_millions_of_clients_in_one_call_stay_within_one_sample(clients: int) -> None:
    draw = np.random.default_rng(5)
    shares = draw.integers(1, 30, clients).astype(float)
    shares /= shares.sum()
    allocation = Allocation.start(shares)
    for total in (123_456.7, 2e6, 1e3 + 1 / 3):
        _, allocation = allocation.allocate(total)
        assert np.abs(allocation.ordered - shares * allocation.owed).max() <= 1 + ROUNDING
        assert abs(int(allocation.ordered.sum()) - allocation.owed) <= 1 + ROUNDING


def test_who_was_owed_most_before_the_fleet_changed_comes_first() -> None:
    thirds = np.full(3, 1 / 3)
    allocation = Allocation.start(thirds, np.array([0.0, 0.3, 0.6]))
    samples, allocation = allocation.allocate(0.4)  # with what is carried over, 1.3
    assert samples.tolist() == [0, 0, 1]
    samples, _ = allocation.allocate(0.9)
    assert samples.tolist() == [0, 1, 0]


@given(
    fleets=st.lists(st.sets(st.integers(0, 7), min_size=1), min_size=2, max_size=12),
    total=st.floats(0, 6),
)
@example(fleets=[{0}, {0}], total=2 - 2**-50)  # rounding is carried over, and no whole sample
def test_a_changing_fleet_is_given_what_is_ordered(fleets: list[set[int]], total: float) -> None:
    owed: dict[int, float] = {}
    given_out = 0
    for number, members in enumerate(fleets, start=1):
        fleet = sorted(members)
        shares = np.full(len(fleet), 1 / len(fleet))
        carried = np.array([owed.get(one, 0.0) for one in fleet])
        allocation = Allocation.start(shares, carried)
        samples, allocation = allocation.allocate(total)
        given_out += int(samples.sum())
        assert int(samples.sum()) in (math.floor(total), math.floor(total) + 1)
        assert np.all(np.abs(samples - total / len(fleet)) < 3)
        owed = dict(zip(fleet, allocation.unserved.tolist(), strict=True))
        assert abs(given_out - number * total) <= number


@pytest.mark.parametrize("rounds", [10, 1000])
@pytest.mark.parametrize("clients", [3, 7, 10, 1000])
def test_a_changing_fleet_is_owed_nothing_after_whole_totals(clients: int, rounds: int) -> None:
    """Also where counts are so large that clients' parts are rounded visibly: 10⁹ samples."""
    shares = generator(clients).uniform(1, 10, clients)
    shares /= shares.sum()
    allocation = Allocation.start(shares)
    for _ in range(rounds):
        _, allocation = allocation.allocate(10**9 // rounds)
    after = Allocation.start(shares, allocation.unserved)
    given_out = 0
    for number in range(1, 9):
        samples, after = after.allocate(10.25)
        given_out += int(samples.sum())
        assert given_out == math.floor(number * 10.25)


def test_part_of_a_sample_is_carried_over_however_often_the_fleet_changes() -> None:
    """Just below a whole number it is still less than one sample, and must not be lost."""
    ordered, owed = 0, np.zeros(2)
    for _ in range(100):
        samples, allocation = Allocation.start(np.full(2, 0.5), owed).allocate(2 - 1e-8)
        ordered, owed = ordered + int(samples.sum()), allocation.unserved
    assert ordered == 199


@settings(max_examples=at_size(40, 200), deadline=None)
@given(
    weights=st.lists(st.integers(1, 20), min_size=1, max_size=8),
    rounds=st.lists(
        st.tuples(st.floats(0, 40), st.none() | st.integers(0, 30)), min_size=1, max_size=20
    ),
)
def test_no_more_is_handed_out_than_money_pays_for(
    weights: list[int], rounds: list[tuple[float, int | None]]
) -> None:
    shares = np.array(weights) / sum(weights)
    allocation = Allocation.start(shares)
    for total, most in rounds:
        before = allocation
        samples, allocation = allocation.allocate(total, most=most)
        assert samples.min() >= 0
        if most is not None:
            assert samples.sum() <= most
        if most is None or most > total + 1:  # it did not bind: as without it
            assert samples.tolist() == before.allocate(total)[0].tolist()
        assert np.abs(allocation.ordered - shares * allocation.owed).max() <= 1 + 1e-9
