"""The picture of docs/selection.md: accuracy by money, with and without a ranking.

python experiments/selection/picture.py experiments/selection/expected.csv selection.png
"""

import argparse
import csv
from collections.abc import Sequence
from pathlib import Path

from matplotlib.figure import Figure

from tidegate.report.figures import COLOURS

CURVES = (
    ("constant_admission", "random", "constant admission, samples as they come", COLOURS[1], "o:"),
    ("tide", "random", "Tide, samples as they come", COLOURS[0], "s--"),
    ("tide", "margin", "Tide, ranked by margin", COLOURS[2], "D-"),
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
    axes.text(1, level + 0.1, f"costless oracle, which spends {money:.0f} a round", color="0.3")
    axes.set(
        xlabel="money a round",
        ylabel="best accuracy in %",
        xlim=(0, None),
        title="MNIST, logistic regression, 100 rounds, 10 seeds",
    )
    axes.grid(alpha=0.3)
    axes.legend(loc="lower right")
    figure.savefig(path, dpi=150)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("table", type=Path, help="what table.py wrote")
    parser.add_argument("picture", type=Path, help="where to draw it")
    given = parser.parse_args()
    with given.table.open(newline="") as file:
        draw(list(csv.DictReader(file)), given.picture)


if __name__ == "__main__":
    main()
