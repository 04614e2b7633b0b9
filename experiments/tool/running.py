"""``python -m experiments run``: policies x seeds, in parallel, resumable."""

import os
import tomllib
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

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

from experiments.tool.config import ExperimentConfig
from experiments.tool.results import finished, other_settings
from tidegate.cli.run import key_and_value
from tidegate.errors import ConfigurationError

if TYPE_CHECKING:
    from experiments.tool.runner import PlannedRun


NOT_INSTALLED = "{} is not installed; pip install '.[experiments]' in the checkout"


def run(
    file: Annotated[Path, typer.Argument(help="TOML file of an experiment.")],
    *,
    change: Annotated[
        list[str] | None,
        typer.Option("--set", help="A value of the experiment, as `key=value`; repeatable."),
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="Folder for results; runs/NAME by default.")
    ] = None,
    workers: Annotated[
        int | None, typer.Option(min=1, help="Runs at once; one for each core by default.")
    ] = None,
    engine: Annotated[
        Literal["here", "counts"],
        typer.Option(
            help="The Flower app in this process, or a linear model without the app (counts), "
            "about a second a run."
        ),
    ] = "here",
) -> None:
    """Run every policy and seed of an experiment in parallel, each in its own folder.

    The same command continues an interrupted experiment, and does not repeat finished runs.

        python -m experiments run experiments/mnist-logistic/config.toml
    """
    changes = {key: _value(text) for key, text in map(key_and_value, change or [])}
    experiment = ExperimentConfig.read(file, changes)  # report its mistakes before missing packages
    experiment.prices(experiment.all_seeds[-1])  # and a short trace before data are loaded
    try:
        import_module("torch")  # first: others stumble where it is missing
        from experiments.tool.runner import (  # noqa: PLC0415 - not everyone has what it needs
            about,
            check_task,
            plan_runs,
            run_experiment,
            traps,
        )
    except ModuleNotFoundError as missing:
        raise ConfigurationError(NOT_INSTALLED.format(missing.name)) from missing
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
    typer.echo(
        f"{made} runs done, {kept} were finished before; next: python -m experiments compare "
        f"{results}"
    )


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


def _value(text: str) -> Any:
    """Parse TOML, or return the text as it is."""
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except (ValueError, RecursionError):
        return text
