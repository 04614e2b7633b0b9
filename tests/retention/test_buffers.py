import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidegate.retention.k_step import KStepRetention
from tidegate.retention.partly_frozen import PartlyFrozenRetention

rounds_of_admissions = st.lists(
    st.lists(st.integers(0, 9), min_size=3, max_size=3), min_size=1, max_size=25
)


def played_by_hand(
    uses: list[list[int]], rounds: list[list[int]], horizon: int, frozen: int
) -> None:
    """Each client's samples as a list of use counts, changed in place over the rounds."""
    for admissions in rounds:
        for client, admitted in enumerate(admissions):
            if client < len(uses) - frozen:
                uses[client] = [use for use in uses[client] if use < horizon] + [0] * admitted
            uses[client] = [use + 1 for use in uses[client]]


@settings(max_examples=300, deadline=None)
@given(rounds=rounds_of_admissions, horizon=st.integers(1, 6), frozen=st.integers(0, 2))
def test_counts_equal_samples_moved_by_hand(
    rounds: list[list[int]], horizon: int, frozen: int
) -> None:
    capacities = np.array([4, 5, 6])
    retention = PartlyFrozenRetention(KStepRetention(horizon), frozen)
    buffers = retention.buffers(capacities)
    uses = [[] if client < 3 - frozen else [0] * int(capacities[client]) for client in range(3)]
    for admissions in rounds:
        given_out = [n if client < 3 - frozen else 0 for client, n in enumerate(admissions)]
        played_by_hand(uses, [given_out], horizon, frozen)
        buffers = buffers.step(np.array(given_out, dtype=np.int32))
        assert buffers.occupancy.tolist() == [len(client) for client in uses]
        assert buffers.fresh.tolist() == [client.count(1) for client in uses]
        last = [0 if client >= 3 - frozen else uses[client].count(horizon) for client in range(3)]
        assert buffers.expiring.tolist() == last
        held = [len(client) for client in uses]
        free = [max(int(capacities[m]) - held[m] + last[m], 0) for m in range(3 - frozen)]
        free += [0] * frozen
        assert buffers.room(capacities).tolist() == free
        assert buffers.prior_uses == sum(use - 1 for client in uses for use in client)


def test_buffers_of_an_earlier_round_stay_as_they_were() -> None:
    first = KStepRetention(2).buffers(np.array([5])).step(np.array([3], dtype=np.int32))
    first.step(np.array([4], dtype=np.int32)).step(np.array([1], dtype=np.int32))
    assert first.occupancy.tolist() == [3]
    assert first.fresh.tolist() == [3]


def test_empty_buffers_hold_nothing() -> None:
    empty = KStepRetention(3).buffers(np.array([5, 5]))
    assert empty.fresh.tolist() == empty.expiring.tolist() == empty.occupancy.tolist() == [0, 0]


def test_a_horizon_below_one_is_refused() -> None:
    with pytest.raises(ValueError, match="at least 1, got 0"):
        KStepRetention(0)
