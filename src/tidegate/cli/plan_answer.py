"""What a planner asked for: which policy to use, what it gains, and what more would give."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from tidegate.cli.setting import Setting
from tidegate.errors import ConfigurationError
from tidegate.problem import Problem
from tidegate.simulation.rounds import Run
from tidegate.simulation.summary import PolicySummary, estimate
from tidegate.theory.distribution import price_distribution
from tidegate.theory.optimum import optimum
from tidegate.wire import LARGEST_CAPACITY

CONSTANT = "constant_admission"
FREE = "costless_oracle"
"""It does not look at prices, and nobody could pay for it."""
NEAR_THE_LIMIT = "tide"
"""It gains about what is possible, and so about what more of it would be possible with more."""
A_LEAD = 0.01
"""Of what another policy gains; less is not worth a word."""
FORGIVEN = 1.05
"""Times the budget: a policy that spends more on average is not advised."""
MORE = 1.1
"""Times the budget or the memory."""


@dataclass(frozen=True)
class Answer:
    """Which policy to use, and what it gives."""

    policy: str
    effective_per_round: float
    times_constant_admission: float | None
    """None where that was not tried, or is the answer itself."""
    rivals: tuple[str, ...]
    """Policies that it does not lead on the same prices, beyond chance."""
    price_paid: float
    """For a sample, on average."""
    spent_per_round: float
    most_stored: float
    more_budget: float | None
    """Effective samples a round that a tenth more money could add; None if the limit is unknown."""
    more_memory: float | None
    """The same for a tenth more slots."""


def answer(
    setting: Setting,
    summaries: Sequence[PolicySummary],
    runs: Mapping[str, Sequence[Run]],
) -> Answer | None:
    """The policy with the most effective samples of those that keep to the budget, if any does.

    Args:
        setting: that it is for.
        summaries: of all policies that were tried.
        runs: that these sum up, by policy, of the same seeds.
    """
    most = FORGIVEN * setting.problem.budget
    tried = {one.policy: one for one in summaries if one.spent_per_round.mean <= most}
    tried.pop(FREE, None)
    if not tried:
        return None
    best = max(tried.values(), key=lambda one: one.effective_per_round.mean)
    constant = tried.get(CONSTANT)
    gained = None
    if constant is not None and constant is not best and constant.effective_per_round.mean:
        gained = best.effective_per_round.mean / constant.effective_per_round.mean
    budget, memory = _with_more(setting) if best.policy == NEAR_THE_LIMIT else (None, None)
    distinct = best.distinct_per_round.mean
    return Answer(
        policy=best.policy,
        effective_per_round=best.effective_per_round.mean,
        times_constant_admission=gained,
        rivals=tuple(
            one for one in tried if one != best.policy and not _leads(runs[best.policy], runs[one])
        ),
        price_paid=best.spent_per_round.mean / distinct if distinct else 0.0,
        spent_per_round=best.spent_per_round.mean,
        most_stored=best.peak_occupancy.mean,
        more_budget=budget,
        more_memory=memory,
    )


def in_words(found: Answer, setting: Setting, currency: str) -> list[str]:
    """The answer as sentences.

    Args:
        found: what ``answer`` gave.
        setting: that it is for.
        currency: of the budget, such as EUR; empty for none.
    """
    unit = f" {currency}" if currency else ""
    times = ""
    if CONSTANT not in found.rivals and found.times_constant_admission is not None:
        times = f" ({found.times_constant_admission:.3g} times those of constant admission)"
    lead = f"Use {found.policy}"
    if found.rivals:
        lead += f" (no clear lead over {', '.join(found.rivals)}; more --seeds may tell)"
    told = [
        (
            f"{lead}: about {found.effective_per_round:,.3g} effective samples a round{times} for "
            f"{found.spent_per_round:,.4g}{unit}, with at most {found.most_stored:,.0f} stored."
        ),
        (
            f"It pays {found.price_paid:,.3g}{unit} for a sample on average, where the mean price "
            f"is {setting.problem.average_price:,.4g}{unit}."
        ),
    ]
    if found.more_budget is not None and found.more_memory is not None:
        told.append(
            f"10 % more budget could add {found.more_budget:,.2g} effective samples a round, "
            f"10 % more memory {found.more_memory:,.2g}."
        )
    return told + delay_told(setting.problem)


def delay_told(problem: Problem) -> list[str]:
    """How many samples slots can gain that wait for their purchases, if they do."""
    delays = problem.delays
    if delays.none:
        return []
    mean = (delays.shortest + delays.longest) / 2
    slots = problem.slots_a_round
    told = (
        f"A slot waits {mean:,.4g} rounds for a purchase, on average, so {slots:,.4g} slots gain "
        f"at most {slots / (1 + mean):,.4g} samples a round under a hard capacity, whatever the "
        "budget."
    )
    return [told]


def _leads(best: Sequence[Run], other: Sequence[Run]) -> bool:
    """Whether a policy gains more than another on the same prices, beyond chance."""
    mine, its = ([run.columns["effective_samples"][-1] for run in runs] for runs in (best, other))
    lead = estimate([one - two for one, two in zip(mine, its, strict=True)])
    low = lead.interval[0] if lead.interval else lead.mean
    return low > A_LEAD * float(np.mean(its))


def _with_more(setting: Setting) -> tuple[float | None, float | None]:
    """What a tenth more of either adds to the limit of what is possible."""
    problem = setting.problem
    if not problem.delays.none:
        return None, None
    larger = np.minimum(np.ceil(MORE * problem.capacities), LARGEST_CAPACITY).astype(np.int64)
    more = [
        replace(problem, budget=MORE * problem.budget),
        replace(problem, buffer_capacities=larger),
    ]
    try:
        prices = price_distribution(setting.price_law, setting.rounds)
        limits = [
            optimum(prices, one.budget, one.slots_a_round, setting.most_uses).effective_per_round
            for one in (problem, *more)
        ]
    except ConfigurationError:
        return None, None
    return limits[1] - limits[0], limits[2] - limits[0]
