"""What a run that learns nothing goes on spending: less and less.

Samples are bought before a client trains, so a mistake in its code, a model that is not finite or
a strategy that gives no average would cost a whole run's budget in vain. (Where samples come later,
rounds in which nobody has any yet are no sign of that.)
"""

from dataclasses import dataclass, replace

LONGEST = 5
"""Pauses last 1, 2, 4 and at last 2 ** 5 rounds. They end, because clients that hold nothing yet
may be the ones whose models can be used."""


@dataclass(frozen=True)
class BuyingPause:
    """Rounds without purchases, after rounds whose purchases were of no use.

    >>> pause = BuyingPause().after_round(used=False, spent=3.0)
    >>> pause.rounds_left, pause.after_round(used=False, spent=0.0).rounds_left
    (1, 0)
    >>> pause.after_round(used=True, spent=0.0)
    BuyingPause(failures=0, rounds_left=0)
    """

    failures: int = 0
    """Rounds with purchases since a model was used last."""
    rounds_left: int = 0
    """Rounds to come in which nothing is bought."""

    def after_round(self, *, used: bool, spent: float) -> "BuyingPause":
        """The pause after one more round.

        Args:
            used: whether any client's model was used.
            spent: what the round cost, with what unanswered orders may have cost; nothing where all
                that was bought is still under way.
        """
        if used:
            return BuyingPause()
        if self.rounds_left:
            return replace(self, rounds_left=self.rounds_left - 1)
        if not spent:
            return self
        return BuyingPause(self.failures + 1, 2 ** min(self.failures, LONGEST))
