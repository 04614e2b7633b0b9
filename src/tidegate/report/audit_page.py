"""A page for an auditor: what devices held and did, what that proves, and what it does not."""

import platform
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tidegate.client.auditing import Audit
from tidegate.client.limits import DAY, in_words
from tidegate.report.alarms import Level
from tidegate.report.page import TEMPLATES, render

NEWEST = 200
"""Deletions on the page; JSON has all."""
SHORT = 12
"""Characters of a name that nobody gave, such as that of a run."""


def proven(against: Path | None) -> list[str]:
    """Return what an audit proves if it finds nothing wrong.

    Args:
        against: the run whose books were compared, if any.
    """
    sentences = _sentences("proven")
    return sentences[: len(sentences) - (against is None)]


def not_proven() -> list[str]:
    """Return what no audit proves."""
    return _sentences("not_proven")


def _sentences(name: str) -> list[str]:
    """Return the sentences of a file of templates, one a line."""
    return (TEMPLATES / f"{name}.txt").read_text("utf-8").splitlines()


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


@dataclass(frozen=True)
class AuditPage:
    """All that the page of some audits says; ``audit.html`` has the words."""

    audits: Sequence[Audit]
    against: Path | None
    """The run whose books were compared, if any."""
    command: str
    """That makes this page again."""
    unread: Sequence[str]
    """What is wrong with buffers that could not be read."""
    missing: int
    """Clients in the server's books whose buffers were not audited."""
    at: str
    """When, in UTC."""
    machine: str = platform.node() or "a computer without a name"

    @property
    def wrong(self) -> int:
        """Buffers with a problem."""
        return sum(not audit.is_right for audit in self.audits)

    @property
    def compared(self) -> int:
        """Buffers that were compared with the server's books."""
        return sum(audit.compared_to is not None for audit in self.audits)

    @property
    def unlimited(self) -> int:
        """Buffers without a limit in days."""
        return sum(not audit.books.keep for audit in self.audits)

    @property
    def level(self) -> Level:
        """Red if anything is wrong, yellow if buffers are missing."""
        if self.wrong or self.unread:
            return "red"
        return "yellow" if self.missing else "green"

    @property
    def proven(self) -> list[str]:
        """What this proves if nothing is wrong."""
        return proven(self.against)

    @property
    def not_proven(self) -> list[str]:
        """What it does not prove."""
        return not_proven()

    @property
    def names(self) -> list[str]:
        """What to call each buffer: by its client, and its run where there are several."""
        if len({audit.books.run for audit in self.audits}) == 1:
            return [audit.books.client for audit in self.audits]
        return [f"{audit.books.client} in {audit.books.run[:SHORT]}" for audit in self.audits]

    @property
    def limits(self) -> list[list[str]]:
        """Each buffer against its limits."""
        return [
            [
                *(
                    name,
                    _verdict(audit),
                    in_words(audit.books.keep) if audit.books.keep else "none",
                ),
                *(f"{audit.sums.longest / DAY:,.2f}", f"{audit.sums.most_used}"),
            ]
            for name, audit in zip(self.names, self.audits, strict=True)
        ]

    @property
    def samples(self) -> list[list[str]]:
        """What happened to the samples of each buffer."""
        events = ("admitted", "used", "left", "expired", "swept", "erased")
        return [
            [
                name,
                *(f"{audit.sums.counts.get(event, 0):,}" for event in events),
                f"{audit.held['sample']:,}",
            ]
            for name, audit in zip(self.names, self.audits, strict=True)
        ]

    @property
    def records(self) -> list[list[str]]:
        """The length and the digest of each record."""
        return [
            [name, f"{audit.entries:,}", audit.books.record_digest]
            for name, audit in zip(self.names, self.audits, strict=True)
        ]

    @property
    def deletions(self) -> list[list[str]]:
        """All deletions before a sample's turn, the newest first."""
        named = zip(self.names, self.audits, strict=True)
        rows = [(each.at, name, each) for name, audit in named for each in audit.deletions]
        rows.sort(key=lambda row: row[:2], reverse=True)
        return [[_date(at), name, each.event, f"{each.count:,}"] for at, name, each in rows]

    @property
    def details(self) -> list[tuple[str, dict[str, Any]]]:
        """All other facts of each buffer, by its name."""
        others = [facts(audit) for audit in self.audits]
        for each in others:
            del each["deletions"]
        return list(zip(self.names, others, strict=True))


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
    written = _date(int(time.time() * 1000))
    page = AuditPage(audits, against, command, unread, missing, written)
    render(path, "audit.html", page=page, newest=NEWEST)


def _verdict(audit: Audit) -> str:
    """Return whether a buffer is right, and whether the server's books were asked, too."""
    if not audit.is_right:
        return "NO"
    return "yes" if audit.compared_to is not None else "yes, by its own record alone"


def _date(at: int) -> str:
    """Return a time of the record, in UTC."""
    return time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(at / 1000))
