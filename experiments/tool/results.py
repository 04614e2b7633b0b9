"""The results of a run: one folder with its configuration and one row a round."""

import contextlib
import importlib.metadata
import itertools
import json
import math
import os
import platform
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from tidegate._internal.arrays import FloatArray
from tidegate.admission.debt import next_cost_debt
from tidegate.errors import ConfigurationError
from tidegate.problem import LearningConstants
from tidegate.server.fleet_round import FleetRound
from tidegate.theory.bounds import SampleSizes, bound_terms

ABOUT = "experiment.json"
CONFIG = "run.json"
ROWS = "rounds.jsonl"
UNFINISHED = "rounds.jsonl.part"
"""The name of an unfinished file, before the process id: old processes write to other files."""
VERSIONS = ("tidegate", "flwr", "torch", "numpy", "datasets", "flwr-datasets")


class RowWriter:
    """Writes one row a round; the file gets its final name at the end of the run."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._path = folder / f"{UNFINISHED}-{os.getpid()}"
        self._lines = self._path.open("w", encoding="utf-8")

    def write(
        self, done: FleetRound, accuracy: float, loss: float, learning: LearningConstants
    ) -> None:
        """Write the figures of a round."""
        sizes = SampleSizes(
            *(
                np.array([float(value)])
                for value in (done.training_size, done.distinct_samples, done.effective_samples)
            )
        )
        terms = bound_terms(sizes, learning)
        distinct = done.distinct_samples
        row = {
            **done.numbers(),
            "reuse_uniformity": done.effective_samples / distinct if distinct else 1.0,
            "accuracy": accuracy,
            "loss": loss,
            **{name: float(values[0]) for name, values in vars(terms).items()},
        }
        self._lines.write(json.dumps({name: _plain(value) for name, value in row.items()}) + "\n")
        self._lines.flush()

    def finish(self) -> None:
        """Give the file its final name, because all rounds are written."""
        self.close()
        self._path.rename(self._path.with_name(ROWS))

    def close(self) -> None:
        """Close the file."""
        self._lines.close()


def _plain(value: float) -> float | None:
    """Return None for values that JSON cannot hold: not measured, or an infinite bound."""
    return value if math.isfinite(value) else None


def rows_so_far(folder: Path) -> int:
    """Return the finished rounds of a run, for a progress bar."""
    counts = [0]
    for path in folder.glob("rounds.jsonl*"):
        with contextlib.suppress(FileNotFoundError), path.open("rb") as lines:  # just renamed
            counts.append(sum(1 for _ in lines))
    return max(counts)


def discard(folder: Path) -> None:
    """Delete the rows of an earlier run."""
    for path in folder.glob("rounds.jsonl*"):
        path.unlink(missing_ok=True)


def write_config(folder: Path, config: Mapping[str, Any]) -> None:
    """Write the configuration of a run, with versions."""
    folder.mkdir(parents=True, exist_ok=True)
    versions = {name: importlib.metadata.version(name) for name in VERSIONS}
    machine = {"python": platform.python_version(), "machine": platform.machine()}
    told = {**config, "versions": {**versions, **machine}}
    (folder / CONFIG).write_text(json.dumps(told, indent=2) + "\n", "utf-8")


def finished(folder: Path, config: Mapping[str, Any]) -> bool:
    """Return whether a folder holds a finished run of this configuration."""
    told = _finished_config(folder)
    return told is not None and {name: told.get(name) for name in config} == dict(config)


def other_settings(folder: Path, config: Mapping[str, Any]) -> dict[str, tuple[Any, Any]]:
    """Return where a finished run differs from a configuration: its value and the new one."""
    told = _finished_config(folder)
    if told is None:
        return {}
    there, here = told.get("job", {}), config["job"]
    return {name: (there.get(name), here[name]) for name in here if there.get(name) != here[name]}


def _finished_config(folder: Path) -> dict[str, Any] | None:
    """Return the configuration of a finished run; None if the folder holds none."""
    whole = (folder / ROWS).exists() and (folder / CONFIG).exists()
    return _read_config(folder) if whole else None


def _read_config(folder: Path) -> dict[str, Any]:
    told: dict[str, Any] = json.loads((folder / CONFIG).read_text("utf-8"))
    return told


@dataclass(frozen=True)
class RunResult:
    """A finished run."""

    label: str
    seed: int
    config: Mapping[str, Any]
    folder: Path
    common_budget: float
    """C of the experiment; the run's own budget may be fitted to its spending."""

    @cached_property
    def columns(self) -> dict[str, FloatArray]:
        """The rows by column; NaN in rounds without an evaluation."""
        lines = (self.folder / ROWS).read_text("utf-8").splitlines()
        rows = [json.loads(line) for line in lines]
        return {name: np.array([row[name] for row in rows], dtype=float) for name in rows[0]}

    @cached_property
    def cost_debt(self) -> FloatArray:
        """Z after each round, with respect to C."""
        debts = itertools.accumulate(
            self.columns["spent"].tolist(),
            lambda debt, spent: next_cost_debt(debt, spent, self.common_budget),
            initial=0.0,
        )
        return np.array(list(debts)[1:])

    @property
    def best_so_far(self) -> FloatArray:
        """The highest accuracy up to each round."""
        judged = np.nan_to_num(self.columns["accuracy"], nan=-np.inf)
        best: FloatArray = np.maximum.accumulate(judged)
        return np.where(np.isneginf(best), np.nan, best)

    def first_round(self, target: float) -> float:
        """Return the first round whose accuracy reaches a target; infinity if none does."""
        reached = np.flatnonzero(self.best_so_far >= target)
        return float(self.columns["round_number"][reached[0]]) if len(reached) else float("inf")


@dataclass(frozen=True)
class About:
    """The description of an experiment, written beside its runs."""

    title: str
    labels: tuple[str, ...]
    """The labels of its policies, in their order."""
    budget: float
    limit: float | None
    """The most effective samples a round that full buffers can gain, if known."""
    targets: tuple[float, ...]
    runs: Mapping[str, Mapping[str, Any]]
    """The configuration of each run, by folder; other runs there have other settings."""

    def write(self, folder: Path) -> None:
        """Write the description into the folder of results."""
        folder.mkdir(parents=True, exist_ok=True)
        (folder / ABOUT).write_text(json.dumps(vars(self), indent=2) + "\n", "utf-8")


def read_results(folder: Path) -> tuple[About, dict[str, list[RunResult]]]:
    """Read all finished runs of the newest experiment in a folder.

    Returns:
        The description, and the runs by label, in the order of their seeds.
    """
    found: dict[str, list[RunResult]] = {}
    if (folder / ABOUT).exists():
        told = json.loads((folder / ABOUT).read_text("utf-8"))
        about = About(**told | {name: tuple(told[name]) for name in ("labels", "targets")})
        for place, config in about.runs.items():
            if finished(folder / place, config):
                told = _read_config(folder / place)
                run = RunResult(
                    told["label"], told["job"]["seed"], told, folder / place, about.budget
                )
                found.setdefault(run.label, []).append(run)
    if not found:
        raise ConfigurationError(
            f"{folder} has no finished run; start some with `python -m experiments run FILE.toml`"
        )
    runs = {
        label: sorted(found[label], key=lambda run: run.seed)
        for label in about.labels
        if label in found
    }
    return about, runs


def left_out(folder: Path, results: Mapping[str, Sequence[RunResult]]) -> list[Path]:
    """Return finished runs in a folder whose settings differ from these results."""
    taken = {run.folder for runs in results.values() for run in runs}
    return sorted(file.parent for file in folder.glob(f"*/*/{ROWS}") if file.parent not in taken)
