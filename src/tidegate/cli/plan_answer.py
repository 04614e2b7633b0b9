"""The answer of ``tidegate plan``: which policy to use, what it gains, and what more would add."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tidegate.cli.setting import Setting
from tidegate.errors import ConfigurationError
from tidegate.policies import POLICIES
from tidegate.prices import RecordedPrices
from tidegate.problem import Problem
from tidegate.report.tables import WHOLE, show
from tidegate.simulation.rounds import Run
from tidegate.simulation.summary import Estimate, PolicySummary, estimate
from tidegate.theory.distribution import price_distribution
from tidegate.theory.optimum import optimum

CONSTANT = "constant_admission"
PREFILLED = "hybrid"
"""Half of its memory is filled before round 1, and nobody pays for that."""
FREE = "costless_oracle"
"""It ignores prices, so no budget pays for it."""
NEAR_THE_LIMIT = "tide"
"""It gains about the limit, so more budget or memory adds about what it adds to the limit."""
A_LEAD = 0.01
"""Part of another policy's gain; policies that are nearer are alike."""
ROUNDING = 0.01
"""Part of the budget, or of the slots, by which a policy that is recommended may exceed them."""
MORE = 1.1
"""Times the budget or the memory."""
NOTHING = 1e-6
"""A difference that is only rounding."""
MOST_SIZES = 6
"""Different sizes of clients that are listed one by one."""


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
    """Policies whose gain is lower by more than 1 % on average, but perhaps only by chance."""
    beyond: tuple[str, ...]
    """What is wrong with policies that gain more, a sentence each."""
    price_paid: float
    """For a sample, on average."""
    spent_per_round: float
    most_in_training: int
    """Samples, in any round of any run."""
    empty_rounds: float
    """Rounds of a run in which no client holds a sample."""
    more_budget: float | None
    """Effective samples a round that a tenth more money could add; None if the limit is unknown."""
    more_memory: float | None
    """The same for a tenth more slots."""


def answer(
    setting: Setting,
    summaries: Sequence[PolicySummary],
    runs: Mapping[str, Sequence[Run]],
) -> Answer | None:
    """Return the policy to use among those that keep to the budget and to the memory.

    That is the one with the most effective samples, or the simplest of those that gain as many but
    for 1 %.

    Args:
        setting: the setting.
        summaries: of all policies that were simulated, the simplest first.
        runs: the runs behind the summaries, by policy, on the same seeds.

    Returns:
        None if no policy keeps to both.
    """
    tried = {one.policy: one for one in summaries if one.policy != FREE}
    broken = {name: _broken(one, runs[name], setting) for name, one in tried.items()}
    gains = {name: one.effective_per_round.mean for name, one in tried.items()}
    kept = [name for name in POLICIES if name in tried and not broken[name]]
    if not kept:
        return None
    most = max(gains[name] for name in kept)
    best, *alike = [name for name in kept if gains[name] >= (1 - A_LEAD) * most]
    chosen = tried[best]
    behind = [name for name in kept if gains[name] < (1 - A_LEAD) * most]
    constant = gains.get(CONSTANT) if best != CONSTANT else None
    budget, memory = _with_more(setting) if best == NEAR_THE_LIMIT else (None, None)
    distinct = chosen.distinct_per_round.mean
    return Answer(
        policy=best,
        effective_per_round=gains[best],
        interval=chosen.effective_per_round.interval,
        times_constant_admission=gains[best] / constant if constant else None,
        alike=tuple(alike),
        within_chance=tuple(name for name in behind if not _leads(runs[best], runs[name])),
        beyond=tuple(
            f"{name} would gain more, but {wrong}."
            for name, wrong in broken.items()
            if wrong and gains[name] > (1 + A_LEAD) * gains[best]
        ),
        price_paid=chosen.spent_per_round.mean / distinct if distinct else 0.0,
        spent_per_round=chosen.spent_per_round.mean,
        most_in_training=_peak(runs[best]),
        empty_rounds=_empty_rounds(runs[best]),
        more_budget=budget,
        more_memory=memory,
    )


def _broken(summary: PolicySummary, runs: Sequence[Run], setting: Setting) -> str:
    """Return which limit a policy breaks by more than rounding or chance; empty if none."""
    slots, budget = setting.problem.total_capacity, setting.problem.budget
    if summary.policy == PREFILLED:
        return "fills half of its memory before round 1 without paying for it"
    over = int(max(run.columns["overflow"].max() for run in runs))
    if over > ROUNDING * slots:
        peak = _peak(runs)
        if peak > slots:
            return f"stores up to {peak:,} samples where {slots:,} fit"
        return f"stores up to {over:,} samples more than their clients have slots for"
    spent = summary.spent_per_round
    least = spent.interval[0] if spent.interval else spent.mean
    if least > (1 + ROUNDING) * budget:
        return f"spends {_about(spent.mean)} a round where the budget is {_about(budget)}"
    return ""


def _empty_rounds(runs: Sequence[Run]) -> float:
    return sum(int((run.columns["training_size"] == 0).sum()) for run in runs) / len(runs)


def _peak(runs: Sequence[Run]) -> int:
    return int(max(run.columns["training_size"].max() for run in runs))


def in_words(found: Answer | None, setting: Setting, currency: str) -> list[str]:
    """Return the answer as sentences.

    Args:
        found: the result of ``answer``.
        setting: the setting.
        currency: of the budget, such as EUR; empty for none.
    """
    if found is None:
        return ["None of these policies keeps to both the budget and the memory."]
    unit = f" {currency}" if currency else ""
    times = ""
    if CONSTANT not in found.within_chance and found.times_constant_admission is not None:
        times = f" ({found.times_constant_admission:.3g} times those of constant admission)"
    over = found.spent_per_round / setting.problem.budget - 1
    above = f" ({over:.0%} above the budget, perhaps by chance)" if over > ROUNDING else ""
    gained = _about(found.effective_per_round)
    if found.interval is not None:
        low, high = found.interval
        gained = show(Estimate(found.effective_per_round, (high - low) / 2))
    first = (
        f"Use {found.policy}: about {gained} effective samples a round{times} "
        f"for {_about(found.spent_per_round)}{unit}{above}, training on "
        f"{found.most_in_training:,} samples at most."
    )
    told = [first]
    if found.alike:
        are = "is" if len(found.alike) == 1 else "are"
        told.append(f"{_listed(found.alike)} {are} within 1 %, and {found.policy} is the simplest.")
    if found.within_chance and found.interval is not None:
        told.append(
            f"Its lead over {_listed(found.within_chance)} may be chance; more --seeds can tell."
        )
    told += found.beyond
    if isinstance(setting.price_law, RecordedPrices):
        told.append("This is from one path of prices: no interval; other days will differ.")
    elif found.interval is None:
        told.append("This is from one seed: no interval; more --seeds give one.")
    told.append(
        f"It pays {_about(found.price_paid)}{unit} for a sample on average, where the mean "
        f"price is {_about(setting.problem.average_price)}{unit}."
    )
    if found.empty_rounds >= 1:
        told.append(
            f"In {_about(found.empty_rounds)} of {setting.rounds:,} rounds no client holds a "
            "sample to train on."
        )
    if found.more_budget is not None and found.more_memory is not None:
        told.append(
            f"In the long run, 10 % more budget could add {_about(found.more_budget)} effective "
            f"samples a round, 10 % more memory {_about(found.more_memory)}."
        )
    return told + delay_told(setting.problem)


def given_in_words(setting: Setting, currency: str) -> str:
    """Return how many clients of which size there are, and the money of the whole run.

    Args:
        setting: the setting.
        currency: of the budget, such as EUR; empty for none.
    """
    problem, unit = setting.problem, f" {currency}" if currency else ""
    counts: Counter[int] = Counter()
    for size, count in setting.capacities:
        counts[size] += count
    groups = sorted(counts.items(), reverse=True)
    largest = f"{groups[0][0]:,} slot" + ("" if groups[0][0] == 1 else "s")
    clients = "1 client" if groups[0][1] == 1 else f"{groups[0][1]:,} clients"
    slots = f"{clients} with {largest} each"
    if len(groups) > MOST_SIZES:
        slots = f"Clients with {groups[-1][0]:,} to {largest}"
    else:
        slots = ", ".join([slots, *(f"{count:,} with {size:,}" for size, count in groups[1:])])
    whole = problem.budget * problem.num_rounds
    return f"{slots}; {problem.budget:,.10g}{unit} a round, {whole:,.10g}{unit} in all."


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
    if abs(value) < NOTHING:
        return "nothing"
    return f"{value:,.0f}" if abs(value) >= WHOLE else f"{value:,.3g}"


def _listed(names: Sequence[str]) -> str:
    return " and ".join(filter(None, (", ".join(names[:-1]), names[-1])))


def _leads(best: Sequence[Run], other: Sequence[Run]) -> bool:
    """Return whether a policy gains more than another on the same prices, beyond chance."""
    mine, its = ([run.columns["effective_samples"][-1] for run in runs] for runs in (best, other))
    lead = estimate([one - two for one, two in zip(mine, its, strict=True)])
    return lead.interval is not None and lead.interval[0] > 0


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
