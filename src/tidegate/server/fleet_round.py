"""A round of a running fleet: while it is under way, and what it did."""

from dataclasses import dataclass


@dataclass(frozen=True)
class FleetRound:
    """What one round of a running fleet did."""

    round_number: int
    price: float
    """Averaged over clients by their shares, where each has its own."""
    ordered: float
    """Λ(t), real-valued; what a rule led to where the order was a rule."""
    fleet: int
    """Clients that are planned for."""
    orders: int
    """Clients that were sent an order."""
    answered: int
    """Those of them whose receipt came in time."""
    exhausted: int
    """Those of these whose stream or acquisition gave less than was ordered."""
    admitted: int
    """Samples that began to train in this round, those of late receipts too."""
    spent: float
    """Committed in this round, less what suppliers paid back."""
    overspend: float
    """Σ (C_τ - C) up to this round."""
    cost_debt: float
    """Z(t+1)."""
    exposure: float
    """What unanswered orders may turn out to have cost."""
    slots: int
    """Planned for, of the clients that were sent an order."""
    training_size: int
    """n(t), of the clients that answered in time."""
    distinct_samples: int
    """N(t)."""
    effective_samples: float
    """N_eff(t)."""
    pause: int = 0
    """Rounds to come in which nothing is bought, because what was bought could not be used."""
    set_aside: int = 0
    """Samples so far that clients could not read, acquire or store, and passed over."""
    retired: int = 0
    """Clients that an operator has taken out of the fleet for good."""
    under_way: int = 0
    """Samples that were bought and have not come yet."""
    under_way_spent: float = 0.0
    """Committed for them."""
    oldest_under_way: int = 0
    """Rounds since the oldest of them was bought."""
    failing_suppliers: int = 0
    """Clients whose supplier could not be asked or did not answer."""
    full_spools: int = 0
    """Clients whose stream has no room for more."""
    spool_dropped: int = 0
    """Messages that streams have dropped so far, because they were full."""
    empty_clients: int = 0
    """Clients that hold no sample, and to which none is under way."""
    refunded: float = 0.0
    """What suppliers have paid back so far."""

    @property
    def told(self) -> str:
        """The round in one line, for the log."""
        return (
            f"round {self.round_number}: {self.answered} of {self.orders} orders answered, "
            f"{self.fleet} in the fleet, price {self.price:.4g}, "
            f"{self.admitted} samples admitted for {self.spent:.4g}, "
            f"{self.training_size} in training, "
            f"cost debt {self.cost_debt:.4g}, exposure {self.exposure:.4g}"
        )


@dataclass(frozen=True)
class Decision:
    """A round that is under way."""

    price: float
    ordered: float | None
    """None where the order is a rule."""
    budget: float
    """C; of a shard, what this round was granted."""
    expected: float
    """What the rounds to come will get each."""
    orders: int
    slots: int
    """Of the clients that were sent one."""
    answered: int = 0
    exhausted: int = 0
