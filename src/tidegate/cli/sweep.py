"""``tidegate buffers --sweep``: delete what a device may no longer keep, without an order."""

import json
from collections.abc import Sequence
from pathlib import Path

import typer

from tidegate._internal.words import counted
from tidegate.client.buffer_files import is_marked
from tidegate.client.device_file import APPLICATION_ID
from tidegate.client.other_files import other_files
from tidegate.client.sweeping import sweep as sweep_folder
from tidegate.errors import ConfigurationError
from tidegate.runs.folder import BOOKS

MOST_NAMED = 3
"""Folders to name."""
BELOW = ("*/*.sqlite", "*/*/*.sqlite")
"""Where buffers may be below a folder that was given by mistake."""


def sweep(folders: Sequence[Path], *, as_json: bool) -> None:
    """Delete what has been held for longer than its limit, and print how much; exit with 1 or 2.

    Folders without any buffer or spool are a mistake.
    """
    swept, wrong = [], []
    for folder in folders:
        check_folder(folder, folders)
    for folder in folders:
        done, failed = sweep_folder(folder)
        swept += done
        wrong += failed
    if not swept and not wrong:
        raise ConfigurationError(
            f"there are no buffers or spools in {', '.join(map(str, folders))}; give the folder "
            "that nodes keep them in"
        )
    if as_json:
        facts = {
            "swept": [{**vars(file), "path": str(file.path)} for file in swept],
            "failed": [str(file) for file in wrong],
        }
        typer.echo(json.dumps(facts, indent=2))
    else:
        for file in swept:
            limit = "" if file.has_limit else "; no limit is set (ClientGate(keep_at_most=...))"
            typer.echo(f"{file.path.name}: {file.deleted:,} deleted, {file.held:,} held{limit}")
        deleted = sum(file.deleted for file in swept)
        typer.echo(f"{deleted:,} deleted in {counted(len(swept), 'file')}")
        for reason in wrong:
            typer.echo(f"{reason}", err=True)
    if wrong:
        raise typer.Exit(1)


def check_folder(folder: Path, given: Sequence[Path] = ()) -> list[Path]:
    """Refuse a folder that is not one of buffers and spools, and say where they are.

    Args:
        folder: the folder.
        given: all folders that the command was given.

    Returns:
        Folders below it that hold others, if it holds some itself: these may be copies.
    """
    if not folder.is_dir():
        raise ConfigurationError(f"{folder} is not a folder; give the folder of the buffers")
    if (folder / BOOKS).exists():
        raise ConfigurationError(
            f"{folder} is the folder of a run, and its {BOOKS} is the server's ledger: keep it. "
            "Give the folder in which nodes keep their samples; with `tidegate run` it is "
            f"{folder / 'buffers'}"
        )
    inside = folders_below(folder)
    files = folder.glob("*.sqlite")
    if inside and not any(is_marked(file, _marks(), unreadable=True) for file in files):
        raise ConfigurationError(
            f"{folder} has folders with buffers in it; give each of them by itself: "
            f"{_named(inside)}"
        )
    return left_out(folder, inside, given)


def left_out(folder: Path, inside: Sequence[Path], given: Sequence[Path]) -> list[Path]:
    """Return folders that a command leaves out, and report them.

    Args:
        folder: a folder that holds buffers itself.
        inside: folders below it that hold others.
        given: all folders that the command was given.
    """
    known = {path.resolve() for path in given}
    left = [path for path in inside if path.resolve() not in known]
    if left:
        typer.echo(
            f"{folder} also has folders with buffers in it, which were left out: {_named(left)}. "
            "Give them, too, or delete copies that nobody needs",
            err=True,
        )
    return left


def _named(folders: Sequence[Path]) -> str:
    return ", ".join(map(str, folders[:MOST_NAMED])) + ", ..." * (len(folders) > MOST_NAMED)


def folders_below(folder: Path) -> list[Path]:
    """Return the folders below one that hold buffers or spools."""
    marks = _marks()
    files = [file for depth in BELOW for file in folder.glob(depth)]
    return sorted({file.parent for file in files if is_marked(file, marks)})


def _marks() -> tuple[int, ...]:
    """Return the marks of buffers, and of files that guests keep samples in."""
    return (APPLICATION_ID, *(others.mark for others in other_files()))
