"""How long purchases take, learned from sums: what is under way is bought a round times delay."""

from dataclasses import dataclass

SPAN = 100
"""Rounds from which the delay is learned, so that a supplier that becomes slower is noticed."""


@dataclass(frozen=True)
class WaitTally:
    """Purchases of lately, and the rounds that they have waited: Little's law.

    >>> tally = WaitTally()
    >>> for under_way, ended in ((10, 0), (20, 0), (20, 10), (20, 20)):  # 10 a round, 2 late
    ...     tally = tally.after_round(under_way, ended)
    >>> round(tally.mean_delay, 2)
    1.75
    """

    waited: float = 0.0
    """Σ_t of what was under way after round t, older rounds counting less."""
    bought: float = 0.0
    """Σ_t of what was bought in round t, likewise."""
    total: int = 0
    """Samples that are under way or have ended, since the start."""

    def after_round(self, under_way: int, ended: int) -> "WaitTally":
        """Return the tally one round later.

        Args:
            under_way: samples that were bought and have not ended yet.
            ended: those that have come or were refused, since the start.
        """
        kept, total = 1 - 1 / SPAN, under_way + ended
        new = max(total - self.total, 0)  # fewer where a buffer was lost
        return WaitTally(kept * self.waited + under_way, kept * self.bought + new, total)

    @property
    def mean_delay(self) -> float:
        """Rounds from a purchase to its end; less while the first wait."""
        return self.waited / self.bought if self.bought else 0.0
