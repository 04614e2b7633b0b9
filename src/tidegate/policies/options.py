"""What every policy can be told, so that none can leave it out."""

from dataclasses import dataclass

from tidegate._internal.arguments import check_number
from tidegate.errors import ConfigurationError
from tidegate.problem import MOST_ROUNDS


class NotApplicable(ConfigurationError):  # noqa: N818 - says what is the case
    """A policy that has no meaning for this problem, and why."""


@dataclass(frozen=True, kw_only=True)
class ControlOptions:
    """Choices that are the controller's, not the problem's."""

    retention_horizon: int | None = None
    """K, if not the planned one; the oracle keeps its samples one round in any case."""
    hard_capacity: bool = False
    """Never store more than B_m at any client. Without it the policy decides: the paper's limit the
    average only, Tide and the costless oracle never store more."""
    strict_spending: bool = False
    """Never have spent more than C·t by the end of any round t: ``spend_ahead`` of 0."""
    spend_ahead: float | None = None
    """s, rounds whose budget may be spent before they come: never have spent more than C·(t + s) by
    the end of any round t. None for no limit: the paper limits the average."""
    endless: bool = False
    """Plan for no last round; of the policies, Tide alone can."""

    def __post_init__(self) -> None:
        ahead = self.spend_ahead
        if ahead is not None:
            check_number(
                "spend_ahead",
                ahead,
                f"0 or more and at most {MOST_ROUNDS} rounds' budget",
                lambda given: 0 <= given <= MOST_ROUNDS,
                "None is for no limit",
            )
        if self.strict_spending and ahead:
            raise ConfigurationError(
                f"strict spending is a spend_ahead of 0, and {ahead} was given, too; "
                "leave out one of them"
            )


DEFAULT_OPTIONS = ControlOptions()
