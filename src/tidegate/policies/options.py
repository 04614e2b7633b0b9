"""What every policy can be told, so that none can leave it out."""

from dataclasses import dataclass

from tidegate.errors import ConfigurationError


class NotApplicable(ConfigurationError):  # noqa: N818 - says what is the case
    """A policy that has no meaning for this problem, and why."""


@dataclass(frozen=True, kw_only=True)
class ControlOptions:
    """Choices that are the controller's, not the problem's."""

    penalty_exponent: float = 0.5
    """γ of V = T^γ."""
    contraction_exponent: float = 0.5
    """φ of ρ = 1 - T^-φ."""
    retention_horizon: int | None = None
    """K, if not the planned one; the oracle keeps its samples one round in any case."""
    hard_capacity: bool = False
    """Never store more than B_m at any client. The paper limits the average only."""
    strict_spending: bool = False
    """Never have spent more than C·t by the end of any round t. The paper limits the average."""
    endless: bool = False
    """Plan for no last round; of the policies, Tide alone can."""


DEFAULT_OPTIONS = ControlOptions()
