"""Tables of summaries, for people."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

from rich.box import SIMPLE_HEAD
from rich.table import Table

from tidegate.server.fleet_round import FleetRound
from tidegate.simulation.guarantees import GuaranteedQuantity
from tidegate.simulation.offline import Candidate
from tidegate.simulation.summary import CONFIDENCE, Estimate, PolicySummary

ORACLE = "costless_oracle"
"""The policy without a budget."""
NOTHING = 1e-6
"""A difference that is only rounding."""
ROUNDING = 1e-9
"""Part of the money of a run; less is not worth a word."""
COLUMNS = ("spent", "stored", "peak", "distinct", "effective", "bound", "overspend")
WHOLE = 1000


def legend(*, distinct: bool = True, limit: float | None = None) -> str:
    """Return what the columns of a table of policies mean.

    Args:
        distinct: whether the table has that column.
        limit: what the last column is compared with.
    """
    words = (
        "A round: spent, samples stored in all buffers on average and at their peak, "
        f"{'distinct and ' * distinct}effective samples gained, the paper's bound on the learning "
        "error (what ACDPP lowers; measured accuracy need not follow it). overspend: above budget "
        "in the whole run, or below if negative."
    )
    if limit is None:
        return words
    return (
        f"{words} limit: effective samples as a part of {limit:,.4g}, the most samples that this "
        "money buys if all are bought when they are cheapest. No rule gains more; one that reaches "
        "it trains on few samples, each of them once."
    )


def amount(value: float) -> str:
    """Return a sum of money or a count as text: whole from 1,000 on, else four digits.

    >>> amount(10999.9), amount(55.125)
    ('11,000', '55.12')
    """
    return f"{value:,.0f}" if abs(value) >= WHOLE else f"{value:,.4g}"


def about(value: float) -> str:
    """Format a number with three digits, or as a whole number."""
    if abs(value) < NOTHING:
        return "nothing"
    return f"{value:,.0f}" if abs(value) >= WHOLE else f"{value:,.3g}"


def without_rounding(rounds: Sequence[FleetRound]) -> list[FleetRound]:
    """Return rounds with 0 for overspend and cost debt that are only rounding errors of sums."""
    least = ROUNDING * math.fsum(row.spent for row in rounds)

    def shown(value: float) -> float:
        return 0.0 if abs(value) <= least else value

    return [
        replace(row, overspend=shown(row.overspend), cost_debt=shown(row.cost_debt))
        for row in rounds
    ]


def part_of_limit(policy: str, effective: float, limit: float) -> str:
    """Return effective samples as a part of the limit; a dash for the oracle.

    >>> part_of_limit("tide", 15.0, 20.0), part_of_limit("costless_oracle", 216.4, 20.0)
    ('75%', '-')
    """
    return "-" if policy.startswith(ORACLE) else f"{effective / limit:.0%}"


def summary_table(
    summaries: Sequence[PolicySummary], limit: float | None = None, *, intervals: bool = True
) -> Table:
    """Return a table with one line a policy.

    Args:
        summaries: one a policy.
        limit: the most effective samples a round that are possible, for a column of its own.
        intervals: whether to show the intervals of means.
    """
    seeds = summaries[0].seeds
    title = f"Mean over {seeds} seeds" if seeds > 1 else "One run each"
    if intervals and seeds > 1:
        title += f" ± {CONFIDENCE:.0%} interval"
    columns = COLUMNS if limit is None else (*COLUMNS, "limit")
    # With all of them, a table without intervals would not fit 80 columns.
    shown = columns if intervals else tuple(name for name in columns if name != "distinct")
    table = _policy_table(title, shown)
    for one in summaries:
        values = {
            "spent": one.spent_per_round,
            "stored": one.mean_occupancy,
            "peak": one.peak_occupancy,
            "distinct": one.distinct_per_round,
            "effective": one.effective_per_round,
            "bound": one.bound_per_round,
            "overspend": one.overspend,
        }
        cells = {name: show(value, interval=intervals) for name, value in values.items()}
        if limit is not None:
            cells["limit"] = part_of_limit(one.policy, one.effective_per_round.mean, limit)
        broken = "" if one.certificate_holds else " (certificate broken)"
        table.add_row(one.policy + broken, *(cells[name] for name in shown))
    return table


def difference_table(differences: Mapping[str, Mapping[str, Estimate]], baseline: str) -> Table:
    """Return a table with one line a policy: its difference from the baseline on equal seeds."""
    title = f"Difference from {baseline} on the same seeds ± {CONFIDENCE:.0%} interval"
    table = _policy_table(title, ("spent", "peak", "effective", "bound"))
    shown = ("spent_per_round", "peak_occupancy", "effective_per_round", "bound_per_round")
    for policy, values in differences.items():
        table.add_row(policy, *(show(values[name]) for name in shown))
    return table


def _policy_table(title: str, headings: Sequence[str]) -> Table:
    """Return an empty table of policies, narrow enough for 80 columns."""
    table = Table(title=title, title_justify="left", box=SIMPLE_HEAD, show_edge=False)
    table.padding = 0, 1, 0, 0
    table.add_column("policy", no_wrap=True)
    for heading in headings:
        table.add_column(heading, justify="right", no_wrap=True)
    return table


def candidate_table(candidates: Sequence[Candidate], chosen: Candidate) -> Table:
    """Return a table with one line for each K that was tried."""
    table = Table(title="Offline selection of K", title_justify="left", box=SIMPLE_HEAD)
    for heading in ("K", "overflow at T/2", "overflow at T", "stays bounded", "bound", ""):
        table.add_column(heading, justify="right")
    for one in candidates:
        table.add_row(
            str(one.retention_horizon),
            f"{one.halfway_violation:,.0f}",
            f"{one.final_violation:,.0f}",
            "yes" if one.bounded else "no",
            f"{one.bound_per_round:.3f}",
            "chosen" if one is chosen else "",
        )
    return table


def guarantee_table(quantities: Sequence[GuaranteedQuantity], rounds: int) -> Table:
    """Return a table with one line for each quantity that the paper bounds."""
    title = f"Guarantees for ACDPP after {rounds:,} rounds"
    table = Table(title=title, title_justify="left", box=SIMPLE_HEAD)
    table.add_column("", no_wrap=True)
    for heading in ("as printed", "repaired", "measured"):
        table.add_column(heading, justify="right", no_wrap=True)
    for one in quantities:
        cells = amount(one.printed), amount(one.repaired), show(one.measured)
        table.add_row(one.name.replace("_", " "), *cells)
    return table


def show(value: Estimate, *, interval: bool = True) -> str:
    """Return three significant digits, and the interval if there is one.

    >>> show(Estimate(55.123, 0.26))
    '55.1 ±0.3'
    """
    digits = max(0, 2 - math.floor(math.log10(abs(value.mean)))) if value.mean else 0
    digits = min(digits, 3)
    text = f"{value.mean:,.{digits}f}"
    if math.isnan(value.half_width) or not interval:
        return text
    return f"{text} ±{value.half_width:,.{digits}f}"
