"""What a ranking gains over samples as they come: one row a policy and ranking.

    python -m experiments.selection.table runs/selection-mnist-logistic ... --out expected.csv

Each folder holds the runs of one experiment file of this folder. Gains are paired: a policy with a
ranking against the same policy without one, on the same seeds, prices and streams.
"""

import argparse
from collections.abc import Sequence
from pathlib import Path

from experiments.tool.comparison import write_csv
from experiments.tool.results import RunResult, read_results
from tidegate.simulation.summary import estimate


def best(runs: Sequence[RunResult]) -> dict[int, float]:
    """The highest accuracy of each run in percent, by its seed."""
    return {run.seed: 100 * float(run.best_so_far[-1]) for run in runs}


def rows(folder: Path) -> list[dict[str, object]]:
    """The table of one experiment."""
    about, found = read_results(folder)
    told = []
    for label in about.labels:
        runs = found[label]
        job = runs[0].config["job"]
        mine = best(runs)
        plain = best(found[job["policy"]])
        gain = estimate([mine[seed] - plain[seed] for seed in mine])
        accuracy = estimate(list(mine.values()))
        spent = estimate([float(run.columns["spent"].mean()) for run in runs])
        labels = estimate([float(run.columns["admitted"].sum()) for run in runs])
        told.append(
            {
                "task": about.title.removeprefix("Which samples: "),
                "policy": job["policy"],
                "ranking": label.removeprefix(job["policy"]).strip("-") or "random",
                "best_accuracy": f"{accuracy.mean:.2f}",
                "best_half_width": f"{accuracy.half_width:.2f}",
                "gain_over_random": f"{gain.mean:.2f}" if label != job["policy"] else "",
                "gain_half_width": f"{gain.half_width:.2f}" if label != job["policy"] else "",
                "spent_per_round": f"{spent.mean:.1f}",
                "labels": f"{labels.mean:.0f}",
                "spend_ahead": "0" if job.get("spend_ahead") == 0 else "no limit",
                "seeds": len(runs),
            }
        )
    return told


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folders", nargs="+", type=Path, help="results of tidegate run")
    parser.add_argument("--out", type=Path, required=True, help="the table, as CSV")
    given = parser.parse_args()
    write_csv(given.out, [row for folder in given.folders for row in rows(folder)])


if __name__ == "__main__":
    main()
