"""Total admission in real numbers -> whole samples for each client.

With fixed shares w_m, let S be the sum of all totals so far: client m is owed w_m·S samples in
all. It is given either the whole number below or the one above, and never fewer than it already
has. Of the clients between the two, those whose w_m·S reaches the next whole number soonest come
first (earliest deadline). All clients together hold exactly the whole part of S.

This cannot fail. The samples due by S number Σ⌊w_m·S⌋ <= ⌊S⌋; and if one that is due later had
been handed out early at S', then at S' nothing due sooner was waiting, and the clients earned at
most S - S' whole samples since. The remainders carried are w_m·S minus the samples handed out:
always within (-1, 1), for each client and for the total. (Under a hard capacity memory comes first,
and a client that had no room catches up when it has.)
"""

import math
from dataclasses import dataclass, field

import numpy as np

from tidegate.arrays import CountArray, FloatArray, IntArray
from tidegate.saving import FIXED
from tidegate.wire import NO_LIMIT


@dataclass(frozen=True, eq=False)
class Allocation:
    """What every client has been ordered so far, and what all are owed: 16 bytes a client."""

    shares: FloatArray = field(metadata=FIXED)
    """w_m, summing to 1."""
    ordered: IntArray
    """Whole samples ordered from each client since the start."""
    owed: float = 0.0
    """S, the sum of all totals since the start."""
    credits: FloatArray = field(default_factory=lambda: np.zeros(0))
    """Parts of a sample that each client was owed before the start; empty for none."""

    @classmethod
    def start(cls, shares: FloatArray, unserved: FloatArray | None = None) -> "Allocation":
        """Nobody has been ordered anything.

        Args:
            shares: w_m.
            unserved: from an allocation that this one replaces because the fleet has changed,
                for each client of the new one. It settles who comes first; in all, less than one
                sample is carried over.
        """
        if np.any(shares < 0) or not math.isclose(float(shares.sum()), 1.0, rel_tol=1e-9):
            raise ValueError("shares must be 0 or more and sum to 1")
        ordered = np.zeros(len(shares), dtype=np.int64)
        if unserved is None:
            return cls(shares=shares, ordered=ordered)
        active = shares > 0
        clipped = np.where(active, np.clip(unserved, -1, 1), 0.0)
        total = float(clipped.sum())
        whole = (total - total % 1) / int(active.sum())
        return cls(shares, ordered, credits=np.where(active, clipped - whole, 0.0))

    @property
    def unserved(self) -> FloatArray:
        """What each client is owed and has not been ordered, less than one sample either way."""
        return self._target(self.owed) - self.ordered

    def _target(self, owed: float) -> FloatArray:
        """w_m·S, and what was owed before."""
        target = self.shares * owed
        return target + self.credits if len(self.credits) else target

    def allocate(
        self, total_admission: float, room: IntArray | None = None, most: int | None = None
    ) -> tuple[CountArray, "Allocation"]:
        """Split one round's total into whole samples.

        Args:
            total_admission: Λ(t), 0 or more.
            room: under a hard capacity, how many samples each client can still store. What one
                has no room for goes to the others; what fits nowhere is given up, not owed.
            most: whole samples that may be handed out at all; what exceeds it is given up, too.

        >>> allocation = Allocation.start(np.array([0.5, 0.25, 0.25]))
        >>> for _ in range(4):
        ...     samples, allocation = allocation.allocate(1.5)
        ...     print(samples, allocation.owed)
        [1 0 0] 1.5
        [1 1 0] 3.0
        [0 0 1] 4.5
        [1 1 0] 6.0
        """
        if not 0 <= total_admission < math.inf:
            raise ValueError(f"the total admission must be 0 or more, got {total_admission}")
        owed, carried = self.owed + total_admission, float(self.credits.sum())
        before = int(self.ordered.sum())
        if most is not None and math.floor(owed + carried) > before + most:
            owed = self.owed + most
        whole = max(math.floor(owed + carried), before)
        if most is not None:
            whole = min(whole, before + most)
        target = self._target(owed)
        given = np.maximum(target.astype(np.int64), self.ordered)
        above = np.ceil(target).astype(np.int64)
        if room is not None:
            full = self.ordered + room
            np.minimum(given, full, out=given)
            np.minimum(above, full, out=above)
        missing = whole - int(given.sum())
        if missing > 0:
            given[self._soonest(given, above, missing)] += 1
        if room is not None or most is not None:
            self._take_back(given, int(given.sum()) - whole)
        if room is not None:
            self._pass_on(given, full, whole - int(given.sum()))
            owed = min(owed, int(given.sum()) + (owed + carried) % 1 - carried)
        samples = given - self.ordered
        if samples.max() > NO_LIMIT:
            raise ValueError(
                f"one client would admit {samples.max()} samples in a round, "
                f"the limit is {NO_LIMIT}; a hard capacity keeps it below"
            )
        return samples.astype(np.int32), Allocation(self.shares, given, owed, self.credits)

    def _take_back(self, given: IntArray, excess: int) -> None:
        """Let those wait who are due last, where others were given their samples before."""
        while excess > 0:
            open_to = np.flatnonzero(given > self.ordered)
            due = self._due(given, open_to)
            chosen = open_to[np.argsort(-due, kind="stable")[:excess]]
            given[chosen] -= 1
            excess -= len(chosen)

    def _pass_on(self, given: IntArray, full: IntArray, missing: int) -> None:
        """Hand what some clients have no room for to those that have, one sample at a time."""
        while missing > 0:
            chosen = self._soonest(given, np.where(self.shares > 0, full, given), missing)
            if not len(chosen):
                return
            given[chosen] += 1
            missing -= len(chosen)

    def _due(self, given: IntArray, clients: IntArray) -> FloatArray:
        """The S at which some clients reach so many samples."""
        ahead = self.credits[clients] if len(self.credits) else 0.0
        due: FloatArray = (given[clients] - ahead) / self.shares[clients]
        return due

    def _soonest(self, given: IntArray, most: IntArray, wanted: int) -> IntArray:
        """The clients that may have one more and need it first; of equals, the first listed."""
        open_to = np.flatnonzero(given < most)
        if len(open_to) <= wanted:
            return open_to
        deadline = self._due(given + 1, open_to)
        latest = np.partition(deadline, wanted - 1)[wanted - 1]
        sooner = open_to[deadline < latest]
        equal = open_to[deadline == latest][: wanted - len(sooner)]
        return np.concatenate([sooner, equal])
