"""Total admission in real numbers -> whole samples for each client.

With fixed shares w_m, let S be the sum of all totals so far: client m is owed w_m·S samples in
all. It is given either the whole number below or the one above, and never fewer than it already
has. Of the clients between the two, those whose w_m·S reaches the next whole number soonest come
first (earliest deadline). All clients together hold exactly the whole part of S.

This cannot fail. The samples due by S number Σ⌊w_m·S⌋ <= ⌊S⌋; and if one that is due later had
been handed out early at S', then at S' nothing due sooner was waiting, and the clients earned at
most S - S' whole samples since. The remainders carried are w_m·S minus the samples handed out:
always within (-1, 1), for each client and for the total.
"""

import math
from dataclasses import dataclass

import numpy as np

from tidegate.arrays import CountArray, FloatArray, IntArray


@dataclass(frozen=True, eq=False)
class Allocation:
    """What every client has been ordered so far, and what all are owed: 16 bytes a client."""

    shares: FloatArray
    """w_m, summing to 1."""
    ordered: IntArray
    """Whole samples ordered from each client since the start."""
    owed: float = 0.0
    """S, the sum of all totals since the start."""

    @classmethod
    def start(cls, shares: FloatArray) -> "Allocation":
        """Nobody has been ordered anything."""
        if np.any(shares < 0) or not math.isclose(float(shares.sum()), 1.0, rel_tol=1e-9):
            raise ValueError("shares must be 0 or more and sum to 1")
        return cls(shares=shares, ordered=np.zeros(len(shares), dtype=np.int64))

    def allocate(
        self, total_admission: float, room: CountArray | None = None
    ) -> tuple[CountArray, "Allocation"]:
        """Split one round's total into whole samples.

        Args:
            total_admission: Λ(t), 0 or more.
            room: under a hard capacity, how many samples each client can still store. What does
                not fit anywhere is given up, not owed.

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
        owed = self.owed + total_admission
        target = self.shares * owed
        least = np.maximum(target.astype(np.int64), self.ordered)
        most = np.ceil(target).astype(np.int64)
        if room is not None:
            np.minimum(least, self.ordered + room, out=least)
            np.minimum(most, self.ordered + room, out=most)
        missing = math.floor(owed) - int(least.sum())
        if missing > 0:
            least[self._soonest(least, most, missing)] += 1
        if room is not None:
            owed = min(owed, int(least.sum()) + owed % 1)
        samples = (least - self.ordered).astype(np.int32)
        return samples, Allocation(self.shares, least, owed)

    def _soonest(self, least: IntArray, most: IntArray, wanted: int) -> IntArray:
        """The clients that may have one more and need it first; of equals, the first listed."""
        open_to = np.flatnonzero(least < most)
        if len(open_to) <= wanted:
            return open_to
        deadline = (least[open_to] + 1) / self.shares[open_to]
        latest = np.partition(deadline, wanted - 1)[wanted - 1]
        sooner = open_to[deadline < latest]
        equal = open_to[deadline == latest][: wanted - len(sooner)]
        return np.concatenate([sooner, equal])
