"""Pictures over the rounds of a run, with marks where something went wrong."""

import itertools
import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from tidegate.report.figures import COLOURS, STYLES
from tidegate.report.incidents import Incident
from tidegate.report.page import INK, QUIET, Picture, new_panel
from tidegate.report.tables import amount

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

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
MakePicture = Callable[["Figure", str, str], Picture]
Lines = dict[str, tuple[Sequence[float], Sequence[float]]]
"""Rounds and values, by the name of each line."""
Draw = Callable[[str, Lines], Picture]
"""Draws lines over the rounds of one run."""


def lines_over_rounds(
    title: str, lines: Lines, picture: MakePicture, trouble: Sequence[Incident] = ()
) -> Picture:
    """Draw lines over rounds.

    Args:
        title: the title of the picture.
        lines: the lines; limits (budget and slots) are thin.
        picture: makes a picture of a figure.
        trouble: incidents, marked by their letters above the lines.
    """
    figure, axes = new_panel(title)
    several = sum(name not in LIMITS for name in lines) > 1
    for number, (name, (across, values)) in enumerate(lines.items()):
        plain = name in LIMITS
        axes.plot(
            across,
            values,
            color=INK if plain else COLOURS[number],
            linestyle=STYLES[number],
            linewidth=1.2 if plain else None,
            # A line of one point needs a marker to be seen; a single line needs none.
            marker=MARKERS[number] if len(across) < FEW or (several and not plain) else None,
            markevery=1 if len(across) < FEW else max(len(across) // MARKED, 1),
            markersize=5,
            label=name,
        )
    axes.set_xlabel("round")
    axes.locator_params(axis="x", integer=True)
    _mark(axes, trouble)
    _begin_at_zero(axes, lines)
    if len(lines) > 1:
        figure.legend(loc="outside lower center", ncols=3)
    told = "; ".join(
        f"{name} from {amount(values[0])} to {amount(values[-1])}, at most "
        f"{amount(max(filter(math.isfinite, values), default=math.nan))}"
        for name, (_, values) in lines.items()
    )
    marked = "".join(f" {one.mark}: {one.what}, {one.where}." for one in trouble)
    return picture(figure, f"{title} by round: {told}.{marked}", "")


def _begin_at_zero(axes: "Axes", lines: Lines) -> None:
    """Let the axis of flat lines begin at 0, or else rounding errors would fill the picture."""
    values = {value for _, line in lines.values() for value in line if math.isfinite(value)}
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
