"""Compare the finished runs of an experiment: a table and two CSV files."""

import csv
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
from rich.box import SIMPLE_HEAD
from rich.table import Table
from rich.text import Text

from experiments.tool.results import About, RunResult
from tidegate._internal.arrays import FloatArray
from tidegate._internal.words import counted
from tidegate.report.tables import ORACLE, part_of_limit, show
from tidegate.simulation.summary import Estimate, estimate, share_of

BAND = 0.8
"""Confidence of the bands in pictures, as in the paper."""
BASELINE = "constant_admission"
LESS_ASKED = ("last", "mean", "stored", "effective", "limit")
"""Columns that a narrow screen does not show."""
Results = Mapping[str, Sequence[RunResult]]

MEASURES: Mapping[str, Callable[[RunResult], float]] = {
    "best_accuracy": lambda run: 100 * float(run.best_so_far[-1]),
    "mean_accuracy": lambda run: 100 * float(np.nanmean(run.columns["accuracy"])),
    "last_accuracy": lambda run: 100 * float(run.columns["accuracy"][-1]),
    "last_loss": lambda run: float(run.columns["loss"][-1]),
    "spent_per_round": lambda run: float(run.columns["spent"].mean()),
    "mean_stored": lambda run: float(run.columns["training_size"].mean()),
    "peak_stored": lambda run: float(run.columns["training_size"].max()),
    "distinct_per_round": lambda run: _last(run, "distinct_samples") / _rounds(run),
    "effective_per_round": lambda run: _last(run, "effective_samples") / _rounds(run),
    "overspend": lambda run: float((run.columns["spent"] - run.common_budget).sum()),
    "cost_debt": lambda run: float(run.cost_debt[-1]),
    "ran_dry": lambda run: float(run.columns["exhausted"].max()),
}
"""The measures, by their columns in ``summary.csv``; accuracies in percent."""


def _last(run: RunResult, column: str) -> float:
    return float(run.columns[column][-1])


def _rounds(run: RunResult) -> int:
    return len(run.columns["round_number"])


@dataclass(frozen=True)
class Share:
    """The part of the gap between the baseline and the costless oracle that a policy closes."""

    mean: float
    interval: tuple[float, float] | None
    """None if the oracle's lead is within its own interval, or if there is only one seed."""
    exact: bool = False
    """Whether it is exact: 0 for the baseline, 1 for the oracle."""

    def told(self, *, interval: bool) -> str:
        """Return the share in percent."""
        percent = f"{round(100 * self.mean)}%"
        if self.exact or not interval:
            return percent
        if self.interval is None:
            return f"{percent} (?)"
        low, high = (round(100 * end) for end in self.interval)
        return f"{percent} ({low} to {high})"


@dataclass(frozen=True)
class Comparison:
    """Measures of every policy, and differences from the baseline on equal seeds."""

    results: Results
    about: About
    against: str = BASELINE
    """The baseline, if it was run."""

    @property
    def targets(self) -> Sequence[float]:
        """Accuracies whose first round is reported."""
        return self.about.targets

    @property
    def limit(self) -> float | None:
        """The most effective samples a round that are possible, if known."""
        return self.about.limit

    @property
    def baseline(self) -> str:
        """The policy that others are compared with."""
        return self.against if self.against in self.results else next(iter(self.results))

    def measures(self, label: str) -> dict[str, Estimate]:
        """Return the measures of a policy, as means over seeds."""
        return {
            name: estimate([one(run) for run in self.results[label]])
            for name, one in MEASURES.items()
        }

    def difference(self, label: str, measure: str, other: str | None = None) -> Estimate | None:
        """Return a policy's difference from another, or the baseline, on their common seeds."""
        one = MEASURES[measure]
        others = {run.seed: one(run) for run in self.results[other or self.baseline]}
        pairs = [one(run) - others[run.seed] for run in self.results[label] if run.seed in others]
        return estimate(pairs) if pairs else None

    def gap_closed(self, label: str, measure: str = "best_accuracy") -> Share | None:
        """Return the part of the gap that a policy closes; None without oracle, or if it ran dry.

        Only seeds that policy, baseline and oracle have run count.
        """
        if ORACLE not in self.results or self.baseline == ORACLE or self.most_dry(ORACLE):
            return None
        values = [
            {run.seed: MEASURES[measure](run) for run in self.results[name]}
            for name in (label, self.baseline, ORACLE)
        ]
        seeds = sorted(set.intersection(*map(set, values)))
        own, base, oracle = ([one[seed] for seed in seeds] for one in values)
        parts, wholes = ([one - b for one, b in zip(v, base, strict=True)] for v in (own, oracle))
        if not sum(wholes):
            return None
        if label in (self.baseline, ORACLE):
            return Share(float(label == ORACLE), None, exact=True)
        return Share(sum(parts) / sum(wholes), share_of(parts, wholes))

    def most_dry(self, label: str) -> int:
        """Return the most clients without fresh samples in any run of a policy."""
        return int(max(MEASURES["ran_dry"](run) for run in self.results[label]))

    def rounds_to(self, label: str, target: float) -> tuple[float, int]:
        """Return the median of the first rounds that reach a target, and how many runs do."""
        firsts = [run.first_round(target) for run in self.results[label]]
        return float(np.median(firsts)), sum(map(math.isfinite, firsts))

    def rows(self) -> list[dict[str, object]]:
        """Return one plain row a policy, for CSV and JSON."""
        told = []
        for label, runs in self.results.items():
            row: dict[str, object] = {
                "policy": label,
                "seeds": len(runs),
                "budget": runs[0].config["job"]["budget"],
            }
            for name, value in self.measures(label).items():
                row[name] = _plain(value.mean)
                row[f"{name}_half_width"] = _plain(value.half_width)
            for name in ("best_accuracy", "mean_accuracy", "last_accuracy"):
                gain = self.difference(label, name)
                row[f"{name}_gain"] = _plain(gain.mean) if gain else None
                row[f"{name}_gain_half_width"] = _plain(gain.half_width) if gain else None
            for name in ("best_accuracy", "mean_accuracy"):
                closed = self.gap_closed(label, name)
                low, high = (closed and closed.interval) or (None, None)
                row[f"{name}_gap_closed"] = _plain(closed.mean) if closed else None
                row[f"{name}_gap_closed_low"] = _plain(low)
                row[f"{name}_gap_closed_high"] = _plain(high)
            for target in self.targets:
                first, reached = self.rounds_to(label, target)
                row[f"rounds_to_{100 * target:g}"] = _plain(first)
                row[f"reached_{100 * target:g}"] = reached
            if self.limit:
                row["limit_reached"] = _plain(
                    self.measures(label)["effective_per_round"].mean / self.limit
                )
            told.append(row)
        return told

    def table(self, *, intervals: bool = True) -> Table:
        """Return the table for people; without intervals, only its main columns."""
        how = f"mean over {self.seeds}{' ± 95% interval' * intervals}; accuracies in %"
        title = f"{self.about.title}: {how}"
        table = Table(title=title, title_justify="left", box=SIMPLE_HEAD, show_edge=False)
        table.padding = 0, 1, 0, 0
        table.add_column("policy", no_wrap=intervals, overflow="fold", min_width=18)
        for label in self.results:
            found = self.measures(label)
            gain, closed = self.difference(label, "best_accuracy"), self.gap_closed(label)
            shown = partial(show, interval=intervals)
            cells = {
                "best": shown(found["best_accuracy"]),
                "gain": "" if gain is None or label == self.baseline else show(gain),
                "last": shown(found["last_accuracy"]),
                "gap": closed.told(interval=intervals) if closed else "",
                "mean": shown(found["mean_accuracy"]),
                "spent": shown(found["spent_per_round"]),
                "stored": shown(found["mean_stored"]),
                "peak": shown(found["peak_stored"]),
                "effective": shown(found["effective_per_round"]),
            }
            if self.limit:
                effective = found["effective_per_round"].mean
                cells["limit"] = part_of_limit(label, effective, self.limit)
            for target in self.targets if intervals else self.targets[-1:]:
                first, reached = self.rounds_to(label, target)
                count = len(self.results[label])
                whole = "" if reached == count else f" ({reached}/{count})"
                told = f"{first:g}{whole}" if math.isfinite(first) else f"-{whole}"
                cells[f"to {100 * target:g}%"] = told
            names = [name for name in cells if intervals or name not in LESS_ASKED]
            if self.gap_closed(self.baseline) is None:
                names.remove("gap")
            if not table.rows:
                for name in names:
                    table.add_column(name, justify="right", no_wrap=True)
            table.add_row(Text(label), *(cells[name] for name in names))
        return table

    @property
    def seeds(self) -> str:
        """How many seeds the policies have run, in words."""
        counts = sorted({len(runs) for runs in self.results.values()})
        few = f"{counts[0]} to " * (len(counts) > 1)
        return f"{few}{counted(counts[-1], 'seed')}"

    def legend(self, *, intervals: bool = True) -> str:
        """Return an explanation of the columns."""
        told = ["best: highest test accuracy of the run."]
        if len(self.results) > 1:
            told.append(f"gain: how much more than {self.baseline} has on the same seeds.")
        if self.gap_closed(self.baseline) is not None:
            told.append(
                "gap: the part of the way to costless_oracle, in the best accuracy"
                f"{' (?: its lead is within its interval)' * intervals}."
            )
        if intervals:
            told.append(
                "last: in the last round. mean: averaged over the rounds, higher if learned early. "
                "stored: samples, on average. effective: effective samples gained a round."
            )
        told.append("spent: a round. peak: the most samples stored.")
        if self.limit and intervals:
            told.append(
                f"limit: effective samples as a part of {self.limit:,.4g}, the most that full "
                "buffers can gain in the long run."
                + f" {ORACLE} has no budget, and so no limit."
                * (ORACLE in self.results)
            )
        if self.targets:
            told.append("to N%: median of the first rounds that reach it (runs that do).")
        dry = [f"{label} ({n} clients)" for label in self.results if (n := self.most_dry(label))]
        if dry:
            told.append(f"Used up their streams: {', '.join(dry)}.")
        return " ".join(told)


def _plain(value: float | None) -> float | None:
    """Return a rounded number; None if it is not finite."""
    if value is None or not math.isfinite(value):
        return None
    return float(f"{value:.6g}")


def write_tables(comparison: Comparison, folder: Path) -> list[Path]:
    """Write ``summary.csv``, one row a policy, and ``rounds.csv``, one row a policy and round."""
    folder.mkdir(parents=True, exist_ok=True)
    summary, rounds = folder / "summary.csv", folder / "rounds.csv"
    write_csv(summary, comparison.rows())
    curves = ("accuracy", "best", "spent", "training_size", "cost_debt", "effective_samples")
    lines: list[dict[str, object]] = []
    for label, runs in comparison.results.items():
        columns = {name: curves_of(runs, name) for name in curves}
        for number in range(_rounds(runs[0])):
            row: dict[str, object] = {"policy": label, "round": number + 1}
            for name, values in columns.items():
                column = values[:, number] * (100 if name in ("accuracy", "best") else 1)
                judged = not np.isnan(column).any()
                found = estimate(column.tolist(), BAND) if judged else None
                row[name] = None if found is None else _plain(found.mean)
                row[f"{name}_half_width"] = None if found is None else _plain(found.half_width)
            lines.append(row)
    write_csv(rounds, lines)
    return [summary, rounds]


def write_csv(path: Path, rows: Sequence[Mapping[str, object]]) -> None:
    """Write rows that all have the same keys."""
    with path.open("w", newline="", encoding="utf-8") as lines:
        writer = csv.DictWriter(lines, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)


def curves_of(runs: Sequence[RunResult], name: str) -> FloatArray:
    """Return one row a run, one column a round."""
    own = {"best": lambda run: run.best_so_far, "cost_debt": lambda run: run.cost_debt}
    values = [own[name](run) if name in own else run.columns[name] for run in runs]
    lines: FloatArray = np.array(values)
    return lines
