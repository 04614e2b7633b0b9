"""The answer of ``tidegate plan`` in sentences."""

from collections import Counter
from collections.abc import Sequence

from tidegate._internal.words import counted
from tidegate.cli.plan_answer import A_LEAD, CONSTANT, ROUNDING, Answer
from tidegate.cli.setting import Setting
from tidegate.prices import ConstantPrice, RecordedPrices
from tidegate.problem import Problem
from tidegate.report.tables import NOTHING, about, show
from tidegate.simulation.curves import with_a_tenth_more
from tidegate.simulation.summary import Estimate

MUCH_LEFT = 0.8
"""Part of the budget; the answer says so if a policy spends less."""
NEARLY = 0.005
"""How far ten per cent may be off."""
MOST_SIZES = 6
"""Different sizes of clients that are listed one by one."""


def in_words(found: Answer | None, setting: Setting, currency: str) -> list[str]:
    """Return the answer as sentences.

    Args:
        found: the result of ``answer``.
        setting: the setting.
        currency: of the budget, such as EUR; empty for none.
    """
    if found is None:
        return ["None of these policies keeps to both the budget and the memory."]
    if found.effective_per_round < NOTHING <= found.under_way:
        nothing = (
            "No sample arrives before the run ends: a purchase takes "
            f"{setting.problem.delays.told}, and the run has {counted(setting.rounds, 'round')}."
        )
        return [nothing]
    unit = f" {currency}" if currency else ""
    told = [_lead_told(found, setting, unit), *_compared(found)]
    if isinstance(setting.price_law, RecordedPrices):
        told.append("This is from one path of prices: no interval; other days will differ.")
    elif found.interval is None:
        told.append("This is from one seed: no interval; more --seeds give one.")
    told += _money_told(found, setting, unit)
    if found.empty_rounds >= 1:
        told.append(
            f"In {about(found.empty_rounds)} of {setting.rounds:,} rounds no client holds a "
            "sample to train on."
        )
    told += _more_told(found, setting)
    if not setting.options.limits_spending:
        told.append(
            "Here a policy may spend ahead of the budget and make up for it later. A run on Flower "
            "may not, unless you allow it: --spend-ahead 0 plans such a run."
        )
    return told


def _lead_told(found: Answer, setting: Setting, unit: str) -> str:
    """Return which policy to use, what it gains, and what it spends and stores."""
    times = ""
    if found.times_constant_admission is not None:
        times = f" ({found.times_constant_admission:.3g} times those of constant admission)"
    if CONSTANT in found.within_chance:
        times = ""
    over = found.spent_per_round / setting.problem.budget - 1
    above = f" ({over:.0%} above the budget, perhaps by chance)" if over > ROUNDING else ""
    gained = about(found.effective_per_round)
    if found.interval is not None:
        low, high = found.interval
        gained = show(Estimate(found.effective_per_round, (high - low) / 2))
    return (
        f"Use {found.policy}: about {gained} effective samples a round{times} "
        f"for {_money(found.spent_per_round, unit)}{above}, training on "
        f"{counted(found.most_in_training, 'sample')} at most."
    )


def _compared(found: Answer) -> list[str]:
    """Return how other policies compare with the one to use."""
    told = []
    if found.alike:
        are = "is" if len(found.alike) == 1 else "are"
        told.append(f"{_listed(found.alike)} {are} within 1 %, and {found.policy} is the simplest.")
    if found.within_chance:
        told.append(
            f"Its lead over {_listed(found.within_chance)} may be chance; more --seeds can tell."
        )
    return [*told, *found.beyond]


def _more_told(found: Answer, setting: Setting) -> list[str]:
    """Return what a tenth more budget and memory would change."""
    told = [
        f"{what} would change effective samples by {_change(gain, interval)} a round."
        for what, gain, interval in (
            ("10 % more budget", found.more_budget, found.more_budget_interval),
            (_more_memory(setting.problem), found.more_memory, found.more_memory_interval),
        )
        if gain is not None
    ]
    interval = found.more_memory_interval
    if isinstance(setting.price_law, ConstantPrice):
        paid = setting.problem.budget / setting.problem.average_price
        gain = found.more_memory
        if gain is not None and abs(gain) < A_LEAD * paid < A_LEAD * found.most_in_training:
            told.append(
                f"More memory gains nothing at a constant price: the budget pays for {about(paid)} "
                "samples a round."
            )
    elif interval is not None and interval[1] < -NOTHING:
        told.append(
            f"More memory must be filled first, which {setting.rounds:,} rounds do not win back; a "
            "longer run may."
        )
    return told


def _money_told(found: Answer, setting: Setting, unit: str) -> list[str]:
    """Return what the policy pays, what is lost at the end, and what the budget leaves over."""
    problem, price = setting.problem, setting.problem.average_price
    if found.price_paid is None:
        whole = problem.budget * problem.num_rounds
        nothing = (
            f"It buys no sample: the budget is {about(whole)}{unit} in the whole run, and a "
            f"sample costs {about(price)}{unit} on average."
        )
        return [nothing]
    first = (
        f"It pays {_money(found.price_paid, unit)} for a sample on average; the mean price is "
        f"{_money(price, unit)}."
    )
    if isinstance(setting.price_law, ConstantPrice):
        first = (
            f"The price is always {about(price)}{unit}, so no policy gains by waiting for a "
            "better one. Choosing which samples to buy may: ClientGate(selection=..., worth=...)."
        )
    told = [first]
    if found.under_way >= 1:
        told.append(
            f"When the run ends, {about(found.under_way)} samples are paid for (about "
            f"{_money(found.under_way * found.price_paid, unit)}) and have not arrived."
        )
    is_full = found.most_in_training >= problem.total_capacity
    if is_full and found.spent_per_round < MUCH_LEFT * problem.budget:
        told.append(
            f"It spends only {_money(found.spent_per_round, unit)} of "
            f"{_money(problem.budget, unit)} a round: the slots take no more, so a smaller budget "
            "would do."
        )
    return told


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


def _more_memory(problem: Problem) -> str:
    """Return what a tenth more memory is: small buffers take a whole slot more.

    >>> from dataclasses import replace
    >>> few = Problem(buffer_capacities=[4], budget=9.0, mean_price=1.0, num_rounds=9)
    >>> _more_memory(few), _more_memory(replace(few, buffer_capacities=[40]))
    ('1 more slot', '10 % more memory')
    >>> _more_memory(replace(few, buffer_capacities=[9, 9]))
    '2 more slots'
    """
    slots = problem.total_capacity
    added = with_a_tenth_more(problem)["memory"].total_capacity - slots
    is_a_tenth = abs(added / slots - 0.1) < NEARLY
    return "10 % more memory" if is_a_tenth else counted(added, "more slot")


def _money(value: float, unit: str) -> str:
    return about(value) + (unit if value >= NOTHING else "")


def _change(gain: float, interval: tuple[float, float] | None) -> str:
    """Return a gain with its sign, and whether it may be chance.

    >>> _change(2.4, (2.1, 2.7)), _change(-0.5, (-2.0, 1.0)), _change(0.0, None)
    ('+2.4 ±0.3', '-0.5 ±1.5 (perhaps by chance)', '0')
    >>> _change(12345.6, None)
    '+12,346'
    """
    if abs(gain) < NOTHING:
        return "0"
    told = f"{'-' if gain < 0 else '+'}{about(abs(gain))}"
    if interval is None:
        return told
    low, high = interval
    if high - low > 2 * NOTHING:
        told += f" ±{about((high - low) / 2)}"
    return told + " (perhaps by chance)" * (low <= 0 <= high)


def _listed(names: Sequence[str]) -> str:
    return " and ".join(filter(None, (", ".join(names[:-1]), names[-1])))
