"""Curves of a run over rounds or money, with marks where something went wrong."""

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from tidegate.report.figures import COLOURS, STYLES
from tidegate.report.incidents import Incident
from tidegate.report.page import INK, QUIET, MakePicture, Picture, Tips, new_panel
from tidegate.report.tables import amount

if TYPE_CHECKING:
    from matplotlib.axes import Axes

FEW = 4
"""A curve of at most this many points has a marker at each."""
MARKERS = "os^Dv"
"""Markers, which distinguish lines beside colour and dashes."""
LIMITS = ("budget", "slots")
"""The names of lines that are limits."""
MARKED = 8
"""The markers on a longer line."""
TOO_NEAR = 0.045
"""Letters nearer than this part of the width are written as one word."""
ROUNDING = 1e-9
"""A line whose values differ by less than this part is flat."""
Draw = Callable[..., Picture]
"""Draws the curves of one run, as ``curves`` does."""


@dataclass(frozen=True)
class Curve:
    """One line of a picture."""

    across: Sequence[float]
    """Rounds, or money."""
    values: Sequence[float]


def curves(
    title: str,
    lines: Mapping[str, Curve],
    picture: MakePicture,
    trouble: Sequence[Incident] = (),
    across: str = "round",
) -> Picture:
    """Draw lines over rounds or over money, with their values under the pointer.

    Args:
        title: the title of the picture.
        lines: the lines by name; limits (budget and slots) are thin.
        picture: makes a picture of a figure.
        trouble: incidents, marked by their letters above the lines.
        across: what the lines go over.
    """
    figure, axes = new_panel(title)
    several = sum(name not in LIMITS for name in lines) > 1
    for number, (name, line) in enumerate(lines.items()):
        plain, is_short = name in LIMITS, len(line.across) < FEW
        axes.plot(
            line.across,
            line.values,
            color=INK if plain else COLOURS[number],
            linestyle=STYLES[number],
            linewidth=1.2 if plain else None,
            # A line of one point needs a marker to be seen; a single line needs none.
            marker=MARKERS[number] if is_short or (several and not plain) else None,
            markevery=1 if is_short else max(len(line.across) // MARKED, 1),
            markersize=5,
            label=name,
        )
    axes.set_xlabel(across)
    axes.locator_params(axis="x", integer=across == "round", nbins=7)
    _mark(axes, trouble)
    _begin_at_zero(axes, lines)
    if len(lines) > 1:
        figure.legend(loc="outside lower center", ncols=2)
    ends = "; ".join(
        f"{name} from {amount(line.values[0])} to {amount(line.values[-1])}, at most "
        f"{amount(max(filter(math.isfinite, line.values), default=math.nan))}"
        for name, line in lines.items()
        if line.values
    )
    marked = "".join(
        f" {incident.mark}: {incident.what}, {incident.where}." for incident in trouble
    )
    return picture(figure, f"{title} by {across}: {ends}.{marked}", "", _tips(lines, across))


def _tips(lines: Mapping[str, Curve], across: str) -> Tips:
    """Return the values at each place of the first line."""
    places = sorted(set(next(iter(lines.values())).across))
    values = {
        name: np.interp(places, line.across, line.values)
        for name, line in lines.items()
        if line.across
    }
    return [
        (
            place,
            f"{across} {amount(place)}: "
            + ", ".join(f"{name} {amount(column[at])}" for name, column in values.items()),
        )
        for at, place in enumerate(places)
    ]


def _begin_at_zero(axes: "Axes", lines: Mapping[str, Curve]) -> None:
    """Let the axis of flat lines begin at 0, or else rounding errors would fill the picture."""
    values = {value for line in lines.values() for value in line.values if math.isfinite(value)}
    if not values:
        return
    low, high = min(values), max(values)
    if low >= 0 and high - low <= ROUNDING * high:
        axes.set_ylim(0, 1.25 * high or 1.0)


def _mark(axes: "Axes", trouble: Sequence[Incident]) -> None:
    """Shade the rounds of each incident, and write its letter above them."""
    if not trouble:
        return
    left, right = axes.get_xlim()
    letters = list[tuple[float, str]]()
    for one in trouble:
        for first, last in one.spans:
            if one.mark == "R":  # between two rounds
                axes.axvline(first - 0.5, color=INK, linewidth=1.2, linestyle=(0, (1, 2)))
            else:
                axes.axvspan(first - 0.5, last + 0.5, color=QUIET, alpha=0.18, linewidth=0)
            middle = first - 0.5 if one.mark == "R" else (first + last) / 2
            letters.append((min(max(middle, left), right), one.mark))
    axes.set_xlim(left, right)
    axes.set_title(axes.get_title(loc="left"), pad=18)
    for place, word in _together(sorted(letters), TOO_NEAR * (right - left)):
        axes.annotate(
            word,
            (place, 1),
            xycoords=("data", "axes fraction"),
            xytext=(0, 3),
            textcoords="offset points",
            ha="center",
            fontsize="small",
            fontweight="bold",
            annotation_clip=False,
        )


def _together(letters: Sequence[tuple[float, str]], near: float) -> list[tuple[float, str]]:
    """Join letters that would overlap into one word, each of them once."""
    groups: list[list[tuple[float, str]]] = []
    for one in letters:
        if groups and one[0] - groups[-1][-1][0] < near:
            groups[-1].append(one)
        else:
            groups.append([one])
    return [
        (
            (group[0][0] + group[-1][0]) / 2,
            "".join(letter for letter, _ in itertools.groupby(sorted(m for _, m in group))),
        )
        for group in groups
    ]
