import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidegate.admission.allocation import Allocation
from tidegate.arrays import FloatArray


def shares_of(weights: list[int]) -> FloatArray:
    return np.array(weights) / sum(weights)


weights = st.lists(st.integers(0, 50), min_size=1, max_size=30).filter(any)
totals = st.lists(
    st.one_of(st.floats(0, 400), st.integers(0, 60).map(float)), min_size=1, max_size=60
)


@settings(max_examples=500, deadline=None)
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
        assert np.abs(admitted - shares * target).max() <= 1
        assert abs(admitted.sum() - target) <= 1


@settings(max_examples=300, deadline=None)
@given(weights=weights, totals=totals, data=st.data())
def test_room_is_never_exceeded(
    weights: list[int], totals: list[float], data: st.DataObject
) -> None:
    allocation = Allocation.start(shares_of(weights))
    rooms = st.lists(st.integers(0, 20), min_size=len(weights), max_size=len(weights))
    for total in totals:
        room = np.array(data.draw(rooms), dtype=np.int32)
        samples, allocation = allocation.allocate(total, room)
        assert np.all((samples >= 0) & (samples <= room))
        # What did not fit is given up: what is owed runs at most one sample ahead.
        assert allocation.owed - allocation.ordered.sum() < 1


def test_what_fits_is_placed_whole() -> None:
    allocation = Allocation.start(shares_of([1, 1, 2]))
    samples, allocation = allocation.allocate(8.0, np.array([10, 0, 10], dtype=np.int32))
    assert samples.tolist() == [2, 0, 4]  # client 2's share is given up, not passed on
    samples, allocation = allocation.allocate(6.0, np.array([10, 10, 10], dtype=np.int32))
    assert samples.sum() == 6  # and client 2 catches up within the next totals
    assert samples[1] == 3


def test_clients_without_a_share_get_nothing() -> None:
    allocation = Allocation.start(np.array([0.5, 0.0, 0.5]))
    for _ in range(20):
        samples, allocation = allocation.allocate(1.7)
        assert samples[1] == 0


def test_the_same_totals_give_the_same_samples() -> None:
    def everything() -> list[list[int]]:
        allocation, rows = Allocation.start(shares_of([3, 3, 3, 1])), []
        for total in np.linspace(0, 9, 40):
            samples, allocation = allocation.allocate(float(total))
            rows.append(samples.tolist())
        return rows

    assert everything() == everything()


@pytest.mark.parametrize("shares", [[0.5, 0.4], [1.5, -0.5]])
def test_shares_must_be_a_split(shares: list[float]) -> None:
    with pytest.raises(ValueError, match="sum to 1"):
        Allocation.start(np.array(shares))


@pytest.mark.parametrize("total", [-1.0, math.inf, math.nan])
def test_impossible_totals_are_refused(total: float) -> None:
    with pytest.raises(ValueError, match="0 or more"):
        Allocation.start(np.array([1.0])).allocate(total)


def test_a_million_clients_in_one_call_stay_within_one_sample() -> None:
    draw = np.random.default_rng(5)
    shares = draw.integers(1, 30, 1_000_000).astype(float)
    shares /= shares.sum()
    allocation = Allocation.start(shares)
    for total in (123_456.7, 2e6, 1e3 + 1 / 3):
        _, allocation = allocation.allocate(total)
        assert np.abs(allocation.ordered - shares * allocation.owed).max() <= 1
        assert abs(int(allocation.ordered.sum()) - allocation.owed) <= 1
