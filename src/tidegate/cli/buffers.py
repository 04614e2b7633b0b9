"""``tidegate buffers``: list what nodes keep on this machine, and remove what is not needed."""

import json
import time
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table
from rich.text import Text

from tidegate._internal.words import counted
from tidegate.cli.running import AsJson, screen
from tidegate.cli.sweep import check_folder, sweep
from tidegate.client.buffer_files import (
    BufferFile,
    find_buffers,
    may_be_buffer,
    remove_buffer,
    users_folder,
)
from tidegate.errors import ConfigurationError, DamagedFileError

DAY = 24 * 3600.0


def buffers(
    folders: Annotated[
        list[Path] | None,
        typer.Argument(metavar="[FOLDER...]", help="Folders of buffers. Default: this user's."),
    ] = None,
    *,
    sweeps: Annotated[
        bool,
        typer.Option(
            "--sweep", help="Delete samples that were held for longer than their limit allows."
        ),
    ] = False,
    remove_unused: Annotated[
        int | None,
        typer.Option(min=1, metavar="DAYS", help="Remove those that were not used for so long."),
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only list them.")] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    as_json: AsJson = False,
) -> None:
    """List the buffers that nodes keep on this machine, sweep them, and remove old ones.

    A node keeps one file for each run, and does not learn that a run is over. Every message that it
    answers counts as use, so a buffer that was not used for longer than any of your runs may pause
    belongs to a run that is over. A run that is resumed without its buffers goes on with empty
    ones. The command overwrites buffers before it removes them. It keeps files that a process has
    open, and names and keeps damaged files.

    Samples are those that clients bought; candidates wait in the backlog of a client with a
    selection; under way are purchases that have not arrived, with what their samples take of the
    size.

    List the buffers:

        tidegate buffers

    List those that were not used for 30 days, and remove them:

        tidegate buffers --remove-unused 30 --dry-run

        tidegate buffers --remove-unused 30

    An app limits how long a device keeps a sample: `ClientGate(..., keep_at_most="30d")`. The
    node's files hold the limit, and a node that takes part deletes such samples with every order. A
    node that gets no orders for weeks needs a sweep once a day, from a systemd timer or cron. It
    overwrites samples in buffers, waiting candidates, samples of purchases under way and messages
    in spools (files that end in .sqlite), while the node may be running. If it cannot sweep a file,
    it names the file, sweeps the others, and exits with 1:

        0 3 * * * tidegate buffers /var/lib/tidegate --sweep
    """
    if sweeps:
        if remove_unused is not None:
            raise ConfigurationError("--sweep and --remove-unused are two commands; give one")
        sweep(folders or [users_folder()], as_json=as_json)
        return
    for folder in folders or [users_folder()]:
        if folders:
            check_folder(folder)
        _list_and_remove(folder, remove_unused, dry_run=dry_run, yes=yes, as_json=as_json)


def _list_and_remove(
    place: Path, remove_unused: int | None, *, dry_run: bool, yes: bool, as_json: bool
) -> None:
    """List the buffers in a folder, and remove those that were not used for so many days."""
    now = time.time()
    found, unreadable = find_buffers(place)
    since = now if remove_unused is None else now - remove_unused * DAY
    chosen = (
        found if remove_unused is None else [buffer for buffer in found if buffer.used_at <= since]
    )
    if as_json:
        rows = [{**asdict(buffer), "path": str(buffer.path)} for buffer in chosen]
        damaged = [{"path": str(damage.source), "reason": damage.reason} for damage in unreadable]
        facts = {"folder": str(place), "buffers": rows, "unreadable": damaged}
        typer.echo(json.dumps(facts, indent=2))
    else:
        if found and not chosen:
            days = f"{remove_unused:g} day{'s' * (remove_unused != 1)}"
            typer.echo(
                f"{counted(len(found), 'buffer')} in {place}; all were used in the last {days}"
            )
        else:
            _show(chosen, place, now)
        for wrong in unreadable:
            typer.echo(f"{wrong}", err=True)
    if remove_unused is None or dry_run:
        return
    left = sum(may_be_buffer(Path(str(damage.source))) for damage in unreadable)
    if not chosen:
        if left:
            raise typer.Exit(1)
        return
    size = _size(sum(buffer.size for buffer in chosen))
    if not yes and not typer.confirm(f"Remove these {len(chosen):,} ({size})?", err=True):
        return
    _remove(chosen, since, left=left)


def _remove(chosen: list[BufferFile], since: float, left: int) -> None:
    """Remove what can be removed, name the rest, and exit with 1 if something failed.

    Args:
        chosen: the buffers to remove.
        since: seconds since 1970; a buffer that was used later stays.
        left: files that could not be read, and so stay.
    """
    removed, failed = 0, left
    for buffer in chosen:
        try:
            if remove_buffer(buffer, since):
                removed += 1
            else:
                typer.echo(f"{buffer.path} is in use; kept it", err=True)
        except DamagedFileError as wrong:
            failed += 1
            typer.echo(f"{wrong}", err=True)
    typer.echo(f"removed {removed:,}", err=True)
    if failed:
        raise typer.Exit(1)


def _show(found: list[BufferFile], place: Path, now: float) -> None:
    out = screen()
    if not found:
        out.print(f"no buffers in {place}", highlight=False, markup=False, soft_wrap=True)
        return
    table = Table(
        title=Text(f"{counted(len(found), 'buffer')} in {place}"),
        title_justify="left",
    )
    for name in ("run", "client"):
        table.add_column(name, overflow="fold")
    for name in ("samples", "candidates", "under way", "size", "days unused"):
        table.add_column(name, justify="right")
    for one in found:
        days = f"{max(now - one.used_at, 0.0) / DAY:,.1f}"
        names = Text(one.run), Text(one.client)  # client names are chosen by clients: no markup
        counts = f"{one.samples:,}", f"{one.candidates:,}", _under_way(one)
        table.add_row(*names, *counts, _size(one.size), days)
    out.print(table)


def _under_way(buffer: BufferFile) -> str:
    """Format how many purchases are under way, and what their samples take."""
    if not buffer.under_way:
        return "0"
    return f"{buffer.under_way:,} ({_size(buffer.under_way_size)})"


def _size(count: int) -> str:
    """Format a number of bytes for people.

    >>> _size(999), _size(24_576), _size(3_000_000)
    ('999 B', '24.6 kB', '3.0 MB')
    """
    for unit, size in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if count >= size:
            return f"{count / size:,.1f} {unit}"
    return f"{count} B"
