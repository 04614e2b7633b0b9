"""Drift-plus-penalty: in each round minimise J_t, given debt and price, over an interval."""

from dataclasses import dataclass

from tidegate.admission.interval import Interval
from tidegate.admission.minimise import minimise
from tidegate.admission.objective import Objective
from tidegate.admission.rule import FleetOrder, Quote, RoundTotals, ServerState
from tidegate.problem import LearningConstants


@dataclass(frozen=True)
class DriftPlusPenalty:
    """Λ(t) = argmin { Z(t)(c(t)Λ - C) + V p(t) } over the interval of the round.

    With a closing interval this is the paper's rule, with a fixed one the classical rule.
    """

    budget: float
    """C."""
    penalty_weight: float
    """V."""
    interval: Interval
    learning: LearningConstants
    """The constants of the penalty that the rule minimises."""
    distinct_samples: int = 0
    """N(0)."""
    carried_samples: int = 0
    """n(0), without samples that leave before round 1."""

    def start(self) -> ServerState:
        """Return a state without debt."""
        return ServerState(
            distinct_samples=self.distinct_samples, carried_samples=self.carried_samples
        )

    def learn(self, state: ServerState, quote: Quote) -> ServerState:
        """Return the same state: this rule does not learn from prices."""
        return state

    def decide(self, state: ServerState, quote: Quote, limit: float) -> FleetOrder:
        """Return the total that minimises J_t."""
        objective = Objective(
            cost_slope=state.cost_debt * quote.price,
            penalty_weight=self.penalty_weight,
            carried_samples=float(state.carried_samples),
            distinct_samples=float(state.distinct_samples),
            learning=self.learning,
        )
        allowed = self.interval.at(state.round_number).within(limit)
        return FleetOrder(minimise(objective, allowed).admission)

    def settle(self, state: ServerState, totals: RoundTotals) -> ServerState:
        """Update debt and counts by what clients admitted and paid."""
        return state.settled(totals, self.budget)
