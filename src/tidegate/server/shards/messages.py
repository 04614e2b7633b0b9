"""Messages between shards and the coordinator: a report, and a grant."""

import math
from dataclasses import dataclass

from tidegate.wire import Record


@dataclass(frozen=True, kw_only=True)
class Report(Record):
    """What a shard tells the coordinator, as often as it likes."""

    run: str
    shard: str
    round_number: int
    """The last round that it has run; a report that is no newer than the last is ignored."""
    spends: float
    """Money a round that its policy plans to spend."""
    shadow_price: float
    """μ: what one more unit would be worth to it then."""


@dataclass(frozen=True, kw_only=True)
class Grant(Record):
    """What a shard may spend: everything that it needs to know, so only the newest counts."""

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
        """The last round that it has a budget for."""
        return self.first_round + len(self.budgets) - 1

    def until(self, round_number: int) -> float:
        """Return the sum of the budgets of all rounds up to this one, as far as they are known."""
        known = max(round_number - self.first_round + 1, 0)
        return math.fsum((self.before, *self.budgets[:known]))

    def rate(self, round_number: int) -> float:
        """Return the budget of one round; 0 if none is promised."""
        place = max(round_number - self.first_round, 0)
        return self.budgets[place] if place < len(self.budgets) else 0.0
