"""How many labels a ranking needs for the accuracy that samples as they come reach at the end.

    python -m experiments.selection.labels runs/mnist-fixed ... --out labels.csv

Each folder holds the runs of one experiment at a fixed price. For every seed: the labels that were
paid for when the ranked run's best accuracy so far first reached the best of the run without a
ranking, divided by all the labels of that run. A run that never does counts as 1.
"""

import argparse
from pathlib import Path

import numpy as np

from experiments.tool.comparison import write_csv
from experiments.tool.results import RunResult, read_results
from tidegate.simulation.summary import estimate


def share_needed(ranked: RunResult, plain: RunResult) -> float:
    """The share of the plain run's labels that the ranked one needs for the same accuracy."""
    paid = np.cumsum(ranked.columns["admitted"])
    reached = np.flatnonzero(ranked.best_so_far >= plain.best_so_far[-1])
    if not len(reached):
        return 1.0
    return float(paid[reached[0]] / plain.columns["admitted"].sum())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folders", nargs="+", type=Path, help="results of tidegate run")
    parser.add_argument("--out", type=Path, required=True, help="the table, as CSV")
    given = parser.parse_args()
    rows = []
    for folder in given.folders:
        about, found = read_results(folder)
        for label in about.labels:
            runs = {run.seed: run for run in found[label]}
            policy = next(iter(runs.values())).config["job"]["policy"]
            if label == policy:
                continue
            plain = {run.seed: run for run in found[policy]}
            needed = estimate([100 * share_needed(runs[seed], plain[seed]) for seed in runs])
            rows.append(
                {
                    "task": about.title.removeprefix("Which samples: "),
                    "ranking": label.removeprefix(policy).strip("-"),
                    "labels_needed_percent": f"{needed.mean:.1f}",
                    "half_width": f"{needed.half_width:.1f}",
                    "seeds": len(runs),
                }
            )
    write_csv(given.out, rows)


if __name__ == "__main__":
    main()
