"""Oldest-first retention: a sample stays until a fresh one takes its place, the oldest first.

Samples of a client are numbered as they come. Since the oldest leave first, sample number s always
lies in slot s modulo B_m, and a slot needs one number: the round of its client in which its sample
came. Clients of like capacity share a table, so that a large one does not cost the small ones
memory.

With a cap on uses, a sample that was used as often as it may be leaves, and its slot is empty. That
is the oldest sample of its client too, so that the next one comes into its slot.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from tidegate._internal.arrays import BoolArray, CountArray, FloatArray, IntArray, Members
from tidegate._internal.saving import FIXED
from tidegate.retention.buffers import Stored
from tidegate.wire import Retention

EMPTY = np.int32(2**31 - 1)
"""In place of a round: a slot that holds no sample. No sample is that young."""
AT_ONCE = 4_000_000
"""Slots that are worked on together, so that what is in between needs little memory."""

Table = NDArray[np.int32]
"""One column a client, one row a slot."""


@dataclass(frozen=True, eq=False)
class OldestFirstBuffers:
    """When each sample came: 4 bytes a slot, 24 a client, and 8 to share.

    Where some have twice the slots of others, 9 bytes a client more, and a slot costs up to 8.
    """

    capacities: IntArray = field(metadata=FIXED)
    """B_m."""
    most_uses: int = field(metadata=FIXED)
    """U; 0 for no cap."""
    born: tuple[Table, ...]
    """For each group of clients, the round of its client in which the sample of a slot came."""
    clocks: CountArray
    """Rounds that each client has taken part in."""
    admitted: IntArray
    """Samples that each client has taken in so far; the last of them are stored."""
    occupancy: CountArray
    """Samples that each client stores, without those that were used U times."""
    uses: IntArray
    """Sum, over the stored samples, of the rounds each was trained on."""

    def room(self, who: Members) -> IntArray:
        """Every slot can take a fresh sample."""
        return self.capacities[who]

    def empty(self, who: Members, reserved: IntArray | int = 0) -> int:
        """Slots of these clients that hold no sample, and wait for nothing."""
        return int(self._empty(who, reserved).sum())

    def _empty(self, who: Members, reserved: IntArray | int) -> IntArray:
        empty: IntArray = self.capacities[who] - self.occupancy[who] - reserved
        return np.maximum(empty, 0)

    def wanted(
        self,
        who: Members,
        thresholds: Sequence[float],
        price: float | FloatArray,
        reserved: IntArray | int = 0,
    ) -> IntArray:
        """How many samples each of these clients takes in that follows a rule.

        Args:
            who: the clients.
            thresholds: the price up to which a slot takes a fresh sample: an empty one first, then
                by rounds in which its sample was trained on; the last for all that follow.
            price: one for all, or each client's own.
            reserved: slots that samples bought earlier will take: empty ones first, then those of
                the oldest.
        """
        by_age = thresholds[1:] or thresholds
        too_young = np.searchsorted(by_age, price)  # uses that are too few at this price
        empty = self._empty(who, reserved)
        wanted: IntArray = np.where(np.less_equal(price, thresholds[0]), empty, 0)
        if np.min(too_young, initial=len(by_age)) == len(by_age):
            return wanted
        latest = np.where(too_young < len(by_age), self.clocks[who] - 1 - too_young, -1)
        for table, chosen, columns in self._tables(who):
            came = latest[chosen].astype(np.int32)
            old = table[:, columns] <= came
            if np.any(reserved):
                first, slots = self.admitted[who][chosen], self.capacities[who][chosen]
                taken = np.broadcast_to(reserved, latest.shape)[chosen]
                old &= ~_overwritten(len(table), first, slots, taken)
            wanted[chosen] += old.sum(axis=0)
        return wanted

    def step(self, who: Members, admissions: CountArray) -> Stored:
        """Fill empty slots, and let the oldest samples make room for what does not fit.

        After the round samples go that were used U times.
        """
        uses = self.uses[who].copy()
        if admissions.any():
            first, slots, now = self.admitted[who], self.capacities[who], self.clocks[who]
            for table, chosen, columns in self._tables(who):
                old = table[:, columns]
                fresh = _overwritten(len(table), first[chosen], slots[chosen], admissions[chosen])
                gone = np.where(fresh & (old != EMPTY), now[chosen] - old, 0)
                uses[chosen] -= gone.sum(axis=0)
                table[:, columns] = np.where(fresh, now[chosen], old)
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
        """Empty the slots whose sample was used U times; how many each of these clients has."""
        came = self.clocks[who] - self.most_uses
        expiring = np.zeros(len(came), dtype=np.int32)
        if not self.most_uses or came.max(initial=-1) < 0:
            return expiring
        for table, chosen, columns in self._tables(who):
            over = table[:, columns] == came[chosen]
            expiring[chosen] = over.sum(axis=0)
            if over.any():
                table[:, columns] = np.where(over, EMPTY, table[:, columns])
        return expiring

    def copy(self) -> "OldestFirstBuffers":
        """Buffers that go their own way from here."""
        return replace(
            self,
            born=tuple(table.copy() for table in self.born),
            clocks=self.clocks.copy(),
            admitted=self.admitted.copy(),
            occupancy=self.occupancy.copy(),
            uses=self.uses.copy(),
        )

    def _tables(self, who: Members) -> Iterator[tuple[Table, Members, Members]]:
        """Tables, and for some of these clients at a time where they stand among them and there."""
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
    """Clients none of which has twice the slots of another get the same number, from 0 on."""
    _, numbers = np.unique(np.frexp(capacities)[1], return_inverse=True)
    return numbers.astype(np.uint8)


def _pieces(clients: int, slots: int) -> Iterator[slice]:
    size = max(AT_ONCE // slots, 1)
    for start in range(0, clients, size):
        yield slice(start, min(start + size, clients))


def _overwritten(
    rows: int, first: IntArray, slots: IntArray, count: CountArray | IntArray
) -> BoolArray:
    """Which slots the samples number first, first + 1, ... come into, for each client."""
    row = np.arange(rows, dtype=np.int32)[:, None]
    behind = row - (first % slots).astype(np.int32)
    behind += np.where(behind < 0, slots, 0).astype(np.int32)
    within: BoolArray = (behind < count) & (row < slots)
    return within


@dataclass(frozen=True)
class OldestFirst:
    """Samples stay until others come; or, with a cap, until they were used so often."""

    most_uses: int = 0
    """U; 0 for no cap."""

    def buffers(self, buffer_capacities: IntArray, num_rounds: int) -> OldestFirstBuffers:
        """Empty buffers."""
        clients, groups = len(buffer_capacities), _group_numbers(buffer_capacities)
        members = [groups == group for group in range(int(groups.max()) + 1)]
        return OldestFirstBuffers(
            capacities=buffer_capacities,
            most_uses=self.most_uses,
            born=tuple(
                np.full((int(buffer_capacities[one].max()), int(one.sum())), EMPTY)
                for one in members
            ),
            clocks=np.zeros(clients, dtype=np.int32),
            admitted=np.zeros(clients, dtype=np.int64),
            occupancy=np.zeros(clients, dtype=np.int32),
            uses=np.zeros(clients, dtype=np.int64),
        )

    def for_client(self, number: int, num_clients: int) -> tuple[Retention, int]:
        """The same for all."""
        return "oldest_first", self.most_uses
