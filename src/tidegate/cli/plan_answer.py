"""The answer of ``tidegate plan``: which policy to use, what it gains, and what more would add."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from tidegate.cli.setting import Setting
from tidegate.errors import ConfigurationError
from tidegate.prices import RecordedPrices
from tidegate.problem import Problem
from tidegate.report.tables import WHOLE
from tidegate.simulation.rounds import Run
from tidegate.simulation.summary import PolicySummary, estimate
from tidegate.theory.distribution import price_distribution
from tidegate.theory.optimum import optimum

CONSTANT = "constant_admission"
FREE = "costless_oracle"
"""It ignores prices, so no budget pays for it."""
NEAR_THE_LIMIT = "tide"
"""It gains about the limit, so more budget or memory adds about what it adds to the limit."""
A_LEAD = 0.01
"""Part of another policy's gain; a smaller lead is not mentioned."""
FORGIVEN = 1.05
"""Factor of the budget: a policy that spends more on average is not recommended."""
MORE = 1.1
"""Times the budget or the memory."""


@dataclass(frozen=True)
class Answer:
    """Which policy to use, and what it gives."""

    policy: str
    effective_per_round: float
    times_constant_admission: float | None
    """None if it was not simulated, or is the answer itself."""
    rivals: tuple[str, ...]
    """Policies that it does not lead by 1 % on the same prices with confidence."""
    price_paid: float
    """For a sample, on average."""
    spent_per_round: float
    most_in_training: int
    """Samples, in any round of any run."""
    more_budget: float | None
    """Effective samples a round that a tenth more money could add; None if the limit is unknown."""
    more_memory: float | None
    """The same for a tenth more slots."""


def answer(
    setting: Setting,
    summaries: Sequence[PolicySummary],
    runs: Mapping[str, Sequence[Run]],
) -> Answer | None:
    """Return the policy with the most effective samples among those that keep to the budget.

    If none does, choose among all.

    Args:
        setting: the setting.
        summaries: of all policies that were simulated.
        runs: the runs behind the summaries, by policy, on the same seeds.
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
            one
            for one in tried
            if one != best.policy and not _leads(runs[best.policy], runs[one], setting)
        ),
        price_paid=best.spent_per_round.mean / distinct if distinct else 0.0,
        spent_per_round=best.spent_per_round.mean,
        most_in_training=int(max(run.columns["training_size"].max() for run in runs[best.policy])),
        more_budget=budget,
        more_memory=memory,
    )


def in_words(found: Answer, setting: Setting, currency: str) -> list[str]:
    """Return the answer as sentences.

    Args:
        found: the result of ``answer``.
        setting: the setting.
        currency: of the budget, such as EUR; empty for none.
    """
    unit = f" {currency}" if currency else ""
    times = ""
    if CONSTANT not in found.rivals and found.times_constant_admission is not None:
        times = f" ({found.times_constant_admission:.3g} times those of constant admission)"
    over = found.spent_per_round / setting.problem.budget - 1
    above = f" ({over:.0%} above the budget)" if over > A_LEAD else ""
    lead = f"Use {found.policy}"
    if found.rivals:
        lead += f" (not clearly 1 % ahead of {', '.join(found.rivals)})"
    told = [
        (
            f"{lead}: about {_about(found.effective_per_round)} effective samples a round{times} "
            f"for {_about(found.spent_per_round)}{unit}{above}, training on "
            f"{found.most_in_training:,} samples at most."
        ),
        (
            f"It pays {_about(found.price_paid)}{unit} for a sample on average, where the mean "
            f"price is {_about(setting.problem.average_price)}{unit}."
        ),
    ]
    if found.more_budget is not None and found.more_memory is not None:
        told.append(
            f"10 % more budget could add {_about(found.more_budget)} effective samples a round, "
            f"10 % more memory {_about(found.more_memory)}."
        )
    return told + delay_told(setting.problem)


def delay_told(problem: Problem) -> list[str]:
    """Return how many samples slots that wait for their purchases can gain, if all take part."""
    delays = problem.delays
    if delays.none or not problem.cohorts.everyone:
        return []
    mean = (delays.shortest + delays.longest) / 2
    slots = problem.slots_a_round
    told = (
        f"A slot waits {mean:,.4g} rounds for a purchase, on average, so {slots:,.4g} slots gain "
        f"at most {slots / (1 + mean):,.4g} samples a round under a hard capacity, whatever the "
        "budget."
    )
    return [told]


def _about(value: float) -> str:
    """Format a number with three digits, or as a whole number."""
    return f"{value:,.0f}" if abs(value) >= WHOLE else f"{value:,.3g}"


def _leads(best: Sequence[Run], other: Sequence[Run], setting: Setting) -> bool:
    """Return whether a policy clearly gains more than another on the same prices.

    A single run says nothing about other price paths; a trace has only one.
    """
    mine, its = ([run.columns["effective_samples"][-1] for run in runs] for runs in (best, other))
    lead = estimate([one - two for one, two in zip(mine, its, strict=True)])
    is_certain = isinstance(setting.price_law, RecordedPrices)
    low = lead.interval[0] if lead.interval else lead.mean if is_certain else -math.inf
    return low > A_LEAD * float(np.mean(its))


def _with_more(setting: Setting) -> tuple[float | None, float | None]:
    """Return what a tenth more of either adds to the limit."""
    problem = setting.problem
    if not problem.delays.none:
        return None, None
    try:
        prices = price_distribution(setting.price_law, setting.rounds)
        limits = [
            optimum(prices, budget, slots, setting.most_uses).effective_per_round
            for budget, slots in (
                (problem.budget, problem.slots_a_round),
                (MORE * problem.budget, problem.slots_a_round),
                (problem.budget, MORE * problem.slots_a_round),
            )
        ]
    except ConfigurationError:
        return None, None
    return limits[1] - limits[0], limits[2] - limits[0]
