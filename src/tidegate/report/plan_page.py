"""The planner's page: what a budget gains, and what more money or memory would add."""

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from tidegate._internal.arrays import FloatArray
from tidegate.report.cap_section import cap_section
from tidegate.report.figures import looks_of
from tidegate.report.page import INK, Picture, Rows, Section, drawing, new_panel, write_page
from tidegate.report.tables import legend, part_of_limit, show
from tidegate.simulation.caps import CapPoint
from tidegate.simulation.curves import Curves
from tidegate.simulation.summary import CONFIDENCE, PolicySummary

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


MakePicture = Callable[["Figure", str, str], Picture]

EFFECTIVE = (
    "Effective samples: as many samples, each used equally often, would teach as much as those "
    "that were used."
)
AROUND = (
    "Effective samples a round at budgets from a quarter to four times the planned one, everything "
    "else as it is; and what one more unit of money adds there."
)
ENDS = (
    "Above this amount, 10 % more of it buys less than 1 % more effective samples. A dash: more "
    "still helps at four times the planned amount."
)
CAVEAT = (
    "They come from a simulation of counts, prices and money: no model was trained. The paper's "
    "bound depends on effective samples; accuracy need not follow them."
)
DRAWN = "Prices are drawn from the law that was given; real ones can differ from it."
NEAR = 0.01
"""Part of the highest value. Lines that are nearer than this everywhere look like one."""
KEEPING = ("constant_admission", "drift_plus_penalty", "acdpp")
"""Policies that keep every sample for K rounds."""
NOT_TIDE = (
    "Constant admission, drift plus penalty and ACDPP do this. Tide has no K: it keeps every "
    "buffer full, and buys if the price is below a threshold that rises with the age of the sample "
    "to replace."
)
LIMIT = (
    "The limit is the most that buffers which are always full can gain in the long run for a "
    "budget, if prices are independent from round to round; a run of finite length, or a few of "
    "them, can end a little above it."
)


@dataclass(frozen=True)
class PlanAnswer:
    """The content of the page."""

    problem: str
    """Clients, memory, money, prices and rounds, in a sentence or two."""
    answer: Sequence[str]
    """The policy to use and its gain, sentence by sentence."""
    advice: Sequence[str]
    """The advice for the paper's policies."""
    command: str
    """The command that makes this page again."""
    recorded: str
    """The file that prices come from; empty if they are drawn from a law."""
    currency: str
    """Of the budget and prices, such as EUR; empty for none."""
    budget: float
    rounds: int
    slots: int
    summaries: Sequence[PolicySummary]
    limit: float | None
    limit_told: str
    """An explanation of the limit in the table."""
    by_budget: Curves
    by_memory: Curves
    by_cap: Sequence[CapPoint]
    """Tide by its cap on uses; empty if Tide is not planned with."""
    not_drawn: str
    """About policies that the pictures leave out; empty if they leave out none."""
    settings: Mapping[str, object]


def write_plan_page(planned: PlanAnswer, path: Path) -> None:
    """Write the page."""
    answer, *more = planned.answer
    lead = "\n".join(filter(None, (answer, " ".join(more), planned.problem)))
    with drawing() as picture:
        one_more = f"one {planned.currency} more" if planned.currency else "one more unit of money"
        money = _curves(planned.by_budget, planned.budget, _budget(planned), one_more, picture)
        memory = _curves(planned.by_memory, planned.slots, "slots", "one more slot", picture)
        caps = cap_section(planned.by_cap, picture)
    sections = [
        Section(
            "What each policy gives",
            [text for text in (EFFECTIVE, legend(), planned.limit_told) if text],
            tables=[_policies(planned)],
        ),
        Section(
            "What money buys",
            [text for text in (AROUND, _each_point(planned), planned.not_drawn, LIMIT) if text],
            pictures=money,
            details=[_points(planned.by_budget, _budget(planned))],
        ),
        Section(
            "What memory buys",
            [
                text
                for text in (
                    "The same for buffers from a quarter to four times their size.",
                    planned.not_drawn,
                )
                if text
            ],
            pictures=memory,
            details=[_points(planned.by_memory, "slots")],
        ),
        Section(
            "Where each policy stops helping",
            [ENDS],
            tables=[_ends(planned)],
        ),
        *caps,
        *_keeping(planned),
        Section(
            "What these numbers are not",
            [f"{CAVEAT} {_prices(planned)}"],
        ),
        Section(
            "How to make this page again",
            command=planned.command,
            details=[
                Rows(
                    "All settings",
                    ["setting", "value"],
                    [[name, str(value)] for name, value in planned.settings.items()],
                )
            ],
        ),
    ]
    write_page(path, "What this budget gives", lead, sections)


def _budget(planned: PlanAnswer) -> str:
    return "budget, a round" if not planned.currency else f"budget, {planned.currency} a round"


def _each_point(planned: PlanAnswer) -> str:
    if planned.recorded:
        return "Each point is one run on the recorded prices."
    seeds = next(iter(planned.by_budget.points[0].policies.values())).seeds
    return f"Each point is the mean of {seeds} seeds."


def _prices(planned: PlanAnswer) -> str:
    if not planned.recorded:
        return DRAWN
    rows = f"{planned.rounds:,} rows" if planned.rounds > 1 else "row"
    return f"Prices are the first {rows} of {planned.recorded}; other days will differ."


def _keeping(planned: PlanAnswer) -> list[Section]:
    """Return the advice for policies with a K, if there are any."""
    if not {one.policy for one in planned.summaries} & set(KEEPING):
        return []
    return [Section("For policies that keep a sample for K rounds", [NOT_TIDE, *planned.advice])]


def _policies(planned: PlanAnswer) -> Rows:
    seeds = planned.summaries[0].seeds
    sure = f", mean of {seeds} seeds ± {CONFIDENCE:.0%} interval" if seeds > 1 else ""
    header = ["policy", "effective", "spent", "stored", "peak", "distinct", "bound", "overspend"]
    rows = []
    for one in planned.summaries:
        values = (
            *(one.effective_per_round, one.spent_per_round),
            *(one.mean_occupancy, one.peak_occupancy, one.distinct_per_round),
            *(one.bound_per_round, one.overspend),
        )
        broken = "" if one.certificate_holds else " (certificate broken)"
        cells = [one.policy + broken, *(show(value) for value in values)]
        if planned.limit:
            effective = one.effective_per_round.mean
            cells.append(part_of_limit(one.policy, effective, planned.limit))
        rows.append(cells)
    money = f", money in {planned.currency}" if planned.currency else ""
    return Rows(f"A round{money}{sure}", [*header, *(["limit"] if planned.limit else [])], rows)


def _names(curves: Curves) -> list[str]:
    return list(curves.points[0].policies)


def _curves(
    curves: Curves, planned: float, across: str, unit: str, picture: MakePicture
) -> list[Picture]:
    """Draw effective samples, and what one more unit adds to them."""
    amounts = np.array(curves.amounts)
    between: FloatArray = np.sqrt(amounts[1:] * amounts[:-1])
    gained = {name: np.array(curves.effective(name)) for name in _names(curves)}
    added = {name: np.array(curves.gain_of_one_more(name)) for name in _names(curves)}
    limits = [point.limit for point in curves.points]
    known = np.array([limit for limit in limits if limit is not None])
    panels = (
        ("effective samples a round", amounts, gained, known),
        (f"effective samples a round for {unit}", between, added, known[:0]),
    )
    pictures = []
    for title, places, lines, limit in panels:
        figure, axes = new_panel(title)
        looks = looks_of(lines)
        for name, values in lines.items():
            colour, style = looks[name]
            axes.plot(places, values, color=colour, linestyle=style, label=name)
        if len(limit) == len(places):
            axes.plot(places, limit, color=INK, linewidth=1, linestyle=(0, (1, 2)), label="limit")
        if min(float(values.min()) for values in lines.values()) >= 0:
            axes.set_ylim(bottom=0)
        _scale(axes, amounts, planned, across)
        figure.legend(loc="outside lower center", ncols=2)
        told = "; ".join(
            f"{name} from {_number(values[0])} to {_number(values[-1])}"
            for name, values in lines.items()
        )
        alt = f"{title}, by {across} from {_number(amounts[0])} to {_number(amounts[-1])}: {told}."
        caption = f"The thin line is the plan: {planned:,.4g}.{_hidden(lines)}"
        pictures.append(picture(figure, alt, caption))
    return pictures


def _hidden(lines: Mapping[str, FloatArray]) -> str:
    """Return which lines cannot be told apart, because they are nearer than a line is wide."""
    width = NEAR * max(float(values.max()) for values in lines.values())
    same = [
        f"{one} and {other}"
        for one, other in itertools.combinations(lines, 2)
        if float(np.abs(lines[one] - lines[other]).max()) < width
    ]
    return f" The lines of {'; '.join(same)} lie on each other." if same else ""


def _scale(axes: "Axes", amounts: FloatArray, planned: float, across: str) -> None:
    axes.set_xlim(left=0, right=1.02 * float(amounts[-1]))
    axes.set_xlabel(across)
    axes.axvline(planned, color=INK, linewidth=0.8)


def _points(curves: Curves, name: str) -> Rows:
    header = [name, *_names(curves), "limit"]
    rows = [
        [
            _number(point.amount),
            *(show(one.effective_per_round) for one in point.policies.values()),
            "" if point.limit is None else f"{point.limit:,.3g}",
        ]
        for point in curves.points
    ]
    return Rows(f"Effective samples a round, by {name}", header, rows)


def _ends(planned: PlanAnswer) -> Rows:
    rows, tried = [], (planned.by_budget, planned.by_memory)
    for name in _names(planned.by_budget):
        ends = [curves.stops_helping(name) for curves in tried]
        rows.append([name, *(_end(*one) for one in zip(ends, tried, strict=True))])
    return Rows("Stops helping at", ["policy", _budget(planned), "slots"], rows)


def _end(amount: float | None, curves: Curves) -> str:
    """Return where more stops helping; at the least amount that was tried, or below."""
    if amount is None:
        return "–"
    return ("≤ " if amount == curves.amounts[0] else "") + _number(amount)


def _number(value: float) -> str:
    return f"{value:,.4g}"
