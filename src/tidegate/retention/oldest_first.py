"""Oldest-first retention: a sample stays until a fresh one takes its place, the oldest first.

Each client numbers its samples as they come. The oldest leave first, so sample s always lies in
slot s modulo B_m, and a slot needs only one number: the client's round in which its sample came.
Clients of similar capacity share a table, so that a large client does not waste memory for small
ones.

With a cap of U uses, a sample that was used U times leaves, and its slot is empty. It is also the
oldest sample of its client, so the next sample goes into its slot.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from tidegate._internal.arrays import BoolArray, CountArray, FloatArray, IntArray, Members
from tidegate._internal.saving import FIXED
from tidegate.problem import NOTHING, EarlierSamples
from tidegate.retention.buffers import Stored
from tidegate.wire import Retention

EMPTY = np.int32(2**31 - 1)
"""Marks an empty slot in place of a round; no sample comes in so late a round."""
BEFORE_ALL = np.int32(-(2**31))
"""A round before that of any sample."""
AT_ONCE = 4_000_000
"""Slots that are processed together, to limit the memory of intermediate results."""

Table = NDArray[np.int32]
"""One column a client, one row a slot."""


@dataclass(frozen=True, eq=False)
class OldestFirstBuffers:
    """The round in which each sample came.

    4 bytes a slot, 24 a client, and 8 for capacities, which others share. If some clients
    have twice the slots of others, 9 bytes a client more, and up to 8 a slot.
    """

    capacities: IntArray = field(metadata=FIXED)
    """B_m."""
    most_uses: int = field(metadata=FIXED)
    """U; 0 for no cap."""
    born: tuple[Table, ...]
    """For each group of clients, the client's round in which the sample of each slot came, from 0
    on; -a for an earlier sample that was used a times."""
    clocks: CountArray
    """Rounds that each client has taken part in."""
    admitted: IntArray
    """Samples that each client has admitted so far; it stores the newest of them."""
    occupancy: CountArray
    """Samples that each client stores, without those that were used U times."""
    uses: IntArray
    """The uses of each client's stored samples so far, summed."""

    def room(self, who: Members) -> IntArray:
        """Return all slots of these clients: each can take a fresh sample."""
        return self.capacities[who]

    def empty(self, who: Members) -> int:
        """Return how many slots of these clients are empty."""
        return int((self.capacities[who] - self.occupancy[who]).sum())

    def wanted(
        self,
        who: Members,
        thresholds: Sequence[float],
        price: float | FloatArray,
    ) -> IntArray:
        """Return how many samples each of these clients admits under a rule.

        Args:
            who: the clients.
            thresholds: the price up to which a slot takes a fresh sample: first for an empty slot,
                then by the uses of its sample; the last for all older ones.
            price: one for all, or each client's own.
        """
        by_age = thresholds[1:] or thresholds
        too_young = np.searchsorted(by_age, price)  # samples with fewer uses stay at this price
        empty = self.capacities[who] - self.occupancy[who]
        wanted: IntArray = np.where(np.less_equal(price, thresholds[0]), empty, 0)
        if np.min(too_young, initial=len(by_age)) == len(by_age):
            return wanted
        youngest = self.clocks[who] - 1 - too_young
        latest = np.where(too_young < len(by_age), youngest, BEFORE_ALL)
        for table, chosen, columns in self._tables(who):
            came = latest[chosen].astype(np.int32)
            wanted[chosen] += (table[:, columns] <= came).sum(axis=0)
        return wanted

    def step(self, who: Members, admissions: CountArray) -> Stored:
        """Fill empty slots, then replace the oldest samples.

        Samples that were used U times leave after the round.
        """
        uses = self.uses[who].copy()
        if admissions.any():
            first, slots, clocks = self.admitted[who], self.capacities[who], self.clocks[who]
            for table, chosen, columns in self._tables(who):
                old = table[:, columns]
                fresh = _overwritten(len(table), first[chosen], slots[chosen], admissions[chosen])
                gone = np.where(fresh & (old != EMPTY), clocks[chosen] - old, 0)
                uses[chosen] -= gone.sum(axis=0)
                table[:, columns] = np.where(fresh, clocks[chosen], old)
        self.admitted[who] += admissions
        self.clocks[who] += 1
        occupancy = np.minimum(self.occupancy[who] + admissions, self.capacities[who])
        occupancy = occupancy.astype(np.int32)
        expiring = self._expire(who)
        self.occupancy[who] = occupancy - expiring
        self.uses[who] = uses + occupancy - np.multiply(expiring, self.most_uses, dtype=np.int64)
        return Stored(
            occupancy=occupancy,
            fresh=admissions,
            expiring=expiring,
            prior_uses=int(uses.sum()),
        )

    def _expire(self, who: Members) -> CountArray:
        """Empty the slots whose sample was used U times, and count them for each client."""
        came = self.clocks[who] - self.most_uses
        expiring = np.zeros(len(came), dtype=np.int32)
        if not self.most_uses:
            return expiring
        for table, chosen, columns in self._tables(who):
            over = table[:, columns] == came[chosen]
            expiring[chosen] = over.sum(axis=0)
            if over.any():
                table[:, columns] = np.where(over, EMPTY, table[:, columns])
        return expiring

    def copy(self) -> "OldestFirstBuffers":
        """Return an independent copy."""
        return replace(
            self,
            born=tuple(table.copy() for table in self.born),
            clocks=self.clocks.copy(),
            admitted=self.admitted.copy(),
            occupancy=self.occupancy.copy(),
            uses=self.uses.copy(),
        )

    def _tables(self, who: Members) -> Iterator[tuple[Table, Members, Members]]:
        """Yield each table, with places of some clients in ``who`` and their columns in it."""
        if len(self.born) == 1:
            count = len(self.clocks[who])
            for piece in _pieces(count, len(self.born[0])):
                yield self.born[0], piece, piece if isinstance(who, slice) else who[piece]
            return
        clients = np.arange(len(self.clocks))[who]
        for group, table in enumerate(self.born):
            places: IntArray = np.flatnonzero(self._groups[clients] == group)
            for piece in _pieces(len(places), len(table)):
                everyone = isinstance(who, slice)
                columns = piece if everyone else self._columns[clients[places[piece]]]
                yield table, places[piece], columns

    @cached_property
    def _groups(self) -> NDArray[np.uint8]:
        """The group of each client."""
        return _group_numbers(self.capacities)

    @cached_property
    def _columns(self) -> IntArray:
        """The column of each client in the table of its group."""
        columns = np.empty(len(self.capacities), dtype=np.int64)
        for group in range(len(self.born)):
            members = self._groups == group
            columns[members] = np.arange(int(members.sum()))
        return columns


def _group_numbers(capacities: IntArray) -> NDArray[np.uint8]:
    """Return the group of each client, from 0; in a group none has twice another's slots."""
    _, numbers = np.unique(np.frexp(capacities)[1], return_inverse=True)
    return numbers.astype(np.uint8)


def _pieces(clients: int, slots: int) -> Iterator[slice]:
    size = max(AT_ONCE // slots, 1)
    for start in range(0, clients, size):
        yield slice(start, min(start + size, clients))


def _overwritten(
    rows: int, first: IntArray, slots: IntArray, count: CountArray | IntArray
) -> BoolArray:
    """Return which slots of each client the samples first, first + 1, ... go into."""
    row = np.arange(rows, dtype=np.int32)[:, None]
    behind = row - (first % slots).astype(np.int32)
    behind += np.where(behind < 0, slots, 0).astype(np.int32)
    within: BoolArray = (behind < count) & (row < slots)
    return within


@dataclass(frozen=True)
class OldestFirst:
    """A sample stays until a fresh one replaces it or, with a cap, until it was used U times."""

    most_uses: int = 0
    """U; 0 for no cap."""

    def buffers(
        self, buffer_capacities: IntArray, num_rounds: int, earlier: EarlierSamples = NOTHING
    ) -> OldestFirstBuffers:
        """Return buffers with the earlier samples that were used less than U times."""
        clients, groups = len(buffer_capacities), _group_numbers(buffer_capacities)
        members = [groups == group for group in range(int(groups.max()) + 1)]
        buffers = OldestFirstBuffers(
            capacities=buffer_capacities,
            most_uses=self.most_uses,
            born=tuple(
                np.full((int(buffer_capacities[member].max()), int(member.sum())), EMPTY)
                for member in members
            ),
            clocks=np.zeros(clients, dtype=np.int32),
            admitted=np.zeros(clients, dtype=np.int64),
            occupancy=np.zeros(clients, dtype=np.int32),
            uses=np.zeros(clients, dtype=np.int64),
        )
        held = earlier.within(self.most_uses or None)
        if not held.size:
            return buffers
        for table, one in zip(buffers.born, members, strict=True):
            first = np.zeros(int(one.sum()), dtype=np.int64)
            for uses in reversed(range(held.shape[1])):  # the oldest in the first slots
                after = first + held[one, uses]
                slots = np.arange(len(table))[:, None]
                table[(slots >= first) & (slots < after)] = -uses
                first = after
        buffers.admitted[:] = buffers.occupancy[:] = held.sum(axis=1)
        buffers.uses[:] = held @ np.arange(held.shape[1])
        return buffers

    def for_client(self, number: int, num_clients: int) -> tuple[Retention, int]:
        """Return U, the same for every client."""
        return "oldest_first", self.most_uses
