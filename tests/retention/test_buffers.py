import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidegate.gate import Gate
from tidegate.retention.k_step import KStepRetention
from tidegate.retention.oldest_first import OldestFirst
from tidegate.retention.partly_frozen import PartlyFrozenRetention
from tidegate.retention.store import MemoryStore
from tidegate.streams import IndexedStream
from tidegate.wire import NO_LIMIT, Order

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


@settings(max_examples=200, deadline=None)
@given(
    rounds=st.lists(
        st.tuples(
            st.lists(st.integers(1, 9), min_size=3, max_size=3),  # prices
            st.integers(0, 9),  # for an empty slot
            st.lists(st.integers(0, 9), min_size=1, max_size=4).map(sorted),
            st.none() | st.integers(0, 7),  # a limit
        ),
        min_size=1,
        max_size=20,
    )
)
def test_a_rule_does_to_counts_what_it_does_at_the_gate(
    rounds: list[tuple[list[int], int, list[int], int | None]],
) -> None:
    capacities = np.array([4, 5, 6])
    buffers = OldestFirst().buffers(capacities)
    gates = [
        Gate(MemoryStore("r", f"client-{number}", int(capacity)), IndexedStream(range(1000)))
        for number, capacity in enumerate(capacities)
    ]
    for now, (prices, empty, ages, limit) in enumerate(rounds, start=1):
        thresholds = tuple(float(one) for one in (empty, *ages))
        wanted = buffers.wanted(thresholds, np.array(prices, dtype=np.float64))
        most = NO_LIMIT if limit is None else limit
        buffers = buffers.step(np.minimum(wanted, most).astype(np.int32))
        receipts = [
            gate.apply(
                Order(
                    run="r",
                    round_number=now,
                    price=float(price),
                    retention="oldest_first",
                    count=most,
                    thresholds=thresholds,
                )
            )
            for gate, price in zip(gates, prices, strict=True)
        ]
        assert buffers.fresh.tolist() == [one.admitted for one in receipts]
        assert buffers.occupancy.tolist() == [one.occupancy for one in receipts]
        assert buffers.prior_uses == sum(one.prior_uses for one in receipts)
        assert not buffers.expiring.any()
        assert buffers.room(capacities).tolist() == capacities.tolist()
        assert all(first < second for first, second in itertools.pairwise(buffers.ages))
