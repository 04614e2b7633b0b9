"""What clients hold before round 1, and what they held and let go: the paper's initial state."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tidegate._internal.arguments import shown
from tidegate._internal.arrays import IntArray
from tidegate.errors import ConfigurationError


@dataclass(frozen=True, kw_only=True, eq=False)
class EarlierSamples:
    """Samples from before round 1, counted by how often they were used: q⁰, A⁰, n(0) and N(0).

    They cost nothing. A stored sample counts among the distinct ones from the start, so that
    n(0) <= N(0), even if no round has used it yet.

    >>> earlier = EarlierSamples(stored=[[3, 1], [0, 0, 2]], left=[0, 40])
    >>> earlier.occupancy  # 3 samples that were never used, and 1 that was used once
    array([4, 2])
    >>> earlier.distinct_samples, earlier.total_uses, earlier.squared_uses
    (46, 45, 49)
    """

    stored: Sequence[Sequence[int]] | IntArray = ()
    """For each client, how many of its stored samples were used 0, 1, 2, ... times."""
    left: Sequence[int] | IntArray = ()
    """How many samples that no client stores any more were used 0, 1, 2, ... times; the first
    number is 0."""

    def __post_init__(self) -> None:
        rows = [np.atleast_1d(np.asarray(row)) for row in self.stored]
        for name, counts in (*(("stored", row) for row in rows), ("left", np.asarray(self.left))):
            whole = counts.ndim == 1 and (not counts.size or counts.dtype.kind in "iu")
            if not whole or counts.min(initial=0) < 0:
                raise ConfigurationError(
                    f"{name} must count samples by their uses, such as [3, 1], got "
                    f"{shown(counts.tolist())}"
                )
        stored = np.zeros((len(rows), max(map(len, rows), default=0)), dtype=np.int64)
        for client, row in enumerate(rows):
            stored[client, : len(row)] = row
        left = np.asarray(self.left, dtype=np.int64)
        if left[:1].any():
            raise ConfigurationError(
                f"left must begin with 0, got {left[0]}: a sample that left without any use does "
                "not count"
            )
        for name, counts in (("stored", stored), ("left", left)):
            counts.setflags(write=False)
            object.__setattr__(self, name, counts)

    @property
    def by_client(self) -> IntArray:
        """Stored samples: one row a client, one column for each number of uses from 0 on."""
        return np.asarray(self.stored)

    @property
    def by_uses(self) -> IntArray:
        """Stored samples of all clients together, by uses from 0 on."""
        counts: IntArray = self.by_client.sum(axis=0)
        return counts

    @property
    def left_by_uses(self) -> IntArray:
        """Samples that have left, by uses from 0 on."""
        return np.asarray(self.left)

    @property
    def occupancy(self) -> IntArray:
        """n_m(0) of each client; empty if there are no earlier samples."""
        counts: IntArray = self.by_client.sum(axis=1)
        return counts

    @property
    def distinct_samples(self) -> int:
        """N(0)."""
        return self._sum(0)

    @property
    def total_uses(self) -> int:
        """ΣA⁰."""
        return self._sum(1)

    @property
    def squared_uses(self) -> int:
        """Σ(A⁰)²."""
        return self._sum(2)

    @property
    def most_uses(self) -> int:
        """The most uses of any sample."""
        both = (self.by_uses, self.left_by_uses)
        return max(int(np.flatnonzero(counts).max(initial=0)) for counts in both)

    def _sum(self, power: int) -> int:
        both = (self.by_uses, self.left_by_uses)
        return sum(int(counts @ np.arange(len(counts)) ** power) for counts in both)

    def within(self, most_uses: int | None) -> IntArray:
        """Return the stored samples that were used less than so often, by client and uses.

        A rule that lets samples go after K uses does not keep the others for round 1; None is for
        a rule without a limit.
        """
        return self.by_client[:, :most_uses]


NOTHING = EarlierSamples()
"""A run that begins with empty buffers."""
