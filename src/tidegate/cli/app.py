"""The commands that ``tidegate`` knows."""

import sys
from collections.abc import Callable
from typing import Annotated

import typer

import tidegate
from tidegate.cli.audit import audit
from tidegate.cli.buffers import buffers
from tidegate.cli.export import export
from tidegate.cli.forget import forget
from tidegate.cli.new import new
from tidegate.cli.plan import plan
from tidegate.cli.rehearse import rehearse
from tidegate.cli.report import report
from tidegate.cli.retire import retire
from tidegate.cli.run import run
from tidegate.cli.setting_flags import with_setting
from tidegate.cli.simulate import simulate
from tidegate.cli.watch import watch
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
app.command()(new)
app.command()(run)
app.command()(with_setting(plan))
app.command()(with_setting(simulate))
app.command()(watch)
app.command()(report)
app.command()(rehearse)
app.command()(retire)
app.command()(buffers)
app.command()(export)
app.command()(forget)
app.command()(audit)

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
