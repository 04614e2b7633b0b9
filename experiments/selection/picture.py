"""The picture of docs/selection.md: accuracy by money, with and without a ranking.

python -m experiments.selection.picture experiments/selection/expected.csv selection.png
"""

import argparse
import csv
from collections.abc import Sequence
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from tidegate.report.figures import COLOURS

CURVES = (
    (
        "constant_admission",
        "random",
        "constant admission: always the same number",
        COLOURS[1],
        "o:",
    ),
    ("tide", "random", "Tide: more when the price is low", COLOURS[0], "s--"),
    ("tide", "margin", "Tide by margin: and the samples that teach most", COLOURS[2], "D-"),
)
BUDGETS = "MNIST, budget of "
ORACLE = "MNIST, logistic regression"


def draw(rows: Sequence[dict[str, str]], path: Path) -> None:
    """One curve a policy and ranking, with intervals; the costless oracle as a line."""
    figure = Figure(figsize=(7.5, 4.5), layout="constrained")
    axes = figure.subplots()
    for policy, ranking, text, colour, style in CURVES:
        mine = [
            row
            for row in rows
            if row["task"].startswith(BUDGETS)
            and (row["policy"], row["ranking"]) == (policy, ranking)
        ]
        axes.errorbar(
            [float(row["spent_per_round"]) for row in mine],
            [float(row["best_accuracy"]) for row in mine],
            [float(row["best_half_width"]) for row in mine],
            fmt=style,
            color=colour,
            label=text,
            capsize=3,
        )
    (oracle,) = [row for row in rows if (row["task"], row["policy"]) == (ORACLE, "costless_oracle")]
    level, money = float(oracle["best_accuracy"]), float(oracle["spent_per_round"])
    axes.axhline(level, color="0.4", linewidth=1)
    axes.text(1, level + 0.1, f"an oracle that spends {money:.0f} a round", color="0.3")
    _point_out(axes, rows)
    axes.set(
        xlabel="money a round",
        ylabel="best accuracy in %",
        xlim=(0, None),
        title="MNIST, logistic regression, 100 rounds, 10 seeds",
    )
    axes.grid(alpha=0.3)
    axes.legend(loc="lower right")
    figure.savefig(path, dpi=150)


def _point_out(axes: Axes, rows: Sequence[dict[str, str]]) -> None:
    """Draw an arrow from constant admission to the same accuracy for a quarter of the money."""
    found = {(row["policy"], row["ranking"]): row for row in rows if row["task"] == f"{BUDGETS}55"}
    usual = found["constant_admission", "random"]
    money, level = float(usual["spent_per_round"]), float(usual["best_accuracy"])
    axes.annotate(
        "",
        xy=(money / 4 + 1, level),
        xytext=(money - 1, level),
        arrowprops={"arrowstyle": "-|>", "color": "0.2", "linewidth": 1.5},
    )
    axes.text(39, level - 0.08, "a quarter of the money", ha="center", va="top", fontsize="small")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("table", type=Path, help="what table.py wrote")
    parser.add_argument("picture", type=Path, help="where to draw it")
    given = parser.parse_args()
    with given.table.open(newline="") as file:
        draw(list(csv.DictReader(file)), given.picture)


if __name__ == "__main__":
    main()
