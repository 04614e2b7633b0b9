"""A page for an auditor: what devices held and did, what that proves, and what it does not."""

import platform
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tidegate._internal.words import counted
from tidegate.client.auditing import Audit
from tidegate.client.limits import DAY, in_words
from tidegate.report.page import Rows, Section, Verdict, write_page

PROVEN = [
    (
        "The record is complete: each entry is bound to the one before it, and none was removed, "
        "moved or changed since."
    ),
    (
        "No sample trained in more rounds than the orders allowed, and none after it had been held "
        "for longer than the limit that was in force, by the device's clock."
    ),
    (
        "The device stores what the record says: the same samples with the same bytes, uses and "
        "times."
    ),
    (
        "By the server's books, for each buffer that was compared: the record up to the newest "
        "receipt in these books is the one whose digest the server received at the time, and the "
        "device was not restored from an older copy."
    ),
]
NOT_PROVEN = [
    (
        "That a model has forgotten what it learned. Deleting a sample is not unlearning, and none "
        "is claimed."
    ),
    "That a flash disk, a snapshot or a backup holds no older copy of overwritten blocks.",
    (
        "Anything against an owner of the device who rewrites the whole file, unless the server's "
        "books are compared; and then not what happened after the newest receipt, nor times and "
        "samples of the newest round."
    ),
    "That the device's clock was right. Jumps that it noticed are listed.",
    (
        "That the app trained only on what the gate handed out, and kept no copy of its own; what "
        "logs, and files that a stream reads, hold."
    ),
    "Who a sample is about: the app names the subject. The record holds no name.",
    (
        "What was paid, the keys of samples, how far the stream was read, and texts of errors: the "
        "device's books and receipts hold these, and the record does not cover them."
    ),
    "Single entries that were summed up: the seal keeps their sums, and what was then held.",
]

NEWEST = 200
"""Deletions on the page; JSON has all."""

AGAIN = (
    "Each record ends in a digest, above. Until a device adds an entry, an audit of it or of a "
    "copy finds the same digest."
)
COUNTED = (
    "Counts are numbers of samples, except uses: a sample that trained in three rounds has three. "
    "Expired samples were past their days when an order came, swept ones when a sweep came between "
    "two orders; both were overwritten."
)


def proven(against: Path | None) -> list[str]:
    """Return what an audit proves if it finds nothing wrong.

    Args:
        against: the run whose books were compared, if any.
    """
    return PROVEN[: len(PROVEN) - (against is None)]


def facts(audit: Audit) -> dict[str, Any]:
    """Return the findings of an audit as plain values."""
    sums, books = audit.sums, audit.books
    return {
        "file": str(audit.path),
        "run": books.run,
        "client": books.client,
        "buffer_id": books.buffer_id,
        "right": audit.is_right,
        "problems": audit.problems,
        "limits_broken": audit.broken,
        "waiting": audit.waiting,
        "compared_up_to_round": audit.compared_to,
        "not_covered": audit.not_covered or None,
        "keep_at_most": in_words(books.keep) if books.keep else None,
        "longest_held_when_used_days": round(sums.longest / DAY, 3),
        "most_uses_of_a_sample": sums.most_used,
        "counts": dict(sorted(sums.counts.items())),
        "held": {kind: audit.held[kind] for kind in ("sample", "candidate", "purchase")},
        "rounds": sums.round_number,
        "entries": audit.entries,
        "entries_removed": audit.removed,
        "digest": books.record_digest,
        "deletions": [
            {"at": _date(one.at), "event": one.event, "count": one.count} for one in audit.deletions
        ],
        "clock_jumps": [
            {"at": _date(at), "days": round(jump / DAY, 2)} for at, jump in audit.jumps
        ],
    }


def write_audit_page(
    audits: Sequence[Audit],
    path: Path,
    against: Path | None,
    command: str,
    *,
    unread: Sequence[str] = (),
    missing: int = 0,
) -> None:
    """Write the page of some audits, with the time, the computer and the command.

    Args:
        audits: one a buffer.
        path: the file of the page.
        against: the run whose books were compared, if any.
        command: that makes this page again.
        unread: what is wrong with buffers that could not be read.
        missing: clients in the server's books whose buffers were not audited.
    """
    wrong = sum(not one.is_right for one in audits)
    compared = sum(one.compared_to is not None for one in audits)
    beside = "not compared with the server's books"
    if against:
        which = "" if compared == len(audits) else f"{compared or 'none'} of them "
        beside = f"{which}compared with the server's books in {against}"
    lead = f"{counted(len(audits), 'buffer')}, {beside}."
    unlimited = sum(not one.books.keep for one in audits)
    if unlimited:
        lead += f" {unlimited} of {len(audits)} set no limit in days, so none was checked there."
    contradict = "contradicts itself or the server's books, or"
    if wrong != 1:
        contradict = "contradict themselves or the server's books, or"
    verdict = Verdict("green", [("Nothing is wrong.", "")])
    clients = "1 client" if missing == 1 else f"{missing:,} clients"
    not_audited = (
        f"{clients} in the server's books {'was' if missing == 1 else 'were'} not audited."
    )
    if missing:
        verdict = Verdict("yellow", [("Nothing is wrong in these buffers.", not_audited)])
    if wrong or unread:
        lines = [("NOT READ:", f"{one}.") for one in unread]
        if wrong:
            told = f"{wrong} of {len(audits)} {contradict} broke a limit."
            lines.append(("WRONG:", told))
        if missing:
            lines.append(("NOT AUDITED:", not_audited))
        verdict = Verdict("red", lines)
    now = _date(int(time.time() * 1000))
    lead += f"\nAudited on {now} UTC on {platform.node() or 'a computer without a name'}."
    names = _names(audits)
    rows = [_row(name, facts(one)) for name, one in zip(names, audits, strict=True)]
    header = ["client", "right", "limit", "oldest at use, days", "most uses", "run"]
    sections = [
        Section(
            "What was found",
            [*(text for one in audits for text in _told(one)), COUNTED],
            tables=[
                Rows("Buffers", header, [row[:6] for row in rows]),
                Rows(
                    "Samples, by what happened to them",
                    ["client", "admitted", "uses", "left", "expired", "swept", "erased", "held"],
                    [row[6:] for row in rows],
                ),
                *_deletions(names, audits),
                Rows(
                    "Records, and the digest at the end of each",
                    ["client", "entries", "digest"],
                    [
                        [name, f"{one.entries:,}", one.books.record_digest]
                        for name, one in zip(names, audits, strict=True)
                    ],
                ),
            ],
        ),
        Section("What it would prove" if wrong else "What this proves", proven(against)),
        Section("What it does not prove", NOT_PROVEN),
        Section(
            "How to check it again",
            [AGAIN],
            command=command,
            details=[_details(one) for one in audits],
        ),
    ]
    write_page(path, "Audit of what devices kept", lead, sections, verdict)


def _names(audits: Sequence[Audit]) -> list[str]:
    """Return what to call each buffer: by its client, and its run where there are several."""
    if len({one.books.run for one in audits}) == 1:
        return [one.books.client for one in audits]
    return [f"{one.books.client} in {one.books.run}" for one in audits]


def _row(name: str, told: dict[str, Any]) -> list[str]:
    names = ("admitted", "used", "left", "expired", "swept", "erased")
    happened = [f"{told['counts'].get(one, 0):,}" for one in names]
    return [
        name,
        "yes" if told["right"] else "NO",
        told["keep_at_most"] or "none",
        f"{told['longest_held_when_used_days']:,.2f}",
        str(told["most_uses_of_a_sample"]),
        told["run"],
        name,
        *happened,
        f"{told['held']['sample']:,}",
    ]


def _told(audit: Audit) -> list[str]:
    name = audit.books.client
    wrong = [f"{name}: WRONG: {text}." for text in (*audit.problems, *audit.broken)]
    waits = [f"{name}: waits for the next order or sweep: {text}." for text in audit.waiting]
    beyond = [f"{name} in run {audit.books.run}: {audit.not_covered}."] if audit.not_covered else []
    return wrong + waits + beyond


def _deletions(names: Sequence[str], audits: Sequence[Audit]) -> list[Rows]:
    """Return a table of the newest deletions; none if there are none."""
    named = zip(names, audits, strict=True)
    found = [(one.at, name, one) for name, audit in named for one in audit.deletions]
    found.sort(key=lambda row: row[:2], reverse=True)
    caption = "Deletions before a sample's turn, the newest first; times are UTC"
    if len(found) > NEWEST:
        caption += f"; {NEWEST} of {len(found):,}, --json lists all"
    rows = [[_date(at), name, one.event, f"{one.count:,}"] for at, name, one in found[:NEWEST]]
    return [Rows(caption, ["time", "client", "why", "number"], rows)] if rows else []


def _details(audit: Audit) -> Rows:
    told = {name: value for name, value in facts(audit).items() if name != "deletions"}
    return Rows(
        f"{told['client']} in run {told['run']}",
        ["fact", "value"],
        [[name, str(value)] for name, value in told.items()],
    )


def _date(at: int) -> str:
    """Return a time of the record, in UTC."""
    return time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(at / 1000))
