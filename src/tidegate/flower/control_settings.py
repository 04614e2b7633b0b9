"""What few apps tell ``AdmissionControl``, in three groups: plan, trust and deployment."""

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

    What only one policy knows is an argument of that policy:
    ``functools.partial(acdpp, penalty_exponent=0.3)``.
    """

    retention_horizon: int | None = None
    """K, rounds that a sample stays, if not the planned number; Tide has none."""
    most_uses: int | None = None
    """U: no sample trains in more than so many rounds, whatever prices do; none for no cap. Each
    client enforces it. Tide plans with it; a policy with a larger K is refused."""
    least_share: float = LEAST_SHARE
    """Where clients have prices of their own: of the money that a client would get if all were
    treated alike, the part that is spent on it in any case, so that nobody is shut out by its
    price. Tide alone needs it."""
    headroom: float = 1.0
    """1 plans with all the memory that clients have, as a hard limit. More leaves slots for peaks,
    as the paper's policies need whose limit is an average: with 4, a client with 40 slots holds 10
    samples on average. No client ever stores more than it has slots."""
    fraction_train: float | None = None
    """The part of the nodes that trains in a round. By default that of the strategy, with its
    ``min_train_nodes``; 1 where the strategy has none, since it may then train all. Give it where
    a strategy of your own trains a part of the nodes and does not say so."""
    endless: bool = False
    """Plan for no last round, so that a saved run can go on for more rounds; Tide alone can."""
    learning: LearningConstants = field(default_factory=LearningConstants)
    """Constants of the learning-error bound."""

    def __post_init__(self) -> None:
        check_number("headroom", self.headroom, "1 or more", lambda given: 1 <= given < math.inf)
        if self.fraction_train is not None:
            limit = "above 0 and at most 1"
            check_number("fraction_train", self.fraction_train, limit, lambda part: 0 < part <= 1)
        check_number("least_share", self.least_share, "from 0 to 1", lambda given: 0 <= given <= 1)
        if self.retention_horizon is not None:
            check_whole_number("retention_horizon", self.retention_horizon)
        if self.most_uses is not None:
            check_whole_number("most_uses", self.most_uses)
        check_truth("endless", self.endless)
        example = "such as LearningConstants(learning_rate=0.1)"
        check_kind("learning", self.learning, LearningConstants, example)

    @property
    def options(self) -> ControlOptions:
        """What the policy is told. The run itself limits spending, whatever the policy."""
        return ControlOptions(
            retention_horizon=self.retention_horizon,
            most_uses=self.most_uses,
            least_share=self.least_share,
            hard_capacity=self.headroom == 1,
            endless=self.endless,
        )


@dataclass(frozen=True, kw_only=True)
class ClientTrust:
    """How far clients are believed, and how much the model of each counts."""

    largest_buffer: int | None = None
    """The capacity above which no client is believed. Orders and weights go by capacity, which each
    client states itself: set this where clients might lie."""
    sums_only: bool = False
    """Let no client's order depend on what any single client has reported, only on sums over the
    fleet. A client without room then takes in less than it is asked."""
    importance: Mapping[str, float] | None = None
    """α_m by client name; 1 for all others. A client's model weighs α_m·n_m."""

    def __post_init__(self) -> None:
        if self.largest_buffer is not None:
            remedy = "leave it out to believe every client"
            check_whole_number("largest_buffer", self.largest_buffer, remedy=remedy)
        check_truth("sums_only", self.sums_only)
        if self.importance is not None:
            example = "such as {'site-0': 2.0}, by client name"
            check_kind("importance", self.importance, Mapping, example)
        for client, weight in (self.importance or {}).items():
            name = f"the importance of {client!r}"
            check_number(name, weight, "0 or more", lambda given: 0 <= given < math.inf)


@dataclass(frozen=True, kw_only=True)
class Deployment:
    """How long messages to clients live."""

    time_to_live: float | None = None
    """Seconds until an unanswered message is dropped; the ``timeout`` of ``start`` by default."""

    def __post_init__(self) -> None:
        if self.time_to_live is not None:
            check_number(
                "time_to_live",
                self.time_to_live,
                "a positive and finite number of seconds",
                lambda given: 0 < given < math.inf,
                "leave it out to wait as long as the timeout of start()",
            )


def check_groups(planning: object, trust: object, deployment: object) -> None:
    """Refuse what is given in place of a group, such as a dictionary of its settings."""
    check_kind("planning", planning, Planning, "such as Planning(headroom=4)")
    check_kind("trust", trust, ClientTrust, "such as ClientTrust(largest_buffer=1000)")
    check_kind("deployment", deployment, Deployment, "such as Deployment(time_to_live=600)")


DEFAULT_PLANNING = Planning()
DEFAULT_TRUST = ClientTrust()
DEFAULT_DEPLOYMENT = Deployment()
