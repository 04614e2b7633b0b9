"""The answer of ``tidegate plan`` in sentences."""

import math
from collections import Counter
from collections.abc import Sequence

from tidegate.cli.plan_answer import CONSTANT, ROUNDING, Answer
from tidegate.cli.setting import Setting
from tidegate.prices import ConstantPrice, RecordedPrices
from tidegate.problem import Problem
from tidegate.report.tables import NOTHING, about, show
from tidegate.simulation.curves import with_a_tenth_more
from tidegate.simulation.summary import Estimate
from tidegate.theory.parameters import plan_constant_admission

MUCH_LEFT = 0.8
"""Part of the budget; the answer says so if a policy spends less."""
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
    unit = f" {currency}" if currency else ""
    times = ""
    if CONSTANT not in found.within_chance and found.times_constant_admission is not None:
        times = f" ({found.times_constant_admission:.3g} times those of constant admission)"
    over = found.spent_per_round / setting.problem.budget - 1
    above = f" ({over:.0%} above the budget, perhaps by chance)" if over > ROUNDING else ""
    gained = about(found.effective_per_round)
    if found.interval is not None:
        low, high = found.interval
        gained = show(Estimate(found.effective_per_round, (high - low) / 2))
    first = (
        f"Use {found.policy}: about {gained} effective samples a round{times} "
        f"for {about(found.spent_per_round)}{unit}{above}, training on "
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
    told += _money_told(found, setting, unit)
    if found.empty_rounds >= 1:
        told.append(
            f"In {about(found.empty_rounds)} of {setting.rounds:,} rounds no client holds a "
            "sample to train on."
        )
    told += [
        f"{what} would change effective samples by {_change(gain, interval)} a round."
        for what, gain, interval in (
            ("10 % more budget", found.more_budget, found.more_budget_interval),
            (_more_memory(setting.problem), found.more_memory, found.more_memory_interval),
        )
        if gain is not None
    ]
    at_most = found.more_memory_interval[1] if found.more_memory_interval else found.more_memory
    if at_most is not None and at_most < -NOTHING:
        told.append(
            f"More memory must be filled first, which {setting.rounds:,} rounds do not win back; a "
            "longer run may."
        )
    return told + delay_told(setting)


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
            f"It spends only {about(found.spent_per_round)}{unit} of {about(problem.budget)}"
            f"{unit} a round: the slots take no more, so a smaller budget would do."
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


def delay_told(setting: Setting) -> list[str]:
    """Return how many samples slots that wait for their purchases can gain, if all take part."""
    problem, delays = setting.problem, setting.problem.delays
    if delays.none or not problem.cohorts.everyone:
        return []
    mean = (delays.shortest + delays.longest) / 2
    slots = problem.slots_a_round
    told = (
        f"A slot waits {mean:,.4g} rounds for a purchase, on average, so {slots:,.4g} slots gain "
        f"at most {slots / (1 + mean):,.4g} samples a round under a hard capacity, whatever the "
        "budget."
    )
    planned = plan_constant_admission(problem).retention_horizon
    fitting = math.floor(planned - mean)
    if setting.hard_capacity and setting.retention_horizon is None and 1 <= fitting < planned:
        told += (
            f" Policies that keep samples for K rounds plan K = {planned} without the delay; with "
            f"--retention-horizon {fitting} their purchases fit into the slots, and they may gain "
            "more."
        )
    return [told]


def _more_memory(problem: Problem) -> str:
    """Return what a tenth more memory is: small buffers take a whole slot more.

    >>> from dataclasses import replace
    >>> few = Problem(buffer_capacities=[4], budget=9.0, mean_price=1.0, num_rounds=9)
    >>> _more_memory(few), _more_memory(replace(few, buffer_capacities=[40]))
    ('1 more slot', '10 % more memory')
    """
    slots = problem.total_capacity
    added = with_a_tenth_more(problem)["memory"].total_capacity - slots
    return f"{added} more slot" if 10 * added > 2 * slots else "10 % more memory"


def _money(value: float, unit: str) -> str:
    return about(value) + (unit if value >= NOTHING else "")


def _change(gain: float, interval: tuple[float, float] | None) -> str:
    """Return a gain with its sign, and whether it may be chance.

    >>> _change(2.468, (2.1, 2.8)), _change(-0.5, (-2.0, 1.0)), _change(0.0, None)
    ('+2.47', '-0.5 (perhaps by chance)', '0')
    >>> _change(12345.6, None)
    '+12,346'
    """
    if abs(gain) < NOTHING:
        return "0"
    is_chance = interval is not None and interval[0] <= 0 <= interval[1]
    sign = "-" if gain < 0 else "+"
    return f"{sign}{about(abs(gain))}" + " (perhaps by chance)" * is_chance


def _listed(names: Sequence[str]) -> str:
    return " and ".join(filter(None, (", ".join(names[:-1]), names[-1])))
