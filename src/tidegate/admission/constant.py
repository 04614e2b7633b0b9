"""The same admission in every round, whatever the price: constant admission and the oracle."""

from dataclasses import dataclass

from tidegate.admission.rule import FleetOrder, Quote, RoundTotals
from tidegate.admission.state import ServerState


@dataclass(frozen=True)
class ConstantAdmission:
    """Λ(t) = Λ̄; the debt is kept for its certificate and never acted on."""

    target_admission: float
    """Λ̄."""
    budget: float
    """C."""

    def start(self) -> ServerState:
        """No debt, no samples."""
        return ServerState()

    def learn(self, state: ServerState, quote: Quote) -> ServerState:
        """Nothing: each price stands for itself."""
        return state

    def decide(self, state: ServerState, quote: Quote, limit: float) -> FleetOrder:
        """The target, or what fits."""
        return FleetOrder(min(self.target_admission, limit))

    def settle(self, state: ServerState, totals: RoundTotals) -> ServerState:
        """Debt and counts follow what was really admitted and paid."""
        return state.settled(totals, self.budget)
