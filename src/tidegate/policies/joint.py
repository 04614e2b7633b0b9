"""A joint policy: how many samples to admit, how long they stay, and how to split an order."""

from dataclasses import dataclass
from typing import Generic

from tidegate._internal.arrays import FloatArray
from tidegate.admission.rule import AdmissionRule, Quote, State
from tidegate.retention.buffers import RetentionRule


@dataclass(frozen=True, eq=False, kw_only=True)
class JointPolicy(Generic[State]):
    """An admission rule for the server, a retention rule for the clients, and shares."""

    admission: AdmissionRule[State]
    retention: RetentionRule
    shares: FloatArray
    """Each client's part of an order; they sum to 1."""
    hard_capacity: bool = False
    """No client ever stores more than B_m. The paper limits only the average."""
    spend_ahead: float | None = None
    """s: by the end of every round t the run has spent at most C·(t + s); None for no limit."""
    least_share: float = 0.0
    """The part of its share of the budget that each client gets whatever its price."""
    endless: bool = False
    """The run has no last round to plan for."""
    charge_prefill: bool = False
    """Whether a client pays for samples from before its first round, at that round's price."""

    def buys_in_vain(self, round_number: int, quote: Quote, num_rounds: int) -> bool:
        """Return whether what is bought in a round cannot train before the last one."""
        return not self.endless and round_number + quote.delay > num_rounds

    def most_uses(self, num_rounds: int) -> int:
        """Return the most rounds that a sample trains in: K, U, or all if it does not expire."""
        clients = len(self.shares)
        horizons = (self.retention.for_client(number, clients)[1] for number in range(clients))
        return max(min(horizon or num_rounds, num_rounds) for horizon in horizons)
