"""A round of a running fleet: what it did."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from tidegate.wire import HEALTH


@dataclass(frozen=True)
class FleetRound:
    """What one round of a running fleet did."""

    round_number: int
    price: float
    """Averaged over clients by their shares, if each has its own."""
    ordered: float
    """Λ(t), real-valued; what the rule led to if the order was a rule."""
    fleet: int
    """Clients in the plan."""
    orders: int
    """Clients that were sent an order."""
    answered: int
    """Those whose receipt arrived in time."""
    exhausted: int
    """Those whose stream or supplier delivered less than ordered."""
    admitted: int
    """Samples that began to train in this round, including those of late receipts."""
    spent: float
    """Committed in this round, less refunds."""
    overspend: float
    """Σ (C_τ - C) up to this round."""
    cost_debt: float
    """Z(t+1)."""
    exposure: float
    """What orders without a reply may turn out to have cost."""
    slots: int
    """Planned slots of the clients that were sent an order."""
    training_size: int
    """n(t), over the clients that replied in time."""
    distinct_samples: int
    """N(t)."""
    effective_samples: float
    """N_eff(t)."""
    pause: int = 0
    """Coming rounds in which clients buy nothing, because their purchases could not be used."""
    retired: int = 0
    """Clients that an operator has retired."""
    under_way: int = 0
    """Samples that were bought and have not arrived yet."""
    under_way_spent: float = 0.0
    """Committed for them."""
    oldest_under_way: int = 0
    """Rounds since the oldest of them was bought."""
    empty_clients: int = 0
    """Clients that hold no sample, and to which none is under way."""
    refunded: float = 0.0
    """What suppliers have paid back so far."""
    health: Mapping[str, float] = field(default_factory=dict)
    """What clients report of themselves, by name (``wire.HEALTH``), summed."""

    def numbers(self) -> dict[str, float]:
        """Return everything as plain numbers, by name."""
        values = {name: value for name, value in vars(self).items() if name != "health"}
        known = dict.fromkeys((name for name in HEALTH if name != "waiting_since"), 0)
        return {**values, **known, **self.health}

    @property
    def told(self) -> str:
        """Return the round in one line, for the log."""
        return (
            f"round {self.round_number}: {self.answered} of {self.orders} orders answered, "
            f"{self.fleet} in the fleet, price {self.price:.4g}, {self.admitted} samples admitted "
            f"for {self.spent:.4g}, {self.training_size} in training, cost debt "
            f"{self.cost_debt:.4g}, exposure {self.exposure:.4g}"
        )


def sums_of(rounds: Sequence[FleetRound]) -> tuple[int, float, float]:
    """Return what a run has bought and spent, and what its budget allows, over all its rounds.

    What was bought was admitted or is still under way; what was refused is refunded.
    """
    bought = sum(row.admitted for row in rounds) + rounds[-1].under_way
    spent = math.fsum(row.spent for row in rounds)
    return bought, spent, spent - rounds[-1].overspend
