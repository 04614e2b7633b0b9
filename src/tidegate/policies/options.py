"""Options that every policy takes."""

from dataclasses import dataclass
from typing import Any

from tidegate._internal.arguments import check_number, check_whole_number
from tidegate.admission.floor import LEAST_SHARE
from tidegate.errors import ConfigurationError
from tidegate.policies.joint import JointPolicy
from tidegate.problem import MOST_ROUNDS


class NotApplicable(ConfigurationError):  # noqa: N818 - says what is the case
    """Why a policy cannot be used for this problem."""


@dataclass(frozen=True, kw_only=True)
class ControlOptions:
    """Choices of the controller, not of the problem."""

    retention_horizon: int | None = None
    """K, instead of the planned one; the oracle keeps its samples for one round in any case."""
    most_uses: int | None = None
    """U: no sample trains in more than so many rounds, whatever prices do. Tide replaces its
    samples in time, or lets them go; a policy with a larger K is refused. None for no cap."""
    hard_capacity: bool = False
    """Never store more than B_m at any client. Without it the policy decides: the paper's policies
    limit only the average, Tide and the costless oracle never store more."""
    strict_spending: bool = False
    """Never have spent more than C·t by the end of any round t: ``spend_ahead`` of 0."""
    spend_ahead: float | None = None
    """s, the rounds whose budget may be spent early: never have spent more than C·(t + s) by the
    end of any round t. None for no limit: the paper limits the average."""
    least_share: float = LEAST_SHARE
    """The part of an equal share of the money, by memory, that is spent on every client whatever
    its price, if clients have prices of their own. Only Tide buys by price; the other policies
    split an order by memory, and need none."""
    endless: bool = False
    """Plan without a last round; only Tide can."""

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
                f"strict spending means a spend_ahead of 0, but {ahead} was given, too; leave out "
                "one of them"
            )

    def check_uses(self, name: str, policy: JointPolicy[Any], num_rounds: int) -> None:
        """Refuse a policy that lets a sample train in more rounds than it may."""
        if self.most_uses is None:
            return
        uses = policy.most_uses(num_rounds)
        if uses > self.most_uses:
            raise NotApplicable(
                f"{name} lets a sample train in up to {uses} rounds, but most_uses is "
                f"{self.most_uses}; set retention_horizon to {self.most_uses} as well if the "
                "policy has one, or use tide"
            )


DEFAULT_OPTIONS = ControlOptions()
