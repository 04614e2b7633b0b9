"""The state of the paper's rules between rounds: four numbers for a fleet of any size."""

from dataclasses import dataclass

from tidegate.admission.debt import next_cost_debt
from tidegate.admission.rule import RoundTotals


@dataclass(frozen=True)
class ServerState:
    """The state that all of the paper's rules share.

    >>> totals = RoundTotals(admitted=9, spent=60.0, training_size=9, prior_uses=0, carried=9)
    >>> ServerState().settled(totals, budget=55.0)
    ServerState(round_number=2, cost_debt=5.0, distinct_samples=9, carried_samples=9)
    """

    round_number: int = 1
    """t, the round that comes next."""
    cost_debt: float = 0.0
    """Z(t), with Z(1) = 0."""
    distinct_samples: int = 0
    """N(t-1)."""
    carried_samples: int = 0
    """n(t-1) - Λ(t-K): the stored samples that have not expired when the round begins."""

    def settled(self, totals: RoundTotals, budget: float) -> "ServerState":
        """Return the state one round later.

        Reports may be late: a sample that is stored counts as distinct even before its admission
        was reported.
        """
        return ServerState(
            round_number=self.round_number + 1,
            cost_debt=next_cost_debt(self.cost_debt, totals.spent, budget),
            distinct_samples=max(self.distinct_samples + totals.admitted, totals.carried),
            carried_samples=totals.carried,
        )
