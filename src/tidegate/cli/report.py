"""``tidegate report``: write a page about a run."""

import time
from pathlib import Path
from typing import Annotated

import typer

from tidegate.errors import ConfigurationError
from tidegate.report.page import check_page
from tidegate.report.run_page import write_run_page
from tidegate.runs.folder import AS_THEY_COME, holds_run
from tidegate.runs.reader import read_run


def report(
    folder: Annotated[Path, typer.Argument(help="Folder of a saved run.")],
    beside: Annotated[
        Path | None,
        typer.Argument(metavar="[OTHER]", help="Folder of another run, to compare this one with."),
    ] = None,
    *,
    out: Annotated[
        Path | None, typer.Option(help="Page to write; FOLDER/report.html by default.")
    ] = None,
) -> None:
    """Write one HTML page about a run, or about two side by side.

    It begins with the answer: what was spent, what accuracy that gave, how many samples were
    bought, and who needs attention; then what constant admission would have gained for the same
    money, counted from the run's own prices.

    The page is a single file: it opens from disk without a network, on a phone, in light or dark
    mode, and you can send it by mail.

    A run that `AdmissionControl(folder=...)` saved, finished or still running:

        tidegate report run

    A run that `tidegate run --beside` made is shown beside the one on samples as they come. Any
    two runs:

        tidegate report run other
    """
    page = folder / "report.html" if out is None else out
    if not folder.is_dir():
        raise ConfigurationError(
            f"{folder} is a file; give its folder"
            if folder.exists()
            else (
                f"there is no folder {folder}; give that of a run: tidegate run APP --set "
                "folder=..., or AdmissionControl(folder=...)"
            )
        )
    check_page(page)
    if not holds_run(folder):
        raise ConfigurationError(
            f"{folder} does not hold a run (AdmissionControl(folder=...), tidegate run APP --set "
            "folder=...)"
        )
    if beside is None and holds_run(folder / AS_THEY_COME):
        beside = folder / AS_THEY_COME
    view = read_run(folder)
    if not view.rounds:
        raise ConfigurationError(f"{folder} has no settled round yet; wait for the first")
    other = None if beside is None else read_run(beside)
    if other is not None and not other.rounds:
        raise ConfigurationError(f"{beside} has no settled round yet; wait for the first")
    write_run_page(view, page, time.time(), other)
    typer.echo(f"wrote {page}")
