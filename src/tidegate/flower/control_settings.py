"""Settings of ``AdmissionControl`` that few apps need, in three groups: plan, trust, deployment."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from tidegate._internal.arguments import (
    check_kind,
    check_number,
    check_truth,
    check_whole_number,
)
from tidegate.admission.floor import LEAST_SHARE
from tidegate.policies import ControlOptions
from tidegate.problem import LearningConstants


@dataclass(frozen=True, kw_only=True)
class Planning:
    """What the policy plans with, besides budget and prices.

    Settings of a single policy are arguments of that policy: ``functools.partial(acdpp,
    penalty_exponent=0.3)``.
    """

    retention_horizon: int | None = None
    """K, the rounds that a sample stays, instead of the planned number; Tide has none."""
    most_uses: int | None = None
    """U, the most rounds in which a sample trains, whatever prices do; None for no cap. Each client
    enforces it. Tide plans with it; a policy with a larger K is refused."""
    least_share: float = LEAST_SHARE
    """The part of an equal share of the money that the policy spends on every client, however high
    its price, so that no client is shut out. Only Tide needs it, if clients have prices of their
    own."""
    headroom: float = 1.0
    """1 plans with all the memory that clients have, as a hard limit. More leaves slots for peaks,
    as the paper's policies need whose limit is an average: with 4, a client with 40 slots holds 10
    samples on average. No client ever stores more than it has slots."""
    fraction_train: float | None = None
    """The part of the nodes that trains in a round. By default that of the strategy, with its
    ``min_train_nodes``, or 1 if the strategy has none. Set it if your own strategy trains a part of
    the nodes but has no ``fraction_train``."""
    endless: bool = False
    """Plan without a last round, so that a saved run can continue for more rounds; only Tide
    can."""
    learning: LearningConstants = field(default_factory=LearningConstants)
    """Constants of the learning-error bound."""

    def __post_init__(self) -> None:
        check_number("headroom", self.headroom, "1 or more", lambda times: 1 <= times < math.inf)
        if self.fraction_train is not None:
            limit = "above 0 and at most 1"
            check_number("fraction_train", self.fraction_train, limit, lambda part: 0 < part <= 1)
        check_number("least_share", self.least_share, "from 0 to 1", lambda part: 0 <= part <= 1)
        if self.retention_horizon is not None:
            check_whole_number("retention_horizon", self.retention_horizon)
        if self.most_uses is not None:
            check_whole_number("most_uses", self.most_uses)
        check_truth("endless", self.endless)
        example = "such as LearningConstants(learning_rate=0.1)"
        check_kind("learning", self.learning, LearningConstants, example)

    @property
    def options(self) -> ControlOptions:
        """Return the policy's options. The run itself limits spending, whatever the policy."""
        return ControlOptions(
            retention_horizon=self.retention_horizon,
            most_uses=self.most_uses,
            least_share=self.least_share,
            hard_capacity=self.headroom == 1,
            endless=self.endless,
        )


@dataclass(frozen=True, kw_only=True)
class ClientTrust:
    """How far the server trusts clients, and how much the model of each counts."""

    largest_buffer: int | None = None
    """The largest capacity that the server accepts from a client. Orders and weights go by
    capacity, which each client states itself: set this if clients might lie."""
    sums_only: bool = False
    """Let no client's order depend on the reports of a single client, only on sums over the fleet.
    A client without room then admits fewer samples than it is asked for."""
    importance: Mapping[str, float] | None = None
    """α_m by client name; 1 for all others. A client's model weighs α_m·n_m."""

    def __post_init__(self) -> None:
        if self.largest_buffer is not None:
            remedy = "leave it out to trust every client"
            check_whole_number("largest_buffer", self.largest_buffer, remedy=remedy)
        check_truth("sums_only", self.sums_only)
        if self.importance is not None:
            example = "such as {'site-0': 2.0}, by client name"
            check_kind("importance", self.importance, Mapping, example)
        for client, weight in (self.importance or {}).items():
            name = f"the importance of {client!r}"
            check_number(name, weight, "0 or more", lambda factor: 0 <= factor < math.inf)


@dataclass(frozen=True, kw_only=True)
class Deployment:
    """How long messages to clients live, and how long a run goes on that learns nothing."""

    give_up_after: int | None = None
    """Consecutive rounds in which no client's model was used, after which the run fails with
    ``NothingLearnedError``; the same app with the same folder continues it. By default a run fails
    at its end, on Flower's engines, and only if it has used no model in any round."""
    time_to_live: float | None = None
    """Seconds until an unanswered message expires; by default the ``timeout`` of ``start``."""

    def __post_init__(self) -> None:
        if self.give_up_after is not None:
            remedy = "leave it out to go on to the last round"
            check_whole_number("give_up_after", self.give_up_after, remedy=remedy)
        if self.time_to_live is not None:
            check_number(
                "time_to_live",
                self.time_to_live,
                "a positive and finite number of seconds",
                lambda seconds: 0 < seconds < math.inf,
                "leave it out to wait as long as the timeout of start()",
            )


def check_groups(planning: object, trust: object, deployment: object) -> None:
    """Refuse anything else than a settings group, such as a dictionary of its settings."""
    check_kind("planning", planning, Planning, "such as Planning(headroom=4)")
    check_kind("trust", trust, ClientTrust, "such as ClientTrust(largest_buffer=1000)")
    check_kind("deployment", deployment, Deployment, "such as Deployment(time_to_live=600)")


DEFAULT_PLANNING = Planning()
PAPER_PLANNING = Planning(headroom=4)
"""With slots for the peaks of the paper's policies, whose memory is a limit on average only."""
DEFAULT_TRUST = ClientTrust()
DEFAULT_DEPLOYMENT = Deployment()
