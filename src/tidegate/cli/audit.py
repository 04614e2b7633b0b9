"""``tidegate audit``: whether a device kept its limits, by its own record and the server's."""

import json
import shlex
import sqlite3
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from tidegate._internal.natural_order import natural_order
from tidegate.cli.running import AsJson
from tidegate.cli.sweep import folders_below, left_out
from tidegate.client.auditing import REMEDY, Audit, audit_file, compare
from tidegate.client.buffer_files import is_marked, mark_of_file, may_be_buffer
from tidegate.errors import ConfigurationError, DamagedFileError, TidegateError
from tidegate.report.alarms import MOST_NAMES, few
from tidegate.report.audit_page import facts, not_proven, proven, write_audit_page
from tidegate.report.page import check_packages, check_place
from tidegate.runs.folder import BOOKS, holds_run
from tidegate.runs.reader import read_accounts


def audit(
    paths: Annotated[
        list[Path],
        typer.Argument(
            metavar="FILE|FOLDER...",
            help="Buffers, or folders of them. Of a folder without any, those below.",
        ),
    ],
    *,
    against: Annotated[
        Path | None,
        typer.Option(
            metavar="RUN",
            help="Compare with the server's books, in this folder.",
            show_default="FOLDER, if a run is saved there",
        ),
    ] = None,
    page: Annotated[
        Path | None, typer.Option(metavar="FILE.html", help="Write a page for an auditor.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Check that devices kept their limits, and that their records were not changed.

    A buffer's file has a record without content: every sample that came, was used, expired, was
    swept or erased, with times. Each entry is bound to the one before it. This command follows the
    chain, counts uses and days against the limits, and compares what is stored with what the record
    says, byte by byte. It changes nothing, and the node may be running.

    The owner of a device can rewrite everything on it, which an audit of the device alone cannot
    notice. Receipts carry the digest of the record to the server, so with `--against RUN` the audit
    notices a record that was rewritten, or a device that was restored from an older copy. It does
    not compare buffers of other runs, and says up to which round the books go.

    The command exits with 1 if anything is wrong. It names a file that it cannot read, and audits
    the others. Samples that are past their limit and wait for the next order or sweep are listed,
    and do not count as wrong.

    Audit a device, and write a page for an auditor:

        tidegate audit /var/lib/tidegate --page audit.html

    Compare with the server's books:

        tidegate audit buffers --against run

    A folder that holds both, as `tidegate run` saves it:

        tidegate audit run
    """
    paths = [path for path in paths if not _is_beside(path)]
    if against is None and len(paths) == 1 and holds_run(paths[0]):
        against = paths[0]
    if page is not None:
        check_place(page)
    with_own = [path for path in paths if _has_some(path)]
    audits, failed = _audited(paths, with_own)
    beside = [one for path in with_own for one in left_out(path, folders_below(path), paths)]
    missing = list[str]()
    if against is not None:
        run, accounts = read_accounts(against)
        if not failed and all(one.books.run != run for one in audits):
            raise ConfigurationError(
                f"{against} holds run {run!r}, and none of the buffers is of that run, but of "
                f"{', '.join(sorted({repr(one.books.run) for one in audits}))}; give the folder of "
                "one of these runs"
            )
        for one in audits:
            _compare(one, run, accounts)
        missing = _missing(run, accounts, audits)
    if as_json:
        checked = {
            "buffers": [facts(one) for one in audits],
            "against": against and str(against),
            "failed": [str(one) for one in failed],
            "not_audited": missing,
            "left_out": [str(one) for one in beside],
        }
        limits = {"proves_if_right": proven(against), "does_not_prove": not_proven()}
        typer.echo(json.dumps(checked | limits, indent=2))
    else:
        _show_all(audits, failed, missing)
    wrong = bool(failed) or not all(one.is_right for one in audits)
    if page is not None:
        compared = [] if against is None else ["--against", against]
        given = ["tidegate", "audit", *paths, *compared, "--page", page]
        command, unread = shlex.join(map(str, given)), [str(one) for one in failed]
        write = partial(
            write_audit_page, audits, page, against, command, unread=unread, missing=len(missing)
        )
        _write(write, page, wrong=wrong)
    if wrong:
        raise typer.Exit(1)


def _write(write: Callable[[], None], page: Path, *, wrong: bool) -> None:
    """Write the page; if that fails, the printed audit and its exit code stand."""
    try:
        check_packages("jinja2")
    except ConfigurationError as reason:
        told = f"the audit is complete, but {page} could not be written: {reason}"
        if not wrong:
            raise ConfigurationError(told) from None
        typer.echo(told, err=True)
    else:
        write()


def _audited(paths: list[Path], with_own: list[Path]) -> tuple[list[Audit], list[TidegateError]]:
    """Audit files and buffers in folders, each once; also return why files cannot be read.

    Args:
        paths: files and folders.
        with_own: folders that hold buffers themselves; of others, those below are audited.
    """
    audits: list[Audit] = []
    failed: list[TidegateError] = []
    each_once = {file.resolve(): file for path in paths for file in _files(path, with_own)}
    for file in each_once.values():
        try:
            if file not in paths:
                mark_of_file(file)  # if this fails, it may be of another program
            audits += audit_file(file)
        except TidegateError as wrong:
            failed.append(wrong)
        except (sqlite3.DatabaseError, OSError) as wrong:
            failed.append(DamagedFileError(file, f"cannot be read ({wrong})", REMEDY))
    if not audits and failed:
        raise failed[0]
    if not audits:
        raise ConfigurationError(
            f"there are no buffers in {', '.join(map(str, paths))}; give the folder that "
            "nodes keep them in, by default ~/.local/state/tidegate of the user who runs them"
        )
    audits.sort(key=lambda one: (one.books.run, natural_order(one.books.client)))
    return audits, failed


def _files(path: Path, with_own: list[Path]) -> list[Path]:
    """Return a file, or the buffers in a folder; files that cannot be read may be buffers."""
    if not path.exists():
        raise ConfigurationError(f"{path} does not exist; give a buffer or a folder of buffers")
    if not path.is_dir():
        return [path]
    files = sorted(path.glob("*.sqlite") if path in with_own else path.rglob("*.sqlite"))
    return [one for one in files if one.name != BOOKS and may_be_buffer(one)]


def _is_beside(path: Path) -> bool:
    """Return whether SQLite keeps this file beside another, as a pattern of the shell finds it."""
    name = path.name.removesuffix("-wal").removesuffix("-shm")
    return name != path.name and path.with_name(name).exists()


def _has_some(path: Path) -> bool:
    """Return whether a path is a folder that holds buffers itself."""
    return path.is_dir() and any(map(is_marked, path.glob("*.sqlite")))


def _compare(audit: Audit, run: str, accounts: dict[str, Any]) -> None:
    account = accounts.get(audit.books.client)
    if run != audit.books.run:
        audit.not_covered = f"not compared: of another run than the server's, {run!r}"
    elif account is None:
        audit.problems.append("the server does not know this client")
    else:
        compare(audit, account)


def _missing(run: str, accounts: dict[str, Any], audits: list[Audit]) -> list[str]:
    """Return the clients of the server's books whose buffers were not given."""
    here = {one.books.client for one in audits if one.books.run == run}
    known = {name for name, account in accounts.items() if not account.get("retired_in")}
    return sorted(known - here, key=natural_order)


def _show_all(audits: list[Audit], failed: list[TidegateError], missing: list[str]) -> None:
    for one in audits:
        _show(one)
    if missing:
        typer.echo(
            f"not audited: {few(missing[:MOST_NAMES], len(missing))}. The server's books know "
            "these clients, too; their buffers were not given or could not be read"
        )
    for reason in failed:
        typer.echo(f"{reason}", err=True)
    _show_counts(audits, failed)


def _show_counts(audits: list[Audit], failed: list[TidegateError]) -> None:
    unlimited = sum(not one.books.keep for one in audits)
    if unlimited:
        told = "no limit in days is set, so none was checked"
        if len(audits) > 1:
            have = "buffer sets" if unlimited == 1 else "buffers set"
            told = f"{unlimited:,} {have} no limit in days, so none was checked there"
        typer.echo(told)
    wrong = sum(not one.is_right for one in audits)
    counts = {"OK": len(audits) - wrong, "WRONG": wrong, "not readable": len(failed)}
    if sum(counts.values()) > 1:
        told = ", ".join(f"{count:,} {what}" for what, count in counts.items() if count)
        apart = sum(bool(one.not_covered) and one.compared_to is None for one in audits)
        beside = f"; {apart:,} not compared with the server's books" if apart else ""
        typer.echo(f"{sum(counts.values()):,} buffers: {told}{beside}")


def _show(audit: Audit) -> None:
    books, counts = audit.books, audit.sums.counts
    named = {"uses" if name == "used" else name: counts[name] for name in sorted(counts)}
    told = ", ".join(f"{name} {count:,}" for name, count in named.items())
    typer.echo(f"{books.client} in run {books.run}: {audit.entries:,} entries; {told or 'nothing'}")
    for wrong in [*audit.problems, *audit.broken]:
        typer.echo(f"  WRONG: {wrong}")
    for waits in audit.waiting:
        typer.echo(f"  waits for the next order or sweep: {waits}")
    if audit.not_covered:
        typer.echo(f"  {audit.not_covered}")
    if audit.is_right:
        beside = "" if audit.compared_to is None else ", and so do the server's books"
        if audit.compared_to is not None and audit.not_covered:
            beside += f" up to round {audit.compared_to}"
        typer.echo(f"  OK: the record is complete, and what is stored agrees with it{beside}")
