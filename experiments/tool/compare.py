"""``python -m experiments compare``: finished runs side by side."""

import json
import shlex
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from experiments.tool.comparison import BASELINE, Comparison, write_tables
from experiments.tool.figures import draw
from experiments.tool.markdown import markdown_table
from experiments.tool.page import write_comparison_page
from experiments.tool.results import left_out, read_results
from tidegate._internal.suggestion import suggestion
from tidegate.cli.running import AsJson, screen
from tidegate.errors import ConfigurationError
from tidegate.report.figures import check_drawable
from tidegate.report.page import check_page

Results = Annotated[Path, typer.Argument(help="Folder that `python -m experiments run` wrote.")]
WIDE = 160
"""Columns that a table with all intervals needs."""


def compare(
    results: Results,
    *,
    out: Annotated[
        Path | None,
        typer.Option(help="Folder for summary.csv, rounds.csv, accuracy.png and resources.png."),
    ] = None,
    target: Annotated[
        list[float] | None,
        typer.Option(
            min=0, max=1, help="Accuracy, 0 to 1, whose first round is shown; repeatable."
        ),
    ] = None,
    against: Annotated[
        str | None,
        typer.Option(
            metavar="POLICY",
            help=f"Policy that others are compared with; {BASELINE} by default.",
        ),
    ] = None,
    markdown: Annotated[
        bool, typer.Option("--markdown", help="Print the table in Markdown, for a page.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Compare the policies of an experiment: accuracy, money and memory.

    Differences are between runs of the same seed, in which all policies had the same prices and
    samples.

    A table of the runs of an experiment:

        python -m experiments compare runs/mnist-logistic

    The same with files and pictures:

        python -m experiments compare runs/mnist-logistic --target 0.85 --out figures

    The table for a page of documentation:

        python -m experiments compare runs/mnist-logistic --markdown
    """
    if markdown and as_json:
        raise ConfigurationError("--markdown and --json each print a table; give one of them")
    about, found = read_results(results)
    if target:
        about = replace(about, targets=tuple(target))
    if against is not None and against not in found:
        hint = suggestion(against, found, otherwise=f"there are {', '.join(found)}")
        raise ConfigurationError(f"{results} has no finished run of {against!r}; {hint}")
    comparison = Comparison(found, about, against or BASELINE)
    if against is None and comparison.baseline != BASELINE:
        instead = f"compared with {comparison.baseline}"
        typer.echo(f"{BASELINE} has no finished run; {instead}", err=True)
    others = left_out(results, found)
    if others:
        shown = ", ".join(str(path.relative_to(results)) for path in others)
        typer.echo(f"left out, not part of the experiment that ran last: {shown}", err=True)
    missing = len(about.runs) - sum(map(len, found.values()))
    if missing:
        typer.echo(f"{missing} of {len(about.runs)} runs are not finished", err=True)
    if out is not None:
        check_drawable(out / "accuracy.png")
        for path in [*write_tables(comparison, out), *draw(comparison, out)]:
            typer.echo(f"wrote {path}", err=True)
    _print(comparison, markdown=markdown, as_json=as_json)


def page(
    results: Results,
    *,
    out: Annotated[
        Path | None, typer.Option(help="Page to write; RESULTS/report.html by default.")
    ] = None,
) -> None:
    """Write one HTML page about the policies of an experiment, side by side.

    The page is a single file that opens from disk without a network.

        python -m experiments page runs/mnist-logistic --out mnist.html
    """
    written = results / "report.html" if out is None else out
    check_page(written)
    about, runs = read_results(results)
    command = shlex.join(["python", "-m", "experiments", "compare", str(results)])
    write_comparison_page(Comparison(runs, about, BASELINE), written, command)
    typer.echo(f"wrote {written}")


def _print(comparison: Comparison, *, markdown: bool, as_json: bool) -> None:
    """Print the table in the requested form."""
    about = comparison.about
    if as_json:
        told = {
            "title": about.title,
            "budget": about.budget,
            "limit": about.limit,
            "baseline": comparison.baseline,
            "policies": comparison.rows(),
        }
        typer.echo(json.dumps(told, indent=2))
        return
    if markdown:
        typer.echo(markdown_table(comparison.rows()))
        return
    console = screen(WIDE)
    wide = console.width >= WIDE
    console.print(comparison.table(intervals=wide), highlight=False)
    console.print()
    console.print(comparison.legend(intervals=wide), style="dim", highlight=False)
