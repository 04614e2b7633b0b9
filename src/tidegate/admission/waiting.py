"""The average delay of purchases, learned from sums with Little's law.

Samples under way = samples bought a round times the delay.
"""

from dataclasses import dataclass

SPAN = 100
"""Rounds over which the delay is averaged, so that it follows a supplier that becomes slower."""


@dataclass(frozen=True)
class WaitTally:
    """Recent purchases, and the rounds that they have waited.

    >>> tally = WaitTally()
    >>> for under_way, ended in ((10, 0), (20, 0), (20, 10), (20, 20)):  # 10 a round, 2 late
    ...     tally = tally.after_round(under_way, ended)
    >>> round(tally.mean_delay, 2)
    1.75
    """

    waited: float = 0.0
    """The samples under way after each round, summed; older rounds count less."""
    bought: float = 0.0
    """The samples bought in each round, summed likewise."""
    total: int = 0
    """All purchases since the start, under way or ended."""

    def after_round(self, under_way: int, ended: int) -> "WaitTally":
        """Return the tally one round later.

        Args:
            under_way: purchases that have not ended.
            ended: purchases that were delivered or refused since the start.
        """
        kept, total = 1 - 1 / SPAN, under_way + ended
        new = max(total - self.total, 0)  # the total falls if a buffer is lost
        return WaitTally(kept * self.waited + under_way, kept * self.bought + new, total)

    @property
    def mean_delay(self) -> float:
        """The rounds from a purchase to its end; too low until the first purchases end."""
        return self.waited / self.bought if self.bought else 0.0
