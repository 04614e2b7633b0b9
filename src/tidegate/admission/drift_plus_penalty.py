"""Drift-plus-penalty: minimise J_t over an interval, each round, from debt and price."""

from dataclasses import dataclass

from tidegate.admission.interval import Interval
from tidegate.admission.minimise import minimise
from tidegate.admission.objective import Objective
from tidegate.admission.rule import FleetOrder, Quote, RoundTotals
from tidegate.admission.state import ServerState
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
    """The constants that the penalty is computed with when deciding."""

    def start(self) -> ServerState:
        """No debt, no samples."""
        return ServerState()

    def learn(self, state: ServerState, quote: Quote) -> ServerState:
        """Nothing: each price stands for itself."""
        return state

    def decide(self, state: ServerState, quote: Quote, limit: float) -> FleetOrder:
        """The minimiser of J_t."""
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
        """Debt and counts follow what was really admitted and paid."""
        return state.settled(totals, self.budget)
