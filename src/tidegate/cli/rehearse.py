"""``tidegate rehearse``: run a whole deployment on this machine with one command."""

import json
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.markup import escape
from rich.table import Table

from tidegate.cli.run import INTERRUPTED, key_and_value
from tidegate.cli.running import AsJson, screen
from tidegate.errors import ConfigurationError
from tidegate.report.tables import amount

if TYPE_CHECKING:
    from rich.console import Console

    from tidegate.rehearsal.play import Event, Outcome, Plan

FEWEST_ROUNDS = 2
"""For a crash: one round before it, so that there is a run to recover."""


def rehearse(
    app: Annotated[
        Path, typer.Argument(help="Folder of a Flower app.", show_default="this folder")
    ] = Path(),
    *,
    nodes: Annotated[int, typer.Option(min=1, help="SuperNodes.")] = 3,
    rounds: Annotated[int, typer.Option(min=1, help="Rounds of the run.")] = 3,
    out: Annotated[Path, typer.Option(help="New folder for all files.")] = Path("rehearsal"),
    kill: Annotated[
        bool, typer.Option("--kill", help="SIGKILL the server app and a SuperNode in mid-round.")
    ] = False,
    change: Annotated[
        list[str] | None,
        typer.Option("--set", help="A value of the run-config, as `key=value`; repeatable."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Rehearse a deployment on this machine: certificates, keys, servers, a run.

    It uses the parts of a real deployment: TLS, nodes that authenticate with a key, and one process
    for each part. They listen on 127.0.0.1 on free ports, and end with the command, also after
    Ctrl-C. Their files stay in `--out`: logs, the run, the nodes' samples, and `commands.txt` with
    the commands for real machines.

    `--kill` ends the server app and one SuperNode by SIGKILL in the middle of a round, when the
    node has paid and its answer has not arrived yet. Then it recovers as an operator would: it
    starts the node until Flower admits it, which takes up to a minute, and starts the run again
    with its folder. At the end every node's own file must agree with the server's ledger: nothing
    was paid twice, and no payment was lost. The command exits with 1 if not.

    The app must take the folder of the run from its run-config, as `folder`, and the number of
    rounds as `num-server-rounds`, as an app that `tidegate new` wrote does.

    An app, and its rehearsal:

        tidegate new my-fleet

        tidegate rehearse my-fleet --nodes 3 --out rehearsal

    A crash, and the recovery from it:

        tidegate rehearse my-fleet --kill --out crash
    """
    plan = _plan(app, out, nodes=nodes, rounds=rounds, kill=kill, changes=change or [])
    from tidegate.rehearsal.play import Rehearsal  # noqa: PLC0415 - not everyone has Flower

    console = screen()

    def tell(event: "Event") -> None:
        if as_json:
            return
        console.print(f"[dim]{event.seconds:6.1f} s[/]  {escape(event.what)}", highlight=False)
        if event.meaning:
            console.print(f"          [dim]{escape(event.meaning)}[/]", highlight=False)

    try:
        with _stopped_by_signals():
            outcome = Rehearsal(plan, tell).play()
    except KeyboardInterrupt:
        typer.echo(f"stopped; all processes have ended, and their files are in {out}", err=True)
        raise typer.Exit(INTERRUPTED) from None
    if as_json:
        typer.echo(json.dumps(_facts(plan, outcome), indent=2))
    else:
        _show(plan, outcome, console)
    if outcome.problems:
        raise typer.Exit(1)


def _plan(
    app: Path, out: Path, *, nodes: int, rounds: int, kill: bool, changes: list[str]
) -> "Plan":
    """Return the plan of a rehearsal, if it is possible."""
    if kill and rounds < FEWEST_ROUNDS:
        raise ConfigurationError(f"--kill needs {FEWEST_ROUNDS} rounds or more, got {rounds}")
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise ConfigurationError(f"{out} already exists; give --out a new folder")
    try:
        from tidegate.flower.app import run_config_of  # noqa: PLC0415
        from tidegate.rehearsal.play import Plan  # noqa: PLC0415
    except ModuleNotFoundError as missing:
        raise ConfigurationError(
            f"{missing.name} is not installed; pip install 'tidegate[flower]'"
        ) from missing
    except ImportError as unsupported:
        raise ConfigurationError(str(unsupported)) from unsupported
    folder = out.resolve()
    if folder.is_relative_to(app.resolve()):
        raise ConfigurationError(
            f"--out {out} is inside the app's own folder, which Flower sends to every node; "
            "choose one outside"
        )
    own = run_config_of(app, {})
    for key in ("folder", "num-server-rounds"):
        if key not in own:
            raise ConfigurationError(
                f"the app in {app} has no {key!r} in [tool.flwr.app.config] of its "
                "pyproject.toml, which a rehearsal sets; add it there and read it in the "
                "ServerApp, as the app that `tidegate new` writes does"
            )
    asked = dict(map(key_and_value, changes))
    asked |= {"folder": str(folder / "run"), "num-server-rounds": str(rounds)}
    whole = run_config_of(app, asked)
    return Plan(
        app=app.resolve(),
        folder=folder,
        nodes=nodes,
        rounds=rounds,
        run_config={key: whole[key] for key in asked},
        kill=kill,
    )


@contextmanager
def _stopped_by_signals() -> Iterator[None]:
    """Turn signals that end this process into an exception, so that it first ends its children."""
    numbers = signal.SIGINT, signal.SIGTERM, signal.SIGHUP

    def stop(number: int, frame: FrameType | None) -> None:
        for one in numbers:
            signal.signal(one, signal.SIG_IGN)  # its children are already being ended
        raise KeyboardInterrupt

    before = [signal.signal(number, stop) for number in numbers]
    try:
        yield
    finally:
        for number, handler in zip(numbers, before, strict=True):
            signal.signal(number, handler)


def _facts(plan: "Plan", outcome: "Outcome") -> dict[str, Any]:
    books = outcome.books
    return {
        "folder": str(plan.folder),
        "nodes": plan.nodes,
        "rounds": plan.rounds,
        "killed": plan.kill,
        "run_ids": outcome.run_ids,
        "refused_seconds": outcome.refused_seconds,
        "events": [asdict(event) for event in outcome.events],
        "books": books and {**asdict(books), "paid": books.paid, "booked": books.booked},
        "books_are_equal": books is not None and books.are_equal,
        "problems": outcome.problems,
        "commands": str(plan.commands_file),
    }


def _show(plan: "Plan", outcome: "Outcome", console: "Console") -> None:
    """Show what each node paid, where the files are, and last the result."""
    console.print()
    if outcome.books is not None:
        table = Table("node", "samples", "paid, by its own file", "paid, by the ledger", "")
        for node in outcome.books.nodes:
            told = "[red]differs[/]" if node.problems else "[green]equal[/]"
            table.add_row(
                node.name, f"{node.samples:,}", amount(node.paid), amount(node.booked), told
            )
        console.print(table)
    places = {
        "the run": f"{plan.run_folder} (tidegate watch, tidegate report)",
        "logs": str(plan.folder / "logs"),
        "samples of the nodes": f"{plan.folder / 'buffers'} (tidegate audit)",
        "what to type on real machines": str(plan.commands_file),
    }
    for name, place in places.items():
        console.print(f"{name}: {escape(place)}", highlight=False, soft_wrap=True)
    for problem in outcome.problems:
        console.print(f"[bold red]WRONG[/] {escape(problem)}", highlight=False, soft_wrap=True)
    if outcome.books is not None and outcome.books.are_equal:
        crash = " after the crash" if plan.kill else ""
        console.print(f"[bold green]The nodes' files agree with the server's ledger{crash}.[/]")
