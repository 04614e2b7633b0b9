"""``tidegate forget``: erase what a device holds about a subject, and refuse later samples."""

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer

from tidegate._internal.words import counted
from tidegate.cli.running import AsJson
from tidegate.cli.sweep import check_folder
from tidegate.client.forgotten import Forgotten
from tidegate.client.sweeping import Swept, sweep
from tidegate.errors import ConfigurationError, TidegateError


def forget(
    folders: Annotated[
        list[Path], typer.Argument(metavar="FOLDER...", help="Folders of buffers and spools.")
    ],
    *,
    subject: Annotated[
        str,
        typer.Option(
            metavar="S", help="As the app's subject function names it; - reads standard input."
        ),
    ],
    admit_again: Annotated[
        bool,
        typer.Option(
            "--admit-again",
            help="Take the subject off the list, after a misspelt name or a new consent.",
        ),
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Erase all samples of a subject from a device, and refuse later ones.

    An app says whom a sample is about: `ClientGate(..., subject=lambda sample: sample["patient"])`.
    The command overwrites all samples of the subject: in buffers, among waiting candidates, in
    purchases under way (which are cancelled) and in spools. From then on the gate skips new samples
    of the subject, in this run and in all later ones. FOLDER/forgotten.json keeps a keyed hash of
    the subject, and no name; keep that file with the folder.

    The receipt of the next order tells the server how many samples were erased, so its books stay
    right. Models that were trained on the samples do not change. The command cannot tell whom
    samples are about that an app without a subject function took in: it counts them and fails, with
    exit code 1. If a device holds nothing about the subject, the command asks whether the name is
    right and exits with 0, so that you can send one command to all devices.
    If a buffer, a spool or forgotten.json cannot be read, the command names it, continues with the
    others and exits with 1. Folders below FOLDER are left out; if they hold buffers, too, it names
    them and exits with 1.

        tidegate forget /var/lib/tidegate --subject patient-4711

    Without the name in the shell's history:

        tidegate forget /var/lib/tidegate --subject -

    After a misspelt name, or when a person consents again. Erased samples do not come back in runs
    under way; a new run reads its stream from the beginning, and may admit them again:

        tidegate forget /var/lib/tidegate --subject patient-47ll --admit-again
    """
    name = sys.stdin.readline().rstrip("\n") if subject == "-" else subject
    if not name:
        raise ConfigurationError("--subject must be a name, got an empty one")
    left_out = [below for folder in folders for below in check_folder(folder, folders)]
    if admit_again:
        _admit_again(name, folders, left_out, as_json=as_json)
        return
    listed, swept, wrong = _erase(name, folders)
    erased = sum(file.erased for file in swept)
    expired = sum(file.deleted for file in swept) - erased
    samples, messages = (
        sum(file.unnamed for file in swept if file.kind == kind) for kind in ("buffer", "spool")
    )
    if as_json:
        facts = {
            "erased": erased,
            "expired": expired,
            "swept": [{**vars(file), "path": str(file.path)} for file in swept],
            "samples_without_subject": samples,
            "messages_without_subject": messages,
            "failed": wrong,
            "left_out": [str(path) for path in left_out],
        }
        typer.echo(json.dumps(facts, indent=2))
    else:
        if listed:
            partly = f" in {len(listed)} of {len(folders)} folders"
            typer.echo(
                f"{erased:,} erased in {counted(len(swept), 'file')}; later samples of this "
                f"subject will be refused{partly if len(listed) < len(folders) else ''}"
            )
        if expired:
            typer.echo(f"{expired:,} others were past their limit in days and were deleted, too")
        if not (erased or wrong):
            typer.echo(
                "no sample of this subject was found here; is the name right? It must be what "
                "ClientGate(subject=...) returns, letter by letter. If it is not, take it off the "
                "list with --admit-again",
                err=True,
            )
        for reason in wrong:
            typer.echo(reason, err=True)
        _tell_of_unnamed(swept, samples, messages)
    if wrong or samples or messages or left_out:
        raise typer.Exit(1)


def _erase(name: str, folders: list[Path]) -> tuple[list[Path], list[Swept], list[str]]:
    """Forget a subject in all folders, also after one in which that fails.

    Returns:
        The folders whose list has the name now, what was swept there, and what is wrong.
    """

    def add(forgotten: Forgotten) -> bool:
        forgotten.add(name)
        return True

    # First: if this process dies now, the next sweep or order completes it.
    listed, wrong = _change(folders, add)
    swept = list[Swept]()
    for folder in listed:
        done, failed = sweep(folder)
        swept += done
        wrong += [str(reason) for reason in failed]
    return listed, swept, wrong


def _change(
    folders: list[Path], change: Callable[[Forgotten], bool]
) -> tuple[list[Path], list[str]]:
    """Change the lists of all folders, also after one in which that fails.

    Returns:
        The folders that were changed, and what went wrong in those that could not be.
    """
    changed, wrong = list[Path](), list[str]()
    for folder in folders:
        try:
            if change(Forgotten(folder)):
                changed.append(folder)
        except (TidegateError, OSError) as reason:
            wrong.append(f"{folder} was left as it is: {reason}")
    return changed, wrong


def _admit_again(name: str, folders: list[Path], left_out: list[Path], *, as_json: bool) -> None:
    """Take a subject off the list of all folders."""
    taken, wrong = _change(folders, lambda forgotten: forgotten.remove(name))
    if as_json:
        facts = {"admitted_again": taken, "failed": wrong, "left_out": left_out}
        typer.echo(json.dumps(facts, indent=2, default=str))
    else:
        if taken:
            partly = f"; it was taken off the list of {len(taken)} of {len(folders)} folders"
            others = partly if len(taken) < len(folders) else ""
            typer.echo(f"samples of this subject may be admitted again{others}")
        elif not wrong:
            typer.echo("no folder has this subject on its list; is the name right?", err=True)
        for one in wrong:
            typer.echo(one, err=True)
    if wrong or left_out:
        raise typer.Exit(1)


def _tell_of_unnamed(swept: list[Swept], samples: int, messages: int) -> None:
    """Report samples whose subject is unknown, and what to do about them."""
    if messages:
        typer.echo(
            f"{messages:,} messages in spools have no subject. Start the app once with "
            "ClientGate(subject=...), then run this command again",
            err=True,
        )
    if samples:
        typer.echo(
            f"{samples:,} samples in buffers have no subject, because clients admitted them "
            "before the app had ClientGate(subject=...). If they may be about this subject, "
            "delete these buffer files; their clients then begin again with empty ones:",
            err=True,
        )
        for file in swept:
            if file.kind == "buffer" and file.unnamed:
                typer.echo(f"  {file.path}: {file.unnamed:,}", err=True)
