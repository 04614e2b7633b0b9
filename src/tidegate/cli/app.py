"""The commands that ``tidegate`` knows."""

import sys
from typing import Annotated

import typer

import tidegate
from tidegate.cli.audit import audit
from tidegate.cli.buffers import buffers
from tidegate.cli.forget import forget
from tidegate.cli.new import new
from tidegate.cli.optimum import optimum
from tidegate.cli.plan import plan
from tidegate.cli.rehearse import rehearse
from tidegate.cli.report import report
from tidegate.cli.retire import retire
from tidegate.cli.run import run
from tidegate.cli.setting_flags import with_setting
from tidegate.cli.simulate import simulate
from tidegate.cli.sweep import sweep
from tidegate.cli.watch import watch
from tidegate.cli.whatif import whatif

# Click suggests commands itself from 8.4 on; newer versions of Typer bring a Click that does not.
_CLICK = sys.modules[typer.BadParameter.__module__]
app = typer.Typer(
    no_args_is_help=True,
    suggest_commands=not hasattr(_CLICK, "NoSuchCommand"),
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command()(with_setting(plan))
app.command()(with_setting(simulate))
app.command()(with_setting(optimum))
app.command()(new)
app.command()(run)
app.command()(rehearse)
app.command()(watch)
app.command()(retire)
app.command()(whatif)
app.command()(report)
app.command()(buffers)
app.command()(sweep)
app.command()(forget)
app.command()(audit)


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

    Start with `tidegate plan` (what does this budget give me?), then `tidegate simulate` (how do
    policies compare?) and `tidegate optimum` (what is possible at all?).

    `tidegate new` writes a Flower app, `tidegate run` trains it in this process, without Ray, and
    `tidegate rehearse` runs it on a whole deployment on this machine. `tidegate watch` shows a run
    while it goes on, `tidegate retire` takes a client out of it for good, `tidegate report` writes
    a page about it, and `tidegate whatif` shows what other policies and budgets would have done.

    `tidegate buffers` lists and removes the samples that nodes keep on this machine, `tidegate
    sweep` deletes those that they have held for too long, `tidegate forget` erases a person's
    samples, and `tidegate audit` checks the records.
    """
