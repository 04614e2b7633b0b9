"""Spend less and less while a run learns nothing.

Clients buy samples before they train. A mistake in the client's code, a model that is not finite or
a strategy that returns no average would therefore waste a whole run's budget. (If samples arrive
later, rounds in which no client has samples yet do not count.)
"""

from dataclasses import dataclass, replace

LONGEST = 5
"""Pauses last 1, 2, 4 and finally 2 ** 5 rounds. They end, because clients that hold nothing yet
may be the ones whose models can be used."""


@dataclass(frozen=True)
class BuyingPause:
    """Rounds without purchases, after rounds whose purchases could not be used.

    >>> pause = BuyingPause().after_round(used=False, spent=3.0)
    >>> pause.rounds_left, pause.after_round(used=False, spent=0.0).rounds_left
    (1, 0)
    >>> pause.after_round(used=True, spent=0.0)
    BuyingPause(failures=0, rounds_left=0)
    """

    failures: int = 0
    """Rounds with purchases since a model was last used."""
    rounds_left: int = 0
    """Coming rounds in which clients buy nothing."""

    def after_round(self, *, used: bool, spent: float) -> "BuyingPause":
        """Return the pause after one more round.

        Args:
            used: whether any client's model was used.
            spent: what the round cost, including what orders without a reply may have cost; 0 if
                everything that was bought is still under way.
        """
        if used:
            return BuyingPause()
        if self.rounds_left:
            return replace(self, rounds_left=self.rounds_left - 1)
        if not spent:
            return self
        return BuyingPause(self.failures + 1, 2 ** min(self.failures, LONGEST))
