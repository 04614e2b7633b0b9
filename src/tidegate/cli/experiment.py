"""``tidegate run EXPERIMENT.toml``: policies x seeds, in parallel, resumable."""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer
from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

from tidegate.errors import ConfigurationError
from tidegate.experiments.config import ExperimentConfig
from tidegate.experiments.results import finished, other_settings

if TYPE_CHECKING:
    from tidegate.experiments.runner import PlannedRun


def run_experiment_file(
    file: Path,
    changes: Mapping[str, Any],
    *,
    out: Path | None,
    workers: int | None,
    engine: str,
) -> None:
    """Run what is not finished, with a progress bar, and say how to look at the results.

    Args:
        file: the experiment's TOML file.
        changes: values that replace the file's.
        out: folder for results; ``runs/`` and the file's name by default.
        workers: processes; one for each core by default.
        engine: ``here``, ``counts`` or ``ray``.
    """
    experiment = ExperimentConfig.read(file, changes)  # report its mistakes before missing packages
    experiment.prices(experiment.all_seeds[-1])  # and a short trace before data are loaded
    from tidegate.experiments.runner import (  # noqa: PLC0415 - not everyone has what it needs
        about,
        check_task,
        plan_runs,
        run_experiment,
        traps,
    )

    name = file.parent.name if file.stem == "config" else file.stem
    results = Path("runs") / name if out is None else out
    shown = Console(stderr=True)
    with shown.status("planning"):
        check_task(experiment)
        runs = plan_runs(experiment, results)
        _keep_what_is_finished(runs)
        about(experiment, runs).write(results)
    for trap in traps(experiment):
        shown.print(f"note: {trap}", highlight=False)
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("rounds"),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
    )
    total = sum(run.job.rounds for run in runs)

    def ended(run: "PlannedRun") -> None:
        if not shown.is_terminal:  # in a log, one line replaces the bar
            typer.echo(f"{run.label}, seed {run.job.seed}: {run.job.rounds} rounds", err=True)

    with Progress(*columns, console=shown, disable=not shown.is_terminal) as progress:
        task = progress.add_task(f"{len(runs)} runs", total=total)
        try:
            made = run_experiment(
                runs,
                workers=workers or os.cpu_count() or 1,
                engine=engine,
                progress=lambda done: progress.update(task, completed=done),
                ended=ended,
            )
        except KeyboardInterrupt:
            over = sum(finished(run.folder, run.config) for run in runs)
            typer.echo(
                f"interrupted: {over} of {len(runs)} runs are finished; run the same command "
                "again to continue with the others",
                err=True,
            )
            raise
    kept = len(runs) - made
    typer.echo(f"{made} runs done, {kept} were finished before; next: tidegate compare {results}")


def _keep_what_is_finished(runs: "Sequence[PlannedRun]") -> None:
    """Refuse to overwrite finished runs with other settings."""
    for run in runs:
        others = other_settings(run.folder, run.config)
        if others:
            name, (there, here) = next(iter(others.items()))
            raise ConfigurationError(
                f"{run.folder} holds a finished run with {name} = {there}, but this one has "
                f"{here}; give another folder with --out, or remove that one"
            )
