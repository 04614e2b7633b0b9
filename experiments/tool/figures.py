"""Pictures of an experiment: accuracy, money and memory."""

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from experiments.tool.comparison import BAND, Comparison, curves_of
from tidegate._internal.arrays import FloatArray
from tidegate.report.figures import Look, looks_of
from tidegate.report.tables import ORACLE
from tidegate.simulation.summary import estimate

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def draw(comparison: Comparison, folder: Path) -> list[Path]:
    """Draw ``accuracy.png`` and ``resources.png``."""
    from matplotlib import rc_context  # noqa: PLC0415 - an extra

    folder.mkdir(parents=True, exist_ok=True)
    with rc_context({"text.parse_math": False}):  # titles may contain dollar signs
        return _draw(comparison, folder)


def _draw(comparison: Comparison, folder: Path) -> list[Path]:
    from matplotlib.figure import Figure  # noqa: PLC0415 - an extra

    pictures = {
        "accuracy": (accuracy_panels, "test accuracy, %"),
        "resources": (resource_panels, ""),
    }
    written = []
    for name, (panels, left) in pictures.items():
        figure = Figure(figsize=(12, 4.6), layout="constrained")
        axes = figure.subplots(1, 3)
        panels(axes, comparison)
        axes[0].set_ylabel(left)
        lines, labels = axes[0].get_legend_handles_labels()
        figure.legend(lines, labels, loc="outside lower center", ncols=4, frameon=False)
        several = any(len(runs) > 1 for runs in comparison.results.values())
        bands = f", bands {BAND:.0%} intervals" * several
        title = f"{comparison.about.title}: mean of {comparison.seeds}{bands}"
        figure.suptitle(title, fontsize=11)
        path = folder / f"{name}.png"
        figure.savefig(path, dpi=110)
        written.append(path)
    return written


def accuracy_panels(axes: "Sequence[Axes]", comparison: Comparison) -> None:
    """Draw three panels: the best accuracy so far, that of the round, and the best by money."""
    best, now, money = axes
    looks = looks_of(comparison.results)
    for label, runs in comparison.results.items():
        band = partial(_band, label=label, look=looks[label])
        rounds = runs[0].columns["round_number"]
        highest, current = curves_of(runs, "best"), curves_of(runs, "accuracy")
        judged = ~np.isnan(current[0])
        band(best, rounds[judged], 100 * highest[:, judged])
        band(now, rounds[judged], 100 * current[:, judged])
        if label != ORACLE:
            paid = np.cumsum(curves_of(runs, "spent"), axis=1).mean(axis=0)
            band(money, paid[judged], 100 * highest[:, judged])
    best.set_title("Best so far", loc="left", fontsize="medium")
    now.set_title("In the round", loc="left", fontsize="medium")
    without = _without_oracle(comparison)
    money.set_title(f"Best so far, by money{without}", loc="left", fontsize="medium")
    for one, name in ((best, "round"), (now, "round"), (money, "money spent")):
        one.set_xlabel(name)
        one.set_ylim(bottom=_floor(comparison))
    bottom, top = best.get_ylim()
    for target in comparison.targets:
        if bottom < 100 * target < top:
            best.axhline(100 * target, color="0.7", linewidth=0.8)
            right = best.get_xlim()[1]
            best.text(right, 100 * target, f"{target:.0%} ", color="0.5", ha="right", va="bottom")
    _count_rounds(best, now)


def _count_rounds(*axes: "Axes") -> None:
    """Put ticks at whole rounds."""
    for one in axes:
        one.locator_params(axis="x", integer=True)


def _without_oracle(comparison: Comparison) -> str:
    return " (without the oracle)" if ORACLE in comparison.results else ""


def _floor(comparison: Comparison) -> float:
    """Return the lowest accuracy to show: a little below those after a quarter of the run."""
    lowest = []
    for runs in comparison.results.values():
        lines = curves_of(runs, "best")
        lowest.append(float(np.nanmin(lines[:, lines.shape[1] // 4 :].mean(axis=0))))
    return max(100 * sorted(lowest)[len(lowest) // 2] - 10, 0)


def resource_panels(axes: "Sequence[Axes]", comparison: Comparison) -> None:
    """Draw three panels: memory, cost debt, and money."""
    stored, debt, spent = axes
    looks = looks_of(comparison.results)
    for label, runs in comparison.results.items():
        band = partial(_band, label=label, look=looks[label])
        rounds = runs[0].columns["round_number"]
        band(stored, rounds, curves_of(runs, "training_size"), seen_only=True)
        if label != ORACLE:
            band(debt, rounds, curves_of(runs, "cost_debt"))
            band(spent, rounds, np.cumsum(curves_of(runs, "spent"), axis=1) / rounds)
    stored.set_title("Memory: samples stored", loc="left", fontsize="medium")
    without = _without_oracle(comparison)
    debt.set_title(f"Cost debt{without}", loc="left", fontsize="medium")
    spent.set_title(f"Spent a round, so far{without}", loc="left", fontsize="medium")
    _count_rounds(*axes)
    for one in axes:
        one.set_xlabel("round")
        one.set_ylim(bottom=0)


def _band(
    axes: "Axes",
    across: FloatArray,
    lines: FloatArray,
    *,
    label: str,
    look: Look,
    seen_only: bool = False,
) -> None:
    """Draw a mean and its interval; with ``seen_only``, only within the observed values."""
    colour, style = look
    middle = lines.mean(axis=0)
    order = 2.0 if style == "-" else 2.1  # a solid line must not hide an equal dashed one
    axes.plot(across, middle, color=colour, linestyle=style, label=label, zorder=order)
    if len(lines) > 1:
        half = np.array([estimate(column.tolist(), BAND).half_width for column in lines.T])
        low, high = middle - half, middle + half
        if seen_only:
            low, high = np.maximum(low, lines.min(axis=0)), np.minimum(high, lines.max(axis=0))
        axes.fill_between(across, low, high, color=colour, alpha=0.15, linewidth=0)
