import numpy as np
import pytest
from check_size import at_size
from hypothesis import given, settings
from hypothesis import strategies as st

import tidegate.retention.oldest_first as module
from tidegate._internal.arrays import EVERYONE, IntArray, Members
from tidegate.client.gate import Gate
from tidegate.client.store import Store
from tidegate.client.streams import IndexedStream
from tidegate.retention.k_step import KStepRetention
from tidegate.retention.oldest_first import OldestFirst
from tidegate.retention.partly_frozen import PartlyFrozenRetention
from tidegate.wire import NO_LIMIT, Order

cohorts = st.lists(st.booleans(), min_size=3, max_size=3)
rounds_of_admissions = st.lists(
    st.tuples(st.lists(st.integers(0, 9), min_size=3, max_size=3), cohorts),
    min_size=1,
    max_size=25,
)


def members(takes_part: list[bool]) -> tuple[Members, list[int]]:
    """The clients of a round, as buffers are told them and as a list."""
    who: IntArray = np.flatnonzero(takes_part)
    return (EVERYONE if all(takes_part) else who), who.tolist()


@settings(max_examples=at_size(60, 300), deadline=None)
@given(rounds=rounds_of_admissions, horizon=st.integers(1, 6), frozen=st.integers(0, 2))
def test_counts_equal_samples_moved_by_hand(
    rounds: list[tuple[list[int], list[bool]]], horizon: int, frozen: int
) -> None:
    """Each client's samples as a list of use counts; who is away keeps them as they are."""
    capacities, active = [4, 5, 6], range(3 - frozen)
    retention = PartlyFrozenRetention(KStepRetention(horizon), frozen)
    buffers = retention.buffers(np.array(capacities), len(rounds))
    uses = [[] if client in active else [0] * capacities[client] for client in range(3)]
    for admissions, takes_part in rounds:
        who, clients = members(takes_part)
        room = []
        for client in clients:
            if client in active:
                uses[client] = [use for use in uses[client] if use < horizon]
            free = capacities[client] - len(uses[client]) if client in active else 0
            room.append(max(free, 0))
        assert buffers.room(who).tolist() == room
        new = [admissions[client] if client in active else 0 for client in clients]
        stored = buffers.step(who, np.array(new, dtype=np.int32))
        for client, fresh in zip(clients, new, strict=True):
            uses[client] = [use + 1 for use in [*uses[client], *[0] * fresh]]
        now = [uses[client] for client in clients]
        assert stored.occupancy.tolist() == [len(client) for client in now]
        assert stored.fresh.tolist() == [client.count(1) for client in now]
        last = [uses[client].count(horizon) if client in active else 0 for client in clients]
        assert stored.expiring.tolist() == last
        assert stored.prior_uses == sum(use - 1 for client in now for use in client)
        assert buffers.occupancy.tolist() == [len(client) for client in uses]


@pytest.mark.parametrize("retention", [KStepRetention(2), OldestFirst(), OldestFirst(4)])
def test_a_copy_goes_its_own_way(retention: KStepRetention | OldestFirst) -> None:
    first = retention.buffers(np.array([5]), 3)
    first.step(EVERYONE, np.array([3], dtype=np.int32))
    second = first.copy()
    second.step(EVERYONE, np.array([1], dtype=np.int32))
    assert first.occupancy.tolist() == [3]
    assert second.occupancy.tolist() == [4]
    assert first.step(EVERYONE, np.array([2], dtype=np.int32)).prior_uses == 3


def test_empty_buffers_hold_nothing() -> None:
    empty = KStepRetention(3).buffers(np.array([5, 5]), 10)
    assert empty.occupancy.tolist() == [0, 0]
    assert empty.room(EVERYONE).tolist() == [5, 5]


def test_a_horizon_beyond_the_run_costs_no_memory() -> None:
    buffers = KStepRetention(1_000_000).buffers(np.array([5, 5]), 3)
    assert buffers.ring.shape == (4, 2)
    for _ in range(3):
        assert not buffers.step(EVERYONE, np.array([1, 1], dtype=np.int32)).expiring.any()
    assert buffers.occupancy.tolist() == [3, 3]


def test_a_horizon_below_one_is_refused() -> None:
    with pytest.raises(ValueError, match="at least 1, got 0"):
        KStepRetention(0)


@pytest.mark.parametrize("at_once", [4_000_000, 8])
@settings(max_examples=at_size(40, 200), deadline=None)
@given(
    rounds=st.lists(
        st.tuples(
            st.lists(st.integers(1, 9), min_size=3, max_size=3),  # prices
            st.integers(0, 9),  # for an empty slot
            st.lists(st.integers(0, 9), min_size=0, max_size=4).map(sorted),
            st.none() | st.integers(0, 7),  # a limit
            cohorts,
        ),
        min_size=1,
        max_size=20,
    ),
    capacities=st.sampled_from([[4, 5, 6], [4, 4, 4], [1, 12, 3]]),
    cap=st.integers(0, 4),
)
def test_a_rule_does_to_counts_what_it_does_at_the_gate(
    rounds: list[tuple[list[int], int, list[int], int | None, list[bool]]],
    capacities: list[int],
    cap: int,
    at_once: int,
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "AT_ONCE", at_once)
        play_at_counts_and_gates(rounds, capacities, cap)


def play_at_counts_and_gates(
    rounds: list[tuple[list[int], int, list[int], int | None, list[bool]]],
    capacities: list[int],
    cap: int,
) -> None:
    buffers = OldestFirst(cap).buffers(np.array(capacities), len(rounds))
    gates = [
        Gate(Store(None, "r", f"client-{number}", capacity), IndexedStream(range(1000)))
        for number, capacity in enumerate(capacities)
    ]
    before = dict.fromkeys(range(len(capacities)), 0)
    for now, (prices, empty, ages, limit, takes_part) in enumerate(rounds, start=1):
        who, clients = members(takes_part)
        thresholds = tuple(float(one) for one in (empty, *ages))
        wanted = buffers.wanted(who, thresholds, np.array(prices, dtype=np.float64)[who])
        if len({prices[client] for client in clients}) == 1:
            same = buffers.wanted(who, thresholds, float(prices[clients[0]]))
            assert same.tolist() == wanted.tolist()
        most = NO_LIMIT if limit is None else limit
        assert buffers.room(who).tolist() == [capacities[client] for client in clients]
        stored = buffers.step(who, np.minimum(wanted, most).astype(np.int32))
        receipts = [
            gates[client].apply(
                Order(
                    run="r",
                    round_number=now,
                    price=float(prices[client]),
                    retention="oldest_first",
                    retention_horizon=cap,
                    count=most,
                    thresholds=thresholds,
                )
            )
            for client in clients
        ]
        admitted = [receipt.admitted for receipt in receipts]
        assert stored.fresh.tolist() == [
            total - before[client] for client, total in zip(clients, admitted, strict=True)
        ]
        before |= dict(zip(clients, admitted, strict=True))
        assert stored.occupancy.tolist() == [one.occupancy for one in receipts]
        assert stored.prior_uses == sum(one.uses - one.occupancy for one in receipts)
        assert stored.expiring.tolist() == [one.expiring for one in receipts]
        assert stored.expiring.any() <= bool(cap)


def test_a_large_client_does_not_cost_the_small_ones_memory() -> None:
    capacities = np.array([10] * 1000 + [1_000_000] + [12] * 1000)
    buffers = OldestFirst().buffers(capacities, 10)
    assert sum(table.nbytes for table in buffers.born) == 4 * (2000 * 12 + 1_000_000)
