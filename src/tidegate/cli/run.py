"""``tidegate run``: run a Flower app in this process."""

import contextlib
import traceback
from pathlib import Path
from time import perf_counter, time
from typing import TYPE_CHECKING, Annotated

import typer
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from tidegate._internal.saving import read_toml
from tidegate._internal.words import counted
from tidegate.errors import ConfigurationError, NothingLearnedError
from tidegate.report.live import summary
from tidegate.report.tables import amount
from tidegate.runs.folder import AS_THEY_COME
from tidegate.runs.reader import read_run
from tidegate.server.fleet_round import sums_of

if TYPE_CHECKING:
    from tidegate.cli.rounds_bar import Rounds
    from tidegate.flower.local_grid import Answers

INTERRUPTED = 130
"""Exit code of a command that Ctrl-C has stopped."""

NOT_SAVED = (
    "nothing was saved, because AdmissionControl was given no folder. An app that takes it from "
    "the run-config under the name `folder`, as those of `tidegate new` do, saves the run with "
    "--set folder=run"
)


def run(
    app: Annotated[
        Path,
        typer.Argument(help="Folder of a Flower app.", show_default="this folder"),
    ] = Path(),
    *,
    clients: Annotated[int, typer.Option(min=1, help="Number of clients.")] = 10,
    change: Annotated[
        list[str] | None,
        typer.Option("--set", help="A value of the run-config, as `key=value`; repeatable."),
    ] = None,
    beside: Annotated[
        bool | None,
        typer.Option(
            "--beside/--alone",
            help="Run the app once more for the same money, on samples as they come, and compare; "
            "by default if `beside = true` stands in [tool.tidegate] of its pyproject.toml.",
            show_default=False,
        ),
    ] = None,
    verbose: Annotated[bool, typer.Option(help="Flower's whole log instead of progress.")] = False,
) -> None:
    """Run a Flower app in this process.

    APP is the folder with an app's `pyproject.toml`. The app runs unchanged, without Ray and
    without servers: clients are function calls, one after another. With `--set folder=run` the
    server saves the run and clients keep their samples in `run/buffers` (or in `tidegate-folder`),
    and the same command resumes it. Without a folder everything is in memory. The same seed gives
    the same orders, model and receipts (except for the digest of each device's own record) as `flwr
    run` on Flower's Simulation and Deployment engines.

    The command exits with 2 for a mistake that Tidegate refuses, and with 1 if the app raised, if
    its last rounds used no client's model, or if all messages of a kind failed.

    The quickstart, LeNet on MNIST:

        tidegate run examples/quickstart

    Five clients, and a run that the same command resumes:

        tidegate run examples/quickstart --clients 5 --set folder=run

    What choosing samples gains: the run beside it takes samples as they come, lets the oldest go,
    and is saved in `run/as-they-come`:

        tidegate run my-fleet --set folder=run --beside
    """
    try:
        import tidegate.flower.app  # noqa: F401, PLC0415 - not everyone has Flower
    except ModuleNotFoundError as missing:
        raise ConfigurationError(
            f"{missing.name} is not installed; pip install 'tidegate[flower]'"
        ) from missing
    except ImportError as unsupported:
        raise ConfigurationError(str(unsupported)) from unsupported
    changes = dict(map(key_and_value, change or []))
    chosen = _run_app(app, clients, changes, verbose=verbose)
    if _is_compared(app) if beside is None else beside:
        changes |= _places_beside(app, changes)
        plain = _run_app(app, clients, changes, verbose=verbose, as_they_come=True)
        Console(highlight=False).print(_comparison(chosen, plain))


def _is_compared(app: Path) -> bool:
    """Return whether the app itself asks for a run beside it."""
    settings = read_toml(app / "pyproject.toml").get("tool", {}).get("tidegate", {})
    return bool(settings.get("beside"))


def _places_beside(app: Path, changes: dict[str, str]) -> dict[str, str]:
    """Return the folder and the name of the run beside, where the app's run has them."""
    from tidegate.flower.app import run_config_of  # noqa: PLC0415

    config = run_config_of(app, changes)
    ends = {"folder": f"/{AS_THEY_COME}", "run": f"-{AS_THEY_COME}"}
    return {key: f"{config[key]}{end}" for key, end in ends.items() if config.get(key)}


def _comparison(chosen: "Answers", plain: "Answers") -> Table:
    """Return a table of two runs: what the server measured, and what was bought for how much."""
    table = Table("", "chosen", "as they come", box=SIMPLE_HEAD, show_edge=False)
    for column in table.columns[1:]:
        column.justify = "right"
    for mine, other in zip(chosen.runs, plain.runs, strict=False):
        for name in filter(other.metrics.__contains__, mine.metrics):
            table.add_row(name, *(f"{run.metrics[name]:.4g}" for run in (mine, other)))
        if mine.rounds and other.rounds:
            sums = zip(sums_of(mine.rounds), sums_of(other.rounds), strict=True)
            bought, spent, (allowed, _) = sums
            table.add_row("samples bought", *map(amount, bought))
            table.add_row(f"spent of {amount(allowed)}", *map(amount, spent))
    return table


def _run_app(
    app: Path,
    num_clients: int,
    changes: dict[str, str],
    *,
    verbose: bool,
    as_they_come: bool = False,
) -> "Answers":
    """Run a Flower app; show its metrics, what failed, and where it was saved."""
    begun = perf_counter()
    rounds, answers = _played(app, num_clients, changes, verbose=verbose, as_they_come=as_they_come)
    if rounds.finished and not verbose:
        taken = (
            f"{_which(as_they_come)}{rounds.finished:,} rounds in {perf_counter() - begun:.1f} s"
        )
        typer.echo("; ".join([taken, *rounds.measured]))
    for text, more in rounds.repeated.items():
        typer.echo(f"{more:,} more like this, of other clients or rounds: {text}", err=True)
    for line in () if as_they_come else _money(answers, app):
        typer.echo(line)
    for kind, failed in answers.failed.items():
        told = f"{failed:,} of {answers.sent[kind]:,} {kind} messages to clients failed"
        typer.echo(told, err=True)
    if answers.errors:
        typer.echo(rounds.once(f"the first failed with {answers.errors[0]}"), err=True)
    in_vain = [run for run in answers.runs if run.in_vain]
    for run in in_vain:
        those = "the last round" if run.in_vain == 1 else f"the last {run.in_vain:,} rounds"
        if run.in_vain == len(run.rounds) - run.rounds_before:
            those = "any of these rounds"
        known = verbose or bool(answers.errors)
        why = "" if known else "; run with --verbose to see why"
        typer.echo(f"no client's model was used in {those}{why}", err=True)
    if rounds.asked_for_none:
        typer.echo("no round was run: the app started its strategy with zero rounds", err=True)
    all_failed = any(answers.failed[kind] == sent > 0 for kind, sent in answers.sent.items())
    if in_vain or rounds.asked_for_none or all_failed:
        raise typer.Exit(1)
    return answers


def _which(as_they_come: bool) -> str:
    """Return what tells the lines of the second run from those of the first."""
    return "as they come: " if as_they_come else ""


def _played(
    app: Path, num_clients: int, changes: dict[str, str], *, verbose: bool, as_they_come: bool
) -> "tuple[Rounds, Answers]":
    """Run an app's rounds; exit if the app failed or Ctrl-C stopped it."""
    from tidegate.cli.rounds_bar import rounds_followed  # noqa: PLC0415
    from tidegate.flower.app import AppError, run_app  # noqa: PLC0415
    from tidegate.flower.local_grid import Answers  # noqa: PLC0415

    answers = Answers()
    try:
        with rounds_followed(answers, which=_which(as_they_come), verbose=verbose) as rounds:
            run_app(
                app,
                num_clients=num_clients,
                changes=changes,
                answers=answers,
                as_they_come=as_they_come,
            )
    except NothingLearnedError:
        pass  # whoever called says so, after what was spent
    except AppError as raised:
        traceback.print_exception(raised.__cause__)
        typer.echo(f"tidegate: {raised}", err=True)
        raise typer.Exit(1) from raised
    except ConfigurationError as refused:
        told = rounds.once(f"{refused}")
        if told == f"{refused}":
            raise
        raise ConfigurationError(told) from refused
    except KeyboardInterrupt as stopped:
        typer.echo(_told_of_stop(rounds, answers), err=True)
        raise typer.Exit(INTERRUPTED) from stopped
    return rounds, answers


def _told_of_stop(rounds: "Rounds", answers: "Answers") -> str:
    """Return after which round a run stopped, and whether it can be resumed."""
    folders = _folders(answers)
    if folders:
        folder = folders[-1]
        saved = read_run(folder).round_number - 1
        return f"{_stopped(saved)}, saved in {folder}; run the same command again to resume"
    if not rounds.begun:
        return "stopped before the first round; nothing was bought or saved"
    return f"{_stopped(rounds.finished)}; {NOT_SAVED}"


def _stopped(rounds: int) -> str:
    return f"stopped after round {rounds}" if rounds else "stopped before the first round ended"


def _folders(answers: "Answers") -> list[Path]:
    """Return where runs are saved."""
    return list(dict.fromkeys(run.folder for run in answers.runs if run.folder is not None))


def _money(answers: "Answers", app: Path) -> list[str]:
    """Return what each run has spent, and where it is saved."""
    if folders := _folders(answers):
        return [_saved(folder, app) for folder in folders]
    sums = [sums_of(run.rounds) for run in answers.runs if run.has_ended and run.rounds]
    return [
        f"{counted(bought, 'sample')} for {amount(spent)} of {amount(allowed)}; {NOT_SAVED}"
        for bought, spent, allowed in sums
    ]


def _saved(folder: Path, app: Path) -> str:
    """Return where a run is saved, and what it has spent; warn of a place in the app's folder."""
    inside = ""
    if folder.resolve().is_relative_to(app.resolve()):
        inside = (
            "; this is inside the app's folder, which `flwr run` packs and sends to every node: "
            "choose a folder outside"
        )
    with contextlib.suppress(ValueError):
        folder = folder.relative_to(Path.cwd())
    told = summary(read_run(folder), time())
    spent = ""
    if "spent" in told:
        spent = f"spent {amount(told['spent'])} of {amount(told['allowed'])}; "
    commands = f"tidegate watch {folder}, tidegate report {folder}"
    return f"saved in {folder}: {spent}{commands}{inside}"


def key_and_value(text: str) -> tuple[str, str]:
    """Split ``key=value``."""
    key, equals, value = text.partition("=")
    if not (key.strip() and equals):
        raise ConfigurationError(f"--set {text!r} must have the form key=value")
    return key.strip(), value.strip()
