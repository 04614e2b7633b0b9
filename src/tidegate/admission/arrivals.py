"""How long purchases take, as sums over the fleet tell it: what was bought first arrives first.

Clients report how many samples they have bought and how many are still under way, and both are
checked. No client says when a purchase will come, and none needs to.
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class Arrivals:
    """The purchases under way, and how long the last ones took.

    >>> arrivals = Arrivals()
    >>> for now, under_way in enumerate([4, 8, 12, 12, 12], start=1):
    ...     arrivals = arrivals.after_round(now, bought=4, under_way=under_way)
    >>> arrivals
    Arrivals(delay=3, waiting=((3, 4), (4, 4), (5, 4)))
    """

    delay: int = 0
    """d: a sample that is bought in round t trains from round t + d on."""
    waiting: tuple[tuple[int, int], ...] = ()
    """Rounds that bought what is under way, the oldest first, and how much of it each bought."""

    def after_round(self, round_number: int, bought: int, under_way: int) -> "Arrivals":
        """Return what is known after a round.

        Args:
            round_number: t.
            bought: samples that the fleet bought in it.
            under_way: those that have neither arrived nor been refused, of all rounds.
        """
        waiting, delay = list(self.waiting), self.delay
        if bought:
            waiting.append((round_number, bought))
        ended = sum(count for _, count in waiting) - under_way
        while waiting and ended >= waiting[0][1]:
            first, count = waiting.pop(0)
            ended -= count
            delay = round_number - first
        if not waiting:
            return Arrivals(delay)
        first, count = waiting[0]
        waiting[0] = first, count - max(ended, 0)
        return Arrivals(max(delay, round_number + 1 - first), tuple(waiting))
