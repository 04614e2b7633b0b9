"""The commands that ``tidegate`` knows."""

import sys
from collections.abc import Callable
from importlib import import_module
from typing import Annotated, Any

import typer
from typer.core import TyperCommand

import tidegate
from tidegate.errors import ConfigurationError

# Click suggests commands itself from 8.4 on; newer versions of Typer bring a Click that does not.
_CLICK = sys.modules[typer.BadParameter.__module__]
app = typer.Typer(
    no_args_is_help=True,
    suggest_commands=not hasattr(_CLICK, "NoSuchCommand"),
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

COMMANDS = {
    "new": "Write a Flower app in which every fresh sample has a price.",
    "run": "Run a Flower app in this process.",
    "plan": "Plan a budget before you buy anything.",
    "simulate": "Simulate policies on counts and prices, without learning and without a network.",
    "watch": "Show a run while it goes on: money, memory, accuracy, who is away, what to do.",
    "report": "Write one HTML page about a run, or about two side by side.",
    "rehearse": "Rehearse a deployment on this machine: certificates, keys, servers, a run.",
    "retire": "Take clients out of a run for good: a phone that broke, a site that left.",
    "buffers": "List the buffers that nodes keep on this machine, sweep them, and remove old ones.",
    "export": "Write the samples that clients bought, for other tools and other models.",
    "forget": "Erase all samples of a subject from a device, and refuse later ones.",
    "audit": "Check that devices kept their limits, and that their records were not changed.",
}
"""The module of each command, and the first line of its help."""


def command_of(name: str) -> Any:
    """Return Click's command, whose module is imported now."""
    alone = typer.Typer(
        add_completion=False, rich_markup_mode="markdown", pretty_exceptions_enable=False
    )
    alone.command(name)(getattr(import_module(f"tidegate.cli.{name}"), name))
    return typer.main.get_command(alone)


class ImportedToRun(TyperCommand):
    """A command in the list of commands, whose module is imported when it runs."""

    def make_context(self, info_name: str | None, *args: Any, **more: Any) -> Any:
        """Return what Click runs: the module's own command."""
        return command_of(self.name or "").make_context(info_name, *args, **more)


for name, line in COMMANDS.items():
    app.command(name, cls=ImportedToRun, help=line)(lambda: None)

MOVED = {
    "optimum": "tidegate plan says what is possible at all",
    "whatif": "tidegate plan --from RUN replays a run",
    "sweep": "tidegate buffers FOLDER --sweep sweeps",
    "compare": "tidegate report RUN OTHER compares runs, python -m experiments compare results",
    "data": "python -m experiments data makes data sets, in a checkout",
}
"""Commands of earlier versions, and what to give in their place."""


def _moved(name: str, instead: str) -> Callable[[], None]:
    """Return a command that names another one."""

    def command() -> None:
        raise ConfigurationError(f"there is no command {name} any more: {instead}")

    return command


for name, instead in MOVED.items():
    anything = {"ignore_unknown_options": True, "allow_extra_args": True}
    app.command(name, hidden=True, context_settings=anything)(_moved(name, instead))


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"tidegate {tidegate.__version__}")
        raise typer.Exit


@app.callback()
def root(
    *,
    version: Annotated[
        bool,
        typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version."),
    ] = False,
) -> None:
    """Decide how many fresh samples federated clients buy, within a budget and little memory.

    `tidegate new` writes a Flower app, and `tidegate run` trains it in this process, without Ray.
    `tidegate plan` says what a budget gives, or would have given in a run that is over; `tidegate
    simulate` compares policies on counts and prices.

    `tidegate watch` shows a run while it goes on, `tidegate report` writes a page about it, and
    `tidegate retire` takes a client out of it for good. `tidegate rehearse` runs the app on a whole
    deployment on this machine.

    `tidegate buffers` lists, sweeps and removes the samples that nodes keep on this machine,
    `tidegate export` writes them for other tools, `tidegate forget` erases a person's, and
    `tidegate audit` checks the records.
    """
