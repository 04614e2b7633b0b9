"""Check the arguments of ``AdmissionControl`` and turn them into the terms of a run."""

import math
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any

from flwr.serverapp.strategy import Result, Strategy

from tidegate._internal.arguments import check_function, check_kind, check_number
from tidegate.errors import ConfigurationError
from tidegate.flower.control_settings import ClientTrust, Planning
from tidegate.flower.wrapped_strategies import reached
from tidegate.policies import (
    POLICIES,
    ControlOptions,
    JointPolicy,
    PolicyMaker,
    identity,
)
from tidegate.policies.presets import find_policy
from tidegate.prices import Prices, price_feed
from tidegate.problem import Problem
from tidegate.server.fleet import Terms
from tidegate.server.shards import Membership, Purse, Shard

NAMES = ", ".join(POLICIES)


def control_terms(  # noqa: PLR0913 - as many as a run has terms
    strategy: Strategy,
    policy: str | PolicyMaker,
    *,
    budget: float,
    prices: Prices,
    spend_ahead: float | None,
    planning: Planning,
    trust: ClientTrust,
    purse: Purse | None,
    is_saved: bool,
) -> partial[Terms]:
    """Return the terms of a run, all but its number of rounds."""
    if not isinstance(strategy, Strategy):
        raise ConfigurationError(
            "AdmissionControl wraps a strategy of flwr.serverapp.strategy, got "
            f"{type(strategy).__module__}.{type(strategy).__qualname__}"
        )
    check_budget(budget)
    if not isinstance(policy, str):
        check_function("policy", policy, ("a problem", "options"), f"or a name: {NAMES}")
    maker = find_policy(policy) if isinstance(policy, str) else policy
    if planning.endless and isinstance(policy, str) and policy != "tide":
        raise ConfigurationError(
            f"{policy} needs the number of rounds; only tide plans without a last one"
        )
    name = identity(maker)
    if is_saved and "<lambda>" in name:
        raise ConfigurationError(
            "a saved run stores its policy by name, and a lambda has none; use a named function"
        )
    options = planning.options
    replace(options, spend_ahead=spend_ahead)  # refuses invalid ones
    told = asdict(options)
    del told["spend_ahead"]  # the run's, beside its options
    share, least = planning.fraction_train, 1
    if share is None:
        share, least = reached(strategy)
    return partial(
        Terms,
        policy=partial(_made, maker, options, name),
        policy_name=name,
        options=told,
        spend_ahead=None if spend_ahead is None else float(spend_ahead),
        budget=float(budget),  # whatever number type it was
        purse=purse,
        prices=price_feed(prices),
        headroom=planning.headroom,
        fraction_train=share,
        min_train_nodes=least,
        endless=planning.endless,
        learning=planning.learning,
        largest_buffer=trust.largest_buffer,
        sums_only=trust.sums_only,
    )


def check_budget(budget: float) -> None:
    """Refuse a value that cannot be a budget."""
    check_number("budget", budget, "a number above 0", lambda given: 0 < given < math.inf)


def membership_of(
    shard: Shard | None, run: str | None, budget: float, folder: Path | None
) -> tuple[Membership | None, float]:
    """Return this server's membership in a sharded run, and about what it will be granted a round.

    A server on its own has no membership, and the whole budget.
    """
    if shard is None:
        return None, budget
    check_budget(budget)
    check_kind("shard", shard, Shard, "such as Shard('east', slots=..., meeting=...)")
    if run is None:
        raise ConfigurationError(
            f"shard {shard.name!r} has no run: shards find each other by the run's name; give all "
            "of them the same, such as run='fleet'"
        )
    return Membership(shard, run, float(budget), folder), shard.part(float(budget))


def _made(
    maker: PolicyMaker, options: ControlOptions, name: str, problem: Problem
) -> JointPolicy[Any]:
    """Make the policy for a fleet, and check that it keeps to a cap on uses."""
    policy = maker(problem, options)
    options.check_uses(name, policy, problem.num_rounds)
    return policy


def numbered_on(result: Result, rounds_before: int) -> Result:
    """Renumber the result of a resumed run: its rounds continue from those before."""
    for name in (
        "train_metrics_clientapp",
        "evaluate_metrics_clientapp",
        "evaluate_metrics_serverapp",
    ):
        metrics = getattr(result, name)
        setattr(result, name, {now + rounds_before: one for now, one in metrics.items()})
    return result
