"""``python -m experiments``: make data sets, run experiments and compare their policies."""

import typer

from experiments.tool.compare import compare, page
from experiments.tool.data_sets import data
from experiments.tool.running import run
from tidegate.cli import run_commands

app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
for command in (data, run, compare, page):
    app.command()(command)


@app.callback()
def root() -> None:
    """Compare policies on real learning tasks; started from the folder of a checkout."""


def main(arguments: list[str] | None = None) -> None:
    """Run a command; a user's mistake ends with one line and exit code 2."""
    run_commands(app, "experiments", arguments)
