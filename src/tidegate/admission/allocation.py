"""Split a real-valued total admission into whole samples for each client.

With fixed shares w_m, let S be the sum of all totals so far: client m is owed w_m·S samples in
all. It gets either the whole number below or the one above, and never fewer than it already has.
Among the clients between the two, those whose w_m·S reaches the next whole number soonest come
first (earliest deadline). All clients together get exactly the whole part of S.

This always works. By S, Σ⌊w_m·S⌋ <= ⌊S⌋ samples are due. If a sample that is due later was handed
out early at S', then no sample due sooner was waiting at S', and the clients earned at most S - S'
whole samples since. The remainders carried are w_m·S minus the samples handed out: always within
(-1, 1), for each client and for the total. (Under a hard capacity memory comes first, and a client
without room catches up when it has room.)

If a round reaches only a cohort, the cohort's clients are owed the round's total in proportion to
their shares, and the other clients nothing. Parts of a sample wait for a client's next round. The
total is as exact as before. No algorithm can keep each client within one sample without knowing
future cohorts: clients that got more may never be in one cohort with clients that got less. (This
is the car-pool problem: who drives, if a different group travels every day?)
"""

import math
from dataclasses import dataclass, field, replace

import numpy as np

from tidegate._internal.arrays import EVERYONE, CountArray, FloatArray, IntArray, Members
from tidegate._internal.saving import FIXED
from tidegate.errors import ConfigurationError
from tidegate.wire import NO_LIMIT

ROUNDING = 1e-9
"""Part of a sample. A total that is nearer to a whole number counts as that number."""
CARRIED_ROUNDING = 1e-6
"""What all clients are owed together counts as nothing below this. Each part is rounded where its
client's count is large, so that the sum is off by about the count of all samples times 2⁻⁵³."""


@dataclass(frozen=True, eq=False)
class Allocation:
    """The samples ordered from each client so far, and those owed: 24 bytes a client."""

    shares: FloatArray = field(metadata=FIXED)
    """w_m, summing to 1."""
    ordered: IntArray
    """Whole samples ordered from each client since the start."""
    credits: FloatArray
    """The samples that each client is owed beyond its part of S: from rounds that reached a cohort,
    and parts of a sample from before the start."""
    owed: float = 0.0
    """S, the sum of all totals since the start that were split among all clients."""
    credited: float = 0.0
    """The sum of ``credits``."""
    handed_out: int = 0
    """The sum of ``ordered``."""

    @classmethod
    def start(cls, shares: FloatArray, unserved: FloatArray | None = None) -> "Allocation":
        """Return the allocation before the first order.

        Args:
            shares: w_m.
            unserved: for each client, what the allocation before a change of the fleet still owed
                it. It decides which clients come first; in total, less than one sample is carried
                over.
        """
        if np.any(shares < 0) or not math.isclose(float(shares.sum()), 1.0, rel_tol=1e-9):
            raise ValueError("shares must be 0 or more and sum to 1")
        ordered = np.zeros(len(shares), dtype=np.int64)
        if unserved is None:
            return cls(shares, ordered, np.zeros(len(shares)))
        active = shares > 0
        clipped = np.where(active, np.clip(unserved, -1, 1), 0.0)
        total = float(clipped.sum())
        carried = 0.0 if abs(total) < CARRIED_ROUNDING else total - math.floor(total + ROUNDING)
        kept = np.where(active, clipped - (total - carried) / int(active.sum()), 0.0)
        return cls(shares, ordered, kept, credited=carried)

    @property
    def unserved(self) -> FloatArray:
        """The samples that each client is owed beyond its orders.

        Less than one sample either way, if all clients took part in every round.
        """
        return self.shares * self.owed + self.credits - self.ordered

    def allocate(
        self,
        total_admission: float,
        room: IntArray | None = None,
        most: int | None = None,
        who: Members = EVERYONE,
    ) -> tuple[CountArray, "Allocation"]:
        """Split one round's total into whole samples.

        Args:
            total_admission: Λ(t), 0 or more.
            room: under a hard capacity, how many samples each client can still store. Samples that
                a client has no room for go to the others; if they fit nowhere, they are dropped
                and not owed.
            most: the most whole samples to hand out; the rest is dropped, too.
            who: the clients that take part and get the samples; ``room`` is theirs.

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
        carried, before = self.credited, self.handed_out
        whole = max(math.floor(self.owed + total_admission + carried + ROUNDING) - before, 0)
        if most is not None and whole > most:
            whole, total_admission = most, float(most)
        owed = self.owed + total_admission
        if isinstance(who, slice):
            claims = _Claims(self.shares, self.credits, self.ordered, owed, room)
            samples = claims.share_out(whole)
            handed_out = before + int(samples.sum())
            if room is not None:
                owed = min(owed, handed_out + (owed + carried) % 1 - carried)
            ordered = self.ordered + samples
            return samples, replace(self, ordered=ordered, owed=owed, handed_out=handed_out)
        return self._allocate_to(who, total_admission, whole, room)

    def _allocate_to(
        self, who: IntArray, total: float, whole: int, room: IntArray | None
    ) -> tuple[CountArray, "Allocation"]:
        """Split a total among a cohort; drop it if no client of the cohort has a share."""
        weights = self.shares[who]
        weight = float(weights.sum())
        if not weight:
            return np.zeros(len(who), dtype=np.int32), self
        parts, credited = weights / weight, self.credits[who]
        claims = _Claims(weights, credited + total * parts, self.ordered[who], self.owed, room)
        samples = claims.share_out(whole)
        handed_out = int(samples.sum())
        kept = total - (whole - handed_out)  # the rest is dropped
        ordered, after = self.ordered.copy(), self.credits.copy()
        ordered[who] += samples
        after[who] = credited + kept * parts
        return samples, replace(
            self,
            ordered=ordered,
            credits=after,
            credited=self.credited + kept,
            handed_out=self.handed_out + handed_out,
        )


class _Claims:
    """The samples that the clients of one round are owed, and those that they get."""

    def __init__(
        self,
        shares: FloatArray,
        credited: FloatArray,
        ordered: IntArray,
        owed: float,
        room: IntArray | None,
    ) -> None:
        self._shares = shares
        self._credited = credited
        self._ordered = ordered
        self._full = ordered + (NO_LIMIT if room is None else room)
        target = shares * owed + credited
        self._given = np.maximum(target.astype(np.int64), ordered)
        self._above = np.ceil(target).astype(np.int64)
        if room is not None:
            np.minimum(self._given, self._full, out=self._given)
            np.minimum(self._above, self._full, out=self._above)

    def share_out(self, whole: int) -> CountArray:
        """Return the samples of each client, ``whole`` in all, those that are due first."""
        handed_out = int(self._ordered.sum()) + whole
        missing = handed_out - int(self._given.sum())
        if missing > 0:
            self._given[self._soonest(self._above, missing)] += 1
            missing = handed_out - int(self._given.sum())
        # Without cohorts, limits and rounding the sum is exact now.
        self._take_back(-missing)
        self._pass_on(missing)
        samples = self._given - self._ordered
        if samples.max(initial=0) > NO_LIMIT:
            raise ConfigurationError(
                f"one client would admit {samples.max()} samples in a round, but the limit is "
                f"{NO_LIMIT}; a hard capacity keeps it below"
            )
        return samples.astype(np.int32)

    def _take_back(self, excess: int) -> None:
        """Take back the samples that are due last, if others got theirs early."""
        while excess > 0:
            open_to = np.flatnonzero(self._given > self._ordered)
            due = self._due(self._given, open_to)
            chosen = open_to[np.argsort(-due, kind="stable")[:excess]]
            self._given[chosen] -= 1
            excess -= len(chosen)

    def _pass_on(self, missing: int) -> None:
        """Give samples that some clients have no room for to the others, one each in turn."""
        if missing <= 0:
            return
        most = np.where(self._shares > 0, self._full, self._given)
        while missing > 0:
            open_to = np.flatnonzero(self._given < most)
            if not len(open_to):
                return
            if len(open_to) > missing:
                self._given[self._soonest(most, missing)] += 1
                return
            turns = min(missing // len(open_to), int((most - self._given)[open_to].min()))
            self._given[open_to] += turns
            missing -= turns * len(open_to)

    def _due(self, counts: IntArray, clients: IntArray) -> FloatArray:
        """Return the S at which each of these clients is due this many samples."""
        due: FloatArray = (counts[clients] - self._credited[clients]) / self._shares[clients]
        return due

    def _soonest(self, most: IntArray, wanted: int) -> IntArray:
        """Return the clients whose next sample is due first; of equals, the first listed."""
        open_to = np.flatnonzero(self._given < most)
        if len(open_to) <= wanted:
            return open_to
        deadline = self._due(self._given + 1, open_to)
        latest = np.partition(deadline, wanted - 1)[wanted - 1]
        sooner = open_to[deadline < latest]
        equal = open_to[deadline == latest][: wanted - len(sooner)]
        return np.concatenate([sooner, equal])
