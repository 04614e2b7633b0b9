"""A plan in words and as a page: what a budget gains, and what more money or memory would add."""

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tidegate._internal.arrays import FloatArray
from tidegate.problem import Problem
from tidegate.report.answer import Answer
from tidegate.report.figures import looks_of
from tidegate.report.page import INK, MakePicture, Picture, drawing, new_panel, render, sentences
from tidegate.report.tables import legend, part_of_limit, show
from tidegate.simulation.caps import CapPoint
from tidegate.simulation.curves import Curves, with_a_tenth_more
from tidegate.simulation.guarantees import GuaranteedQuantity
from tidegate.simulation.offline import Candidate, select_offline
from tidegate.simulation.summary import CONFIDENCE, PolicySummary
from tidegate.theory.optimum import Optimum
from tidegate.theory.parameters import Plan as ConstantPlan

NEAR = 0.01
"""Part of the highest value. Lines that are nearer than this everywhere look like one."""
NEARLY = 0.005
"""How far ten per cent may be off."""
KEEPING = ("constant_admission", "drift_plus_penalty", "acdpp")
"""Policies that keep every sample for K rounds."""


@dataclass(frozen=True)
class PaperPlan:
    """The settings of the paper's policies for a problem."""

    closed: ConstantPlan
    """By the closed form of an endless run."""
    searched: ConstantPlan
    """By a search over K for this run."""
    more: Mapping[str, ConstantPlan]
    """With a tenth more ``budget``, and with a tenth more ``memory``."""
    penalty_weight: float
    contraction: float
    candidates: Sequence[Candidate]
    """Each K that was simulated; empty without offline selection."""

    @property
    def selected(self) -> Candidate | None:
        """The K that offline selection takes; None without it."""
        return select_offline(self.candidates) if self.candidates else None

    def row(self) -> dict[str, Any]:
        """Return plain values for JSON."""
        row: dict[str, Any] = {
            **vars(self.closed),
            "penalty_weight": self.penalty_weight,
            "contraction": self.contraction,
            "finite_horizon": vars(self.searched),
            "with_10_percent_more": {name: vars(plan) for name, plan in self.more.items()},
        }
        if self.selected is not None:
            row["offline"] = {
                "retention_horizon": self.selected.retention_horizon,
                "candidates": [vars(candidate) for candidate in self.candidates],
            }
        return row


@dataclass(frozen=True)
class Plan:
    """All numbers of a plan; ``plan_words.txt`` and ``plan.html`` have the words."""

    problem: Problem
    price: str
    """The price law, as it was given."""
    recorded: str
    """The file that prices come from; empty if they are drawn from a law."""
    price_is_constant: bool
    sizes: Sequence[tuple[int, int]]
    """Sizes of clients, the largest first, and how many have each."""
    most_uses: int | None
    currency: str
    """Of the budget and prices, such as EUR; empty for none."""
    summaries: Sequence[PolicySummary]
    answer: Answer | None
    """None if no policy keeps to both the budget and the memory."""
    limit: float | None
    """The most effective samples a round that any rule can gain, if known."""
    full: Optimum | None
    """The most that buffers gain which are as full as they can be, if known."""
    paper: PaperPlan
    unmet: Sequence[str]
    """Conditions of the paper's guarantees that these runs do not meet."""
    quantities: Sequence[GuaranteedQuantity]
    """What the paper bounds; empty unless this is the paper's game."""
    estimate: Path | None
    """The run that constants of the bound come from."""

    @property
    def loose(self) -> Sequence[GuaranteedQuantity]:
        """The bounds that matter most, on regret and on the cost violation."""
        wanted = ("regret", "cost_violation")
        return [quantity for quantity in self.quantities if quantity.name in wanted]

    @property
    def more_slots(self) -> int:
        """Slots that a tenth more memory adds; each client has whole ones."""
        more = with_a_tenth_more(self.problem)["memory"]
        return more.total_capacity - self.problem.total_capacity

    @property
    def a_tenth_fits(self) -> bool:
        """Whether these are nearly a tenth."""
        return abs(self.more_slots / self.problem.total_capacity - 0.1) < NEARLY

    @property
    def keeps(self) -> bool:
        """Whether a policy keeps every sample for K rounds."""
        return bool({summary.policy for summary in self.summaries} & set(KEEPING))

    def sentences(self, about: str) -> list[str]:
        """Return the sentences about a part: ``problem``, ``answer``, ``advice`` and so on."""
        if about == "problem":
            return sentences("plan_words.txt", about, self.problem, self.price)
        return sentences("plan_words.txt", about, self)


@dataclass(frozen=True)
class PlanCurves:
    """What the curves of a plan's page are drawn from."""

    budget: Curves
    memory: Curves
    caps: Sequence[CapPoint]
    """Tide by its cap on uses; empty if Tide is not planned with."""
    not_drawn: Sequence[str]
    """Policies that a cap on uses rules out at some of the points."""
    instead: str
    """The policy that is drawn in their place; empty if others are left."""

    @property
    def names(self) -> Sequence[str]:
        """The policies that are drawn."""
        return list(self.budget.points[0].policies)

    @property
    def seeds(self) -> int:
        """Of each point."""
        return next(iter(self.budget.points[0].policies.values())).seeds

    @property
    def ends(self) -> Sequence[Sequence[str]]:
        """Where more money and more memory stop helping each policy."""
        both = (self.budget, self.memory)
        return [
            [name, *(_end(curves.stops_helping(name), curves) for curves in both)]
            for name in self.names
        ]

    def rows(self, curves: Curves) -> Sequence[Sequence[str]]:
        """Return the points of curves for a table."""
        return [
            [
                _number(point.amount),
                *(show(summary.effective_per_round) for summary in point.policies.values()),
                "" if point.limit is None else f"{point.limit:,.3g}",
            ]
            for point in curves.points
        ]

    @property
    def cap_rows(self) -> Sequence[Sequence[str]]:
        """Tide a round by its cap on uses."""
        return [
            [
                f"{point.most_uses:,}",
                show(point.policy.spent_per_round),
                show(point.policy.mean_occupancy),
                show(point.policy.effective_per_round),
                f"{point.limit.stored_per_round:,.4g}",
            ]
            for point in self.caps
        ]


def write_plan_page(
    plan: Plan, curves: PlanCurves, path: Path, *, command: str, settings: Mapping[str, object]
) -> None:
    """Write the page.

    Args:
        plan: its numbers.
        curves: what money, memory and a cap on uses change.
        path: the file.
        command: that makes this page again.
        settings: all settings of the plan.
    """
    money = f"budget, {plan.currency} a round" if plan.currency else "budget, a round"
    with drawing() as picture:
        pictures = [
            _curves(curves.budget, plan.problem.budget, money, picture),
            _curves(curves.memory, plan.problem.total_capacity, "slots", picture),
        ]
    render(
        path,
        "plan.html",
        plan=plan,
        curves=curves,
        pictures=pictures,
        money=money,
        policies=_policies(plan),
        legend=legend(limit=plan.limit),
        confidence=CONFIDENCE,
        command=command,
        settings=settings,
    )


def _policies(plan: Plan) -> list[list[str]]:
    rows = []
    for summary in plan.summaries:
        values = (
            *(summary.effective_per_round, summary.spent_per_round),
            *(summary.mean_occupancy, summary.peak_occupancy, summary.distinct_per_round),
            *(summary.bound_per_round, summary.overspend),
        )
        broken = "" if summary.certificate_holds else " (certificate broken)"
        cells = [summary.policy + broken, *(show(value) for value in values)]
        if plan.limit:
            effective = summary.effective_per_round.mean
            cells.append(part_of_limit(summary.policy, effective, plan.limit))
        rows.append(cells)
    return rows


def _curves(curves: Curves, planned: float, across: str, picture: MakePicture) -> Picture:
    """Draw effective samples by money or by memory."""
    amounts = curves.amounts
    lines = {name: np.array(curves.effective(name)) for name in curves.points[0].policies}
    looks = looks_of(lines)
    title = "effective samples a round"
    figure, axes = new_panel(title)
    for name, values in lines.items():
        colour, style = looks[name]
        axes.plot(amounts, values, color=colour, linestyle=style, label=name)
    axes.set_xlim(left=0, right=1.02 * amounts[-1])
    axes.set_ylim(bottom=0)
    axes.set_xlabel(across)
    axes.axvline(planned, color=INK, linewidth=0.8)
    figure.legend(loc="outside lower center", ncols=2)
    ends = "; ".join(
        f"{name} from {_number(values[0])} to {_number(values[-1])}"
        for name, values in lines.items()
    )
    alt = f"{title}, by {across} from {_number(amounts[0])} to {_number(amounts[-1])}: {ends}."
    caption = f"The thin line is the plan: {planned:,.4g}.{_hidden(lines)}"
    tips = [
        (
            place,
            f"{across} {_number(place)}: "
            + ", ".join(f"{name} {_number(values[at])}" for name, values in lines.items()),
        )
        for at, place in enumerate(amounts)
    ]
    return picture(figure, alt, caption, tips)


def _hidden(lines: Mapping[str, FloatArray]) -> str:
    """Return which lines cannot be told apart, because they are nearer than a line is wide."""
    width = NEAR * max(float(values.max()) for values in lines.values())
    same = [
        f"{one} and {other}"
        for one, other in itertools.combinations(lines, 2)
        if float(np.abs(lines[one] - lines[other]).max()) < width
    ]
    return f" The lines of {'; '.join(same)} lie on each other." if same else ""


def _end(amount: float | None, curves: Curves) -> str:
    """Return where more stops helping; at the least amount that was tried, or below."""
    if amount is None:
        return "–"
    return ("≤ " if amount == curves.amounts[0] else "") + _number(amount)


def _number(value: float) -> str:
    return f"{value:,.4g}"
