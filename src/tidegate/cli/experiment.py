"""``tidegate run EXPERIMENT.toml``: policies x seeds, in parallel, resumable."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

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


def run_experiment_file(
    file: Path,
    changes: Mapping[str, Any],
    *,
    out: Path | None,
    workers: int | None,
    engine: str,
) -> None:
    """Run what is not finished, behind a progress bar, and say how to look at it.

    Args:
        file: the experiment's TOML file.
        changes: values in place of the file's.
        out: folder for results; ``runs/`` and the file's name by default.
        workers: processes; one for each core by default.
        engine: ``here`` or ``ray``.
    """
    from tidegate.experiments.config import Experiment  # noqa: PLC0415 - not everyone has these
    from tidegate.experiments.runner import (  # noqa: PLC0415
        about,
        check_task,
        plan_runs,
        run_experiment,
    )

    experiment = Experiment.read(file, changes)
    name = file.parent.name if file.stem == "config" else file.stem
    results = Path("runs") / name if out is None else out
    shown = Console(stderr=True)
    with shown.status("planning"):
        check_task(experiment)
        runs = plan_runs(experiment, results)
        about(experiment, runs).write(results)
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
    with Progress(*columns, console=shown, disable=not shown.is_terminal) as progress:
        task = progress.add_task(f"{len(runs)} runs", total=total)
        made = run_experiment(
            runs,
            workers=workers or os.cpu_count() or 1,
            engine=engine,
            progress=lambda done: progress.update(task, completed=done),
        )
    kept = len(runs) - made
    typer.echo(f"{made} runs made, {kept} were finished before; now: tidegate compare {results}")
