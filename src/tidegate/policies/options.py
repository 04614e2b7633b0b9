"""Options that every policy takes."""

from dataclasses import dataclass
from typing import Any

from tidegate._internal.arguments import check_number, check_whole_number
from tidegate.admission.floor import LEAST_SHARE
from tidegate.errors import ConfigurationError
from tidegate.policies.joint import JointPolicy
from tidegate.problem import MOST_ROUNDS


class NotApplicable(ConfigurationError):  # noqa: N818 - names the situation
    """A policy cannot be used for this problem."""


class ExceedsCap(NotApplicable):
    """A policy would use samples more often than a cap on uses allows."""


@dataclass(frozen=True, kw_only=True)
class ControlOptions:
    """Settings that hold for every policy and do not belong to the problem."""

    retention_horizon: int | None = None
    """K, in place of the planned one; the oracle always keeps samples for one round."""
    most_uses: int | None = None
    """U: no sample trains in more than U rounds, whatever prices do. Tide replaces or deletes its
    samples in time; a policy with a larger K is refused. None for no cap."""
    hard_capacity: bool = False
    """No client ever stores more than B_m. If False, the policy decides: the paper's policies limit
    only the average; Tide and the costless oracle never store more."""
    spend_ahead: float | None = None
    """s, how many rounds' budget the run may spend in advance: by the end of every round t it has
    spent at most C·(t + s). None for no limit: the paper limits only the average."""
    least_share: float = LEAST_SHARE
    """If clients have their own prices: the part of its share of the budget, by memory, that each
    client gets whatever its price. Only Tide uses it; the other policies split orders by memory."""
    endless: bool = False
    """Plan for a run without a last round; Tide only."""

    @property
    def limits_spending(self) -> bool:
        """Whether there is a limit on how far a run may spend ahead of its budget."""
        return self.spend_ahead is not None

    def __post_init__(self) -> None:
        if self.most_uses is not None:
            check_whole_number("most_uses", self.most_uses)
        ahead = self.spend_ahead
        if ahead is not None:
            check_number(
                "spend_ahead",
                ahead,
                f"0 or more and at most {MOST_ROUNDS} rounds' budget",
                lambda ahead: 0 <= ahead <= MOST_ROUNDS,
                "None is for no limit",
            )
        check_number("least_share", self.least_share, "from 0 to 1", lambda part: 0 <= part <= 1)

    def check_uses(self, name: str, policy: JointPolicy[Any], num_rounds: int) -> None:
        """Refuse a policy that lets a sample train in more than ``most_uses`` rounds."""
        if self.most_uses is None:
            return
        uses = policy.most_uses(num_rounds)
        if uses > self.most_uses:
            raise ExceedsCap(
                f"{name} lets a sample train in up to {uses} rounds, but most_uses is "
                f"{self.most_uses}; set retention_horizon to {self.most_uses} as well if the "
                "policy has one, or use tide"
            )


DEFAULT_OPTIONS = ControlOptions()
