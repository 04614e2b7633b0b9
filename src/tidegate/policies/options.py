"""What every policy can be told, so that none can leave it out."""

from dataclasses import dataclass
from typing import Any

from tidegate._internal.arguments import check_number, check_whole_number
from tidegate.admission.floor import LEAST_SHARE
from tidegate.errors import ConfigurationError
from tidegate.policies.joint import JointPolicy
from tidegate.problem import MOST_ROUNDS


class NotApplicable(ConfigurationError):  # noqa: N818 - says what is the case
    """A policy that has no meaning for this problem, and why."""


@dataclass(frozen=True, kw_only=True)
class ControlOptions:
    """Choices that are the controller's, not the problem's."""

    retention_horizon: int | None = None
    """K, if not the planned one; the oracle keeps its samples one round in any case."""
    most_uses: int | None = None
    """U: no sample trains in more than so many rounds, whatever prices do. Tide replaces its
    samples in time, or lets them go; a policy with a larger K is refused. None for no cap."""
    hard_capacity: bool = False
    """Never store more than B_m at any client. Without it the policy decides: the paper's limit the
    average only, Tide and the costless oracle never store more."""
    strict_spending: bool = False
    """Never have spent more than C·t by the end of any round t: ``spend_ahead`` of 0."""
    spend_ahead: float | None = None
    """s, rounds whose budget may be spent before they come: never have spent more than C·(t + s) by
    the end of any round t. None for no limit: the paper limits the average."""
    least_share: float = LEAST_SHARE
    """Where clients have prices of their own: of the money that a client would get if all were
    treated alike, by memory, the part that is spent on it in any case. Tide alone buys by price;
    the other policies split an order by memory, and need none."""
    endless: bool = False
    """Plan for no last round; of the policies, Tide alone can."""

    def __post_init__(self) -> None:
        if self.most_uses is not None:
            check_whole_number("most_uses", self.most_uses)
        ahead = self.spend_ahead
        if ahead is not None:
            check_number(
                "spend_ahead",
                ahead,
                f"0 or more and at most {MOST_ROUNDS} rounds' budget",
                lambda given: 0 <= given <= MOST_ROUNDS,
                "None is for no limit",
            )
        check_number("least_share", self.least_share, "from 0 to 1", lambda given: 0 <= given <= 1)
        if self.strict_spending and ahead:
            raise ConfigurationError(
                f"strict spending is a spend_ahead of 0, and {ahead} was given, too; "
                "leave out one of them"
            )

    def check_uses(self, name: str, policy: JointPolicy[Any], num_rounds: int) -> None:
        """Refuse a policy that lets a sample train in more rounds than it may."""
        if self.most_uses is None:
            return
        uses = policy.most_uses(num_rounds)
        if uses > self.most_uses:
            raise NotApplicable(
                f"{name} lets a sample train in up to {uses} rounds, and most_uses is "
                f"{self.most_uses}; give a retention_horizon of {self.most_uses} as well where the "
                "policy has one, or take tide"
            )


DEFAULT_OPTIONS = ControlOptions()
