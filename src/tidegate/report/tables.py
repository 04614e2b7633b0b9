"""Summaries as tables for people."""

import math
from collections.abc import Sequence

from rich.box import SIMPLE_HEAD
from rich.table import Table

from tidegate.planner import Candidate
from tidegate.summary import CONFIDENCE, Estimate, PolicySummary

COLUMNS = ("spent", "stored", "peak", "distinct", "effective", "bound", "overspend")


def summary_table(summaries: Sequence[PolicySummary], *, budget: float) -> Table:
    """One line a policy."""
    seeds = summaries[0].seeds
    runs = "one run each" if seeds == 1 else f"mean over {seeds} seeds ± {CONFIDENCE:.0%} interval"
    title = f"Per round, {runs}; budget {budget:g}"
    table = Table(title=title, title_justify="left", box=SIMPLE_HEAD)
    table.add_column("policy", no_wrap=True)
    for heading in COLUMNS:
        table.add_column(heading, justify="right", no_wrap=True)
    for one in summaries:
        table.add_row(
            one.policy,
            show(one.spent_per_round),
            show(one.mean_occupancy),
            show(one.peak_occupancy),
            show(one.distinct_per_round),
            show(one.effective_per_round),
            show(one.bound_per_round),
            f"{one.cost_violation:,.0f}" + ("" if one.certificate_holds else " !"),
        )
    return table


LEGEND = (
    "stored, peak: samples in all buffers, on average and at most; distinct, effective: samples\n"
    "gained a round; bound: on the learning error, lower is better; overspend: in the whole run."
)


def candidate_table(candidates: Sequence[Candidate], chosen: Candidate) -> Table:
    """One line for each K that was tried."""
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


def show(value: Estimate) -> str:
    """Three significant digits, and the interval where there is one.

    >>> show(Estimate(55.123, 0.26))
    '55.1 ±0.3'
    """
    digits = max(0, 2 - math.floor(math.log10(abs(value.mean)))) if value.mean else 0
    digits = min(digits, 3)
    text = f"{value.mean:,.{digits}f}"
    if math.isnan(value.half_width):
        return text
    return f"{text} ±{value.half_width:.{digits}f}"
