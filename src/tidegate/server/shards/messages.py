"""What shards and coordinator tell each other: a report, and a grant."""

import math
from dataclasses import dataclass

from tidegate.wire import Record


@dataclass(frozen=True, kw_only=True)
class Report(Record):
    """What a shard tells the coordinator, as often as it likes."""

    run: str
    shard: str
    round_number: int
    """The last that it has played; a report that is no newer than the last is ignored."""
    spends: float
    """Money a round that its policy plans to spend."""
    shadow_price: float
    """μ: what one unit more would be worth to it then."""


@dataclass(frozen=True, kw_only=True)
class Grant(Record):
    """What a shard may spend: everything that it needs to know, so that the newest counts."""

    run: str
    shard: str
    first_round: int
    """The round that the first of the budgets is for."""
    before: float
    """Sum of all its budgets of earlier rounds."""
    budgets: tuple[float, ...]
    """For the rounds from the first on."""

    @property
    def last_round(self) -> int:
        """The last one that it has a budget for."""
        return self.first_round + len(self.budgets) - 1

    def until(self, round_number: int) -> float:
        """Sum of the budgets of all rounds up to this one, as far as they are known."""
        known = max(round_number - self.first_round + 1, 0)
        return math.fsum((self.before, *self.budgets[:known]))

    def rate(self, round_number: int) -> float:
        """What a round gets by itself; 0 where nothing is promised for it."""
        place = max(round_number - self.first_round, 0)
        return self.budgets[place] if place < len(self.budgets) else 0.0
