"""Pictures of simulated runs; needs the ``plot`` extra."""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from tidegate._internal.arrays import FloatArray
from tidegate.errors import ConfigurationError
from tidegate.policies import POLICIES
from tidegate.simulation.rounds import Run

if TYPE_CHECKING:
    from matplotlib.axes import Axes

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00", "#000000")
"""Okabe and Ito's colours, which most colour-blind people can distinguish."""
STYLES = ("-", "--", "-.", ":", (0, (5, 1)), (0, (3, 1, 1, 1)), (0, (1, 1)))
Look = tuple[str, object]
"""Colour and line style."""
LOOKS: Mapping[str, Look] = {
    name: (COLOURS[number], STYLES[number]) for number, name in enumerate(POLICIES)
} | {
    "hybrid": (COLOURS[5], STYLES[2]),
    "tide": (COLOURS[2], "-"),
    "acdpp-released_settings": (COLOURS[6], STYLES[6]),
    "acdpp-released_settings-matched": ("0.55", STYLES[4]),
}
"""Every policy looks the same in all pictures."""


def look_of(name: str) -> Look:
    """Return colour and style of a policy, or of a label that begins with its name."""
    known = [one for one in LOOKS if name.startswith(one)]
    return LOOKS[max(known, key=len)] if known else ("0.5", "-")


def looks_of(names: Iterable[str]) -> dict[str, Look]:
    """Return a different colour and style for each label.

    A policy keeps its own; another label of the same policy gets one that is free.

    >>> looks = looks_of(["tide-margin", "tide"])
    >>> looks["tide"] == look_of("tide"), looks["tide-margin"] == look_of("tide")
    (True, False)
    """
    asked = list(names)
    looks = {name: LOOKS[name] for name in asked if name in LOOKS}
    spare = ((COLOURS[n % len(COLOURS)], STYLES[(n + n // len(COLOURS)) % len(STYLES)])
             for n in range(len(COLOURS) * len(STYLES)))  # fmt: skip
    for name in asked:
        if name not in looks:
            own = look_of(name)
            used = looks.values()
            looks[name] = own if own not in used else next(one for one in spare if one not in used)
    return {name: looks[name] for name in asked}


def check_drawable(path: Path) -> None:
    """Refuse a picture that cannot be drawn, before any work is done."""
    try:
        from matplotlib.figure import Figure  # noqa: PLC0415 - an extra
    except ImportError:
        raise ConfigurationError("pictures need matplotlib: pip install 'tidegate[plot]'") from None
    formats = Figure().canvas.get_supported_filetypes()
    if path.suffix.removeprefix(".").lower() not in formats:
        raise ConfigurationError(
            f"cannot draw {path}: its name must end in one of {', '.join(formats)}"
        )


def draw_runs(runs: Mapping[str, Sequence[Run]], path: Path) -> None:
    """Draw spending, memory and effective samples of several policies, round by round.

    Lines are means over seeds, bands the lowest and highest seed.
    """
    from matplotlib.figure import Figure  # noqa: PLC0415 - an extra

    problem = next(iter(runs.values()))[0].problem
    figure = Figure(figsize=(9, 9), layout="constrained")
    spent, stored, effective = figure.subplots(3, 1, sharex=True)
    looks = looks_of(runs)
    for name, group in runs.items():
        look = looks[name]
        rounds = group[0].columns["round_number"]
        paid = [np.cumsum(run.columns["spent"]) / rounds for run in group]
        _band(spent, rounds, paid, look, name)
        _band(stored, rounds, [run.columns["training_size"] for run in group], look, name)
        gained = [run.columns["effective_samples"] / rounds for run in group]
        _band(effective, rounds, gained, look, name)
    _limit(spent, problem.budget, "budget")
    _limit(stored, problem.total_capacity, "capacity")
    spent.set_title("Money: spent a round, so far", loc="left", fontsize="medium")
    stored.set_title("Memory: samples stored", loc="left", fontsize="medium")
    effective.set_title(
        "Learning: effective samples a round, so far", loc="left", fontsize="medium"
    )
    effective.set_xlabel("round")
    effective.set_xscale("log")
    effective.set_xlim(1, max(problem.num_rounds, 2))
    for axes in (spent, effective):
        axes.set_yscale("log")
        axes.yaxis.set_major_formatter("{x:,g}")
    effective.xaxis.set_major_formatter("{x:,g}")
    seeds = len(next(iter(runs.values())))
    lines, labels = spent.get_legend_handles_labels()
    figure.legend(lines, labels, loc="outside upper center", ncols=3, frameon=False)
    figure.supxlabel(f"mean of {seeds} seeds; bands: lowest and highest seed", fontsize="small")
    figure.savefig(path, dpi=120)


def _band(
    axes: "Axes",
    rounds: FloatArray,
    lines: Sequence[FloatArray],
    look: Look,
    name: str,
) -> None:
    colour, style = look
    axes.plot(rounds, np.mean(lines, axis=0), color=colour, linestyle=style, label=name)
    axes.fill_between(
        rounds, np.min(lines, axis=0), np.max(lines, axis=0), color=colour, alpha=0.15, linewidth=0
    )


def _limit(axes: "Axes", value: float, name: str) -> None:
    axes.axhline(value, color="0.4", linewidth=1)
    axes.annotate(
        f"{name}\n{value:,g}",
        (1, value),
        xycoords=("axes fraction", "data"),
        xytext=(4, 0),
        textcoords="offset points",
        va="center",
        color="0.3",
        fontsize="small",
    )
