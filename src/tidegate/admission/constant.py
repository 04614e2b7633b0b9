"""The same admission in every round, whatever the price: constant admission and the oracle."""

from dataclasses import dataclass

from tidegate.admission.rule import FleetOrder, Quote, RoundTotals, ServerState


@dataclass(frozen=True)
class ConstantAdmission:
    """Λ(t) = Λ̄; the rule keeps the debt for the certificate, and never acts on it."""

    target_admission: float
    """Λ̄."""
    budget: float
    """C."""

    def start(self) -> ServerState:
        """Return a state without debt and samples."""
        return ServerState()

    def learn(self, state: ServerState, quote: Quote) -> ServerState:
        """Return the same state: this rule does not learn from prices."""
        return state

    def decide(self, state: ServerState, quote: Quote, limit: float) -> FleetOrder:
        """Return the target admission, or the limit if that is lower."""
        return FleetOrder(min(self.target_admission, limit))

    def settle(self, state: ServerState, totals: RoundTotals) -> ServerState:
        """Update debt and counts by what clients admitted and paid."""
        return state.settled(totals, self.budget)
