"""The answer of a plan: which policy to use, what it gains, and what more would add."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from tidegate.policies import POLICIES
from tidegate.problem import Problem
from tidegate.report.tables import ORACLE
from tidegate.simulation.rounds import Run
from tidegate.simulation.summary import Estimate, PolicySummary, estimate

CONSTANT = "constant_admission"
PREFILLED = "hybrid"
"""Half of its memory is filled before round 1, and nobody pays for that."""
A_LEAD = 0.01
"""Part of another policy's gain; policies that are nearer are alike."""
ROUNDING = 0.01
"""Part of the budget, or of the slots, by which a policy that is recommended may exceed them."""


@dataclass(frozen=True)
class Broken:
    """A policy that gains more, and the limit that it breaks."""

    policy: str
    what: Literal["prefilled", "peak", "overflow", "spent"]
    """Memory that nobody paid for, samples beyond all slots or a client's own, money a round."""
    amount: float


@dataclass(frozen=True)
class Answer:
    """Which policy to use, and what it gives."""

    policy: str
    effective_per_round: float
    interval: tuple[float, float] | None
    """Of the effective samples; None for a single run."""
    times_constant_admission: float | None
    """None if it was not simulated, or is the answer itself."""
    alike: tuple[str, ...]
    """Less simple policies that gain no more than 1 % more or less, on average."""
    within_chance: tuple[str, ...]
    """Policies whose gain is lower by more than 1 % on average, but perhaps only by chance; empty
    for a single run, which has no interval."""
    beyond: tuple[Broken, ...]
    price_paid: float | None
    """For a sample, on average."""
    under_way: float
    """Samples of a run that are paid for and have not arrived when it ends."""
    spent_in_vain: float
    """Money of a run for these."""
    spent_per_round: float
    most_in_training: int
    """Samples, in any round of any run."""
    empty_rounds: float
    """Rounds of a run in which no client holds a sample."""
    more_budget: float | None
    """Effective samples a round that a tenth more money adds, on the same prices; None if a cap on
    uses then rules the policy out."""
    more_budget_interval: tuple[float, float] | None
    more_memory: float | None
    """The same for a tenth more slots; below 0 if the first fill costs more than it gains."""
    more_memory_interval: tuple[float, float] | None
    more_training: float | None
    """The same for a tenth more samples to train on in a round; None if clients train on all."""
    more_training_interval: tuple[float, float] | None

    @property
    def effective(self) -> Estimate:
        """The effective samples a round, with the half of their interval."""
        low, high = self.interval or (math.nan, math.nan)
        return Estimate(self.effective_per_round, (high - low) / 2)


def answer(
    problem: Problem,
    summaries: Sequence[PolicySummary],
    runs: Mapping[str, Sequence[Run]],
    run_more: Callable[[str], Mapping[str, Sequence[Run]]],
) -> Answer | None:
    """Return the policy to use among those that keep to the budget and to the memory.

    That is the one with the most effective samples, or the simplest of those that gain as many but
    for 1 %.

    Args:
        problem: the problem.
        summaries: of all policies that were simulated, the simplest first.
        runs: the runs behind the summaries, by policy, on the same seeds.
        run_more: runs a policy with a tenth more of one thing, by its name, on the same seeds.

    Returns:
        None if no policy keeps to both.
    """
    tried = {one.policy: one for one in summaries if one.policy != ORACLE}
    broken = {name: _broken(one, runs[name], problem) for name, one in tried.items()}
    gains = {name: one.effective_per_round.mean for name, one in tried.items()}
    kept = [name for name in POLICIES if name in tried and not broken[name]]
    if not kept:
        return None
    most = max(gains[name] for name in kept)
    best, *alike = [name for name in kept if gains[name] >= (1 - A_LEAD) * most]
    chosen = tried[best]
    behind = [name for name in kept if gains[name] < (1 - A_LEAD) * most]
    constant = gains.get(CONSTANT) if best != CONSTANT else None
    more = {what: _lead(group, runs[best]) for what, group in run_more(best).items()}
    late = sum(run.columns["under_way"][-1] for run in runs[best]) / len(runs[best])
    bought = chosen.distinct_per_round.mean + late / problem.num_rounds
    return Answer(
        policy=best,
        effective_per_round=gains[best],
        interval=chosen.effective_per_round.interval,
        times_constant_admission=gains[best] / constant if constant else None,
        alike=tuple(alike),
        within_chance=tuple(name for name in behind if _may_be_chance(runs[best], runs[name])),
        beyond=tuple(
            wrong
            for name, wrong in broken.items()
            if wrong and gains[name] > (1 + A_LEAD) * gains[best]
        ),
        price_paid=chosen.spent_per_round.mean / bought if bought else None,
        under_way=late,
        spent_in_vain=chosen.spent_in_vain.mean,
        spent_per_round=chosen.spent_per_round.mean,
        most_in_training=_peak(runs[best]),
        empty_rounds=_empty_rounds(runs[best]),
        more_budget=more["budget"].mean if "budget" in more else None,
        more_budget_interval=more["budget"].interval if "budget" in more else None,
        more_memory=more["memory"].mean if "memory" in more else None,
        more_memory_interval=more["memory"].interval if "memory" in more else None,
        more_training=more["training"].mean if "training" in more else None,
        more_training_interval=more["training"].interval if "training" in more else None,
    )


def _broken(summary: PolicySummary, runs: Sequence[Run], problem: Problem) -> Broken | None:
    """Return which limit a policy breaks by more than rounding or chance."""
    slots, budget = problem.total_capacity, problem.budget
    if summary.policy == PREFILLED:
        return Broken(summary.policy, "prefilled", 0.0)
    over = int(max(run.columns["overflow"].max() for run in runs))
    if over > ROUNDING * slots:
        peak = _peak(runs)
        if peak > slots:
            return Broken(summary.policy, "peak", peak)
        return Broken(summary.policy, "overflow", over)
    spent = summary.spent_per_round
    least = spent.interval[0] if spent.interval else spent.mean
    if least > (1 + ROUNDING) * budget:
        return Broken(summary.policy, "spent", spent.mean)
    return None


def _empty_rounds(runs: Sequence[Run]) -> float:
    return sum(int((run.columns["training_size"] == 0).sum()) for run in runs) / len(runs)


def _peak(runs: Sequence[Run]) -> int:
    return int(max(run.columns["training_size"].max() for run in runs))


def _may_be_chance(best: Sequence[Run], other: Sequence[Run]) -> bool:
    """Return whether a policy's lead on the same prices has an interval that holds 0."""
    lead = _lead(best, other)
    return lead.interval is not None and lead.interval[0] <= 0


def _lead(runs: Sequence[Run], other: Sequence[Run]) -> Estimate:
    """Return the effective samples a round that runs gain more than others on the same prices."""
    mine, its = (
        [run.columns["effective_samples"][-1] / run.problem.num_rounds for run in group]
        for group in (runs, other)
    )
    return estimate([one - two for one, two in zip(mine, its, strict=True)])
