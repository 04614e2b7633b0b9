"""The page of an experiment: accuracy, money and memory of each policy."""

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from rich.table import Column

from experiments.tool.comparison import BAND, Comparison
from experiments.tool.figures import accuracy_panels, resource_panels
from tidegate.report.page import Picture, Rows, Section, drawing, new_panel, write_page
from tidegate.report.tables import ORACLE, show
from tidegate.simulation.summary import Estimate

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MakePicture = Callable[["Figure", str, str], Picture]
Panels = Callable[["Sequence[Axes]", Comparison], None]

SHORT_LABEL = 20
LONG_LABEL = 32
"""Characters of a label: legends use a small font above the first, one column above the second."""
RESOURCES = ("spent", "stored", "peak", "effective", "limit")
"""Columns of the table about money and memory; the others are about accuracy."""
CAVEATS = (
    (
        "Gains compare equal seeds, with the same prices and samples for all policies; an interval "
        "that contains 0 shows no difference."
    ),
    (
        "Test accuracy is measured on the server's test set, which also selects a policy's best "
        "round: best accuracies are a little too high, for every policy alike."
    ),
)


def write_comparison_page(comparison: Comparison, path: Path, command: str) -> None:
    """Write the page of an experiment's finished runs."""
    with drawing() as picture:
        learned = _pictures(accuracy_panels, comparison, picture, "test accuracy, %")
        paid = _pictures(resource_panels, comparison, picture)
    count = len(comparison.results)
    policies = f"{count} {'policy' if count == 1 else 'policies'}"
    lead = f"{_answer(comparison)}\n{policies} over {comparison.seeds}; of each run its best round."
    sections = [
        Section("What was learned", [comparison.legend()], tables=_tables(comparison)),
        Section("Accuracy", _bands(comparison), pictures=learned),
        Section("Money and memory", pictures=paid),
        Section("Caveats", CAVEATS),
        Section("What was run", command=command, details=_configurations(comparison)),
    ]
    write_page(path, comparison.about.title, lead, sections)


def _answer(comparison: Comparison) -> str:
    """Return which policy leads, by how much and how certainly, and the oracle's accuracy."""
    reached = {label: comparison.measures(label)["best_accuracy"] for label in comparison.results}
    oracle = reached.pop(ORACLE, None) if len(reached) > 1 else None
    best, *others = sorted(reached, key=lambda label: -reached[label].mean)
    told = _lead(comparison, best, others[0]) if others else f"{best} reaches"
    told += f" {show(reached[best])} %"
    if others:
        told += f" test accuracy, {others[0]} {show(reached[others[0]])} %"
    else:
        told += " test accuracy"
    gain = comparison.difference(best, "best_accuracy")
    if comparison.baseline not in (best, *others[:1]) and gain is not None:
        sure = " (which may be chance)" * may_be_chance(gain)
        told += f"; over {comparison.baseline} it gains {show(gain)} points{sure}"
    if oracle is not None:
        told += f"; {ORACLE}, which has no budget, reaches {show(oracle)} %"
    return f"{told}."


def _lead(comparison: Comparison, best: str, second: str) -> str:
    """Return whether the best policy is better than the second, on their common seeds."""
    gap = comparison.difference(best, "best_accuracy", second)
    if gap is None:
        return f"{best} and {second} have no seed in common, so neither leads: {best} reaches"
    if gap.interval is None:
        return (
            f"{best} is {show(gap)} points above {second} on the one seed that both have run, "
            f"which may be chance: {best} reaches"
        )
    between = f"{show(gap)} points on the same seeds (95 % interval)"
    if may_be_chance(gap):
        return (
            f"No policy leads for certain: {best} and {second} differ by {between}, which may be "
            f"chance: {best} reaches"
        )
    return f"{best} leads {second} by {between}: it reaches"


def may_be_chance(difference: Estimate) -> bool:
    """Return whether a difference has no interval, or one that contains 0."""
    ends = difference.interval
    return ends is None or ends[0] <= 0 <= ends[1]


def _bands(comparison: Comparison) -> list[str]:
    """Return the caption of lines and bands; empty for a single seed."""
    several = any(len(runs) > 1 for runs in comparison.results.values())
    return [f"Lines are means over seeds, bands {BAND:.0%} intervals."] if several else []


def _tables(comparison: Comparison) -> list[Rows]:
    """Return the table of the command ``compare`` in two parts: accuracy and resources."""
    table = comparison.table()
    policy, *columns = [column for column in table.columns if any(map(str, column.cells))]
    resources = [column for column in columns if column.header in RESOURCES]
    accuracies = [column for column in columns if column.header not in RESOURCES]

    def part(caption: str, columns: list[Column]) -> Rows:
        header = [str(column.header) for column in (policy, *columns)]
        cells = [list(column.cells) for column in (policy, *columns)]
        rows = [[str(cell) for cell in row] for row in zip(*cells, strict=True)]
        return Rows(caption, header, rows)

    return [part(str(table.title), accuracies), part("Money and memory", resources)]


def _pictures(
    panels: Panels, comparison: Comparison, picture: MakePicture, left: str = ""
) -> list[Picture]:
    drawn = [new_panel("") for _ in range(3)]
    panels([axes for _, axes in drawn], comparison)
    pictures = []
    for figure, axes in drawn:
        axes.set_ylabel(left)
        lines, labels = axes.get_legend_handles_labels()
        longest = max(map(len, labels), default=0)
        figure.legend(
            lines,
            labels,
            loc="outside lower center",
            ncols=2 if longest <= LONG_LABEL else 1,
            fontsize="medium" if longest <= SHORT_LABEL else "small",
        )
        title = axes.get_title(loc="left")
        ends = "; ".join(
            f"{line.get_label()} ends at {float(line.get_ydata()[-1]):,.4g}"  # type: ignore[index, arg-type]
            for line in axes.get_lines()
            if not str(line.get_label()).startswith("_") and len(line.get_ydata())  # type: ignore[arg-type]
        )
        pictures.append(picture(figure, f"{title}: {ends}.", ""))
    return pictures


def _configurations(comparison: Comparison) -> list[Rows]:
    found = []
    for label, runs in comparison.results.items():
        config = runs[0].config
        told = {**config["job"], **config.get("versions", {})}
        rows = [[name, json.dumps(value)] for name, value in told.items()]
        found.append(
            Rows(f"{label}, first seed: settings and versions", ["setting", "value"], rows)
        )
    return found
