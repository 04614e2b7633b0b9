"""What ``AdmissionControl`` was given, checked, as the terms of a run."""

import math
from collections.abc import Mapping
from dataclasses import asdict, replace
from functools import partial

from flwr.serverapp.strategy import Result, Strategy

from tidegate.errors import ConfigurationError
from tidegate.flower.wrapped_strategies import reached
from tidegate.policies import ControlOptions, PolicyMaker, identity
from tidegate.policies.presets import find_policy
from tidegate.prices import Prices, price_feed
from tidegate.problem import LearningConstants
from tidegate.server.fleet import Terms
from tidegate.server.shards import Purse


def control_terms(  # noqa: PLR0913 - as many as a run has terms
    strategy: Strategy,
    policy: str | PolicyMaker,
    *,
    budget: float,
    prices: Prices,
    purse: Purse | None,
    options: ControlOptions,
    spend_ahead: float | None,
    headroom: float,
    taking_part: float | None,
    learning: LearningConstants | None,
    largest_buffer: int | None,
    sums_only: bool,
    is_saved: bool,
) -> partial[Terms]:
    """The terms of a run, all but its number of rounds."""
    if not isinstance(strategy, Strategy):
        raise ConfigurationError(
            "AdmissionControl wraps a strategy of flwr.serverapp.strategy, got "
            f"{type(strategy).__module__}.{type(strategy).__qualname__}"
        )
    if not 0 < budget < math.inf:
        raise ConfigurationError(f"budget must be a number above 0, got {budget}")
    if not headroom >= 1:
        raise ConfigurationError(f"headroom must be 1 or more, got {headroom}")
    if taking_part is not None and not 0 < taking_part <= 1:
        raise ConfigurationError(f"taking_part must be above 0 and at most 1, got {taking_part}")
    maker = find_policy(policy) if isinstance(policy, str) else policy
    if options.endless and isinstance(policy, str) and policy != "tide":
        raise ConfigurationError(
            f"{policy} needs the number of rounds; of the policies, tide alone "
            "plans for no last one"
        )
    name = identity(maker)
    if is_saved and "<lambda>" in name:
        raise ConfigurationError(
            "a run that is saved knows its policy by name, and a lambda has none; give a function"
        )
    if options.spend_ahead is not None:
        raise ConfigurationError(
            f"the options say spend_ahead = {options.spend_ahead}; on a fleet AdmissionControl "
            f"takes it: AdmissionControl(..., spend_ahead={options.spend_ahead})"
        )
    replace(options, spend_ahead=spend_ahead)  # refuses what cannot be, or contradicts them
    options = replace(options, hard_capacity=headroom == 1)
    told = asdict(options)
    del told["spend_ahead"]  # the run's, beside its options
    share, least = reached(strategy)
    return partial(
        Terms,
        policy=lambda problem: maker(problem, options),
        policy_name=name,
        options=told,
        spend_ahead=spend_ahead,
        budget=budget,
        purse=purse,
        prices=price_feed(prices),
        headroom=headroom,
        taking_part=share if taking_part is None else taking_part,
        least_taking_part=least if taking_part is None else 1,
        endless=options.endless,
        learning=LearningConstants() if learning is None else learning,
        largest_buffer=largest_buffer,
        sums_only=sums_only,
    )


def numbered_on(result: Result, rounds_before: int) -> Result:
    """The result of a resumed run, whose rounds go on from those before."""
    for name in (
        "train_metrics_clientapp",
        "evaluate_metrics_clientapp",
        "evaluate_metrics_serverapp",
    ):
        metrics = getattr(result, name)
        setattr(result, name, {now + rounds_before: one for now, one in metrics.items()})
    return result


def checked_importance(importance: Mapping[str, float] | None) -> Mapping[str, float] | None:
    """Weights of clients, if each can be one."""
    for client, weight in (importance or {}).items():
        if not 0 <= weight < math.inf:
            raise ConfigurationError(
                f"the importance of {client!r} must be 0 or more, got {weight}"
            )
    return importance
