"""Audit a buffer's file: is its record complete, was every limit kept, does it match the content?

An audit only reads; the node may be running. Every finding is a contradiction that none of our
programs leaves behind.
"""

import json
import sqlite3
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tidegate import buffer
from tidegate._internal.saving import plain, reading
from tidegate._internal.sqlite_file import check_tables, opened_to_read, transaction
from tidegate.client.buffer_files import check_ours
from tidegate.client.forgotten import Forgotten
from tidegate.client.keeping import CONTENTS
from tidegate.client.limits import Clock, OwnTime, milliseconds
from tidegate.client.record import FIRST, KINDS, Entry, Replay, mark_of, next_digest
from tidegate.client.sealing import binding
from tidegate.client.sqlite_file import buffer_kind
from tidegate.client.store import Books
from tidegate.errors import DamagedFileError

REMEDY = "keep the file as it is, and find out who had access to the device"


@dataclass(frozen=True)
class Deletion:
    """Content that a device overwrote before it left the buffer in its turn."""

    at: int
    """By the file's own time, in milliseconds since 1970."""
    event: str
    """expired, swept or erased."""
    count: int
    """Samples, candidates and purchases together."""


@dataclass
class Audit:
    """What an audit of one file found."""

    path: Path
    books: Books
    problems: list[str] = field(default_factory=list)
    """Contradictions: something else changed the record, or what is stored."""
    broken: list[str] = field(default_factory=list)
    """Limits that were not kept, by the record."""
    waiting: list[str] = field(default_factory=list)
    """What will be deleted with the next order or sweep."""
    replay: Replay = field(default_factory=Replay)
    entries: int = 0
    sealed: int = 0
    """Number of entries that were summed up."""
    digests: dict[int, str] = field(default_factory=dict)
    """By round, the digest before the entry of its order."""
    holdings: dict[int, Counter[int]] = field(default_factory=dict)
    """By round, how many samples trained in it, by their uses including that round."""
    deletions: list[Deletion] = field(default_factory=list)
    """By a limit, a sweep or ``tidegate forget``, without those of entries that were summed up."""
    unbound: set[int] = field(default_factory=set)
    """Rounds whose digest does not cover the sums of sealed entries."""
    is_as_told: bool = True
    """Whether nothing was let go since the newest receipt."""
    compared_to: int | None = None
    """The round up to which it was compared with the server's books; None if it was not."""
    not_covered: str = ""
    """What the comparison with the server's books leaves out, if anything."""

    @property
    def is_right(self) -> bool:
        """Whether nothing contradicts the record, and every limit was kept."""
        return not (self.problems or self.broken)


def audit_file(path: Path, clock: Clock = time.time) -> Audit:
    """Audit a buffer; raise ``DamagedFileError`` for a file that cannot be read as one."""
    try:
        with closing(opened_to_read(path)) as file:
            check_ours(path, file)
            check_tables(file, path, buffer_kind())
            with transaction(file, "DEFERRED"), reading(path, REMEDY):
                return _audit(path, file, clock)
    except sqlite3.DatabaseError as wrong:
        raise DamagedFileError(path, f"cannot be read as a buffer ({wrong})", REMEDY) from wrong


def _audit(path: Path, file: sqlite3.Connection, clock: Clock) -> Audit:
    ((text,),) = file.execute("SELECT content FROM books LIMIT 1").fetchall()
    audit = Audit(path, plain(Books, json.loads(text)))
    if file.execute("PRAGMA integrity_check").fetchall() != [("ok",)]:
        audit.problems.append("the database is damaged (PRAGMA integrity_check)")
    if _follow(audit, file):
        _compare_stored(audit, file)
        _compare_books(audit, file)
        _look_ahead(audit, file, clock)
    audit.broken = audit.replay.broken
    return audit


def _follow(audit: Audit, file: sqlite3.Connection) -> bool:
    """Follow the chain from the seal to its end; return whether that is possible."""
    sealed = file.execute("SELECT number, digest, content FROM seal").fetchall()
    number, digest, seal = sealed[0] if sealed else (0, FIRST, "")
    bound = binding(number, digest, seal) if sealed else ""
    audit.sealed = number
    try:
        audit.replay = Replay(seal)
    except (ValueError, TypeError, LookupError):
        audit.problems.append("the seal cannot be read")
        return False
    rows = file.execute("SELECT number, content FROM record ORDER BY number").fetchall()
    for place, text in rows:
        number += 1
        if place != number:
            audit.problems.append(f"entry {number} of the record is missing")
            return False
        try:
            entry = Entry.read(text)
            audit.replay.follow(entry)
        except (ValueError, TypeError, LookupError) as wrong:
            audit.problems.append(f"entry {number} of the record is not possible: {wrong}")
            return False
        _note(audit, entry, digest, bound=not bound)
        if entry.event == "sealed" and entry.note == bound:
            bound = ""
        digest = next_digest(digest, text)
    audit.entries = number
    if bound:
        audit.problems.append("the seal is not the one that the record names")
    if (number, digest) != (audit.books.record_number, audit.books.record_digest):
        audit.problems.append(
            f"the record has {number} entries and ends in {digest[:16]}, but the books say "
            f"{audit.books.record_number} and {audit.books.record_digest[:16]}"
        )
    return True


def _note(audit: Audit, entry: Entry, digest: str, *, bound: bool) -> None:
    """Note what an order used, and what was deleted.

    Args:
        audit: to note it in.
        entry: of the record.
        digest: before the entry.
        bound: whether the digest covers the sums of sealed entries.
    """
    if entry.event == "order":
        replay = audit.replay
        held = [replay.uses(one) for one in replay.items.values() if one.kind == "sample"]
        audit.is_as_told = True
        audit.digests[entry.round_number] = digest
        audit.holdings[entry.round_number] = Counter(held)
        if not bound:
            audit.unbound.add(entry.round_number)
    if entry.event in ("expired", "swept", "erased") and entry.gone:
        audit.is_as_told = False
        audit.deletions.append(Deletion(entry.at, entry.event, len(entry.gone)))


def _compare_stored(audit: Audit, file: sqlite3.Connection) -> None:
    """Check that what is stored is what the record says, in its order, byte by byte."""
    for kind in KINDS:
        rows, contents, column = CONTENTS[kind]
        told = [(mark, one) for mark, one in audit.replay.items.items() if one.kind == kind]
        stored = file.execute(
            f"SELECT place.{column}, content, held_at, secret, subject "  # noqa: S608 - names
            f"FROM {contents} AS place "
            f"LEFT JOIN origins ON kind = ? AND origins.number = place.{column} "
            f"ORDER BY place.{column}",
            (kind,),
        ).fetchall()
        found = [(_mark(row), row[2]) for row in stored]
        if found != [(mark, one.held_at) for mark, one in told]:
            audit.problems.append(
                f"{kind}s: {len(found)} are stored, but {len(told)} are in the record"
                if len(found) != len(told)
                else f"{kind}s: at least one of the {len(found)} stored differs from the record in "
                "content or time"
            )
        ((known,),) = file.execute("SELECT count(*) FROM origins WHERE kind = ?", (kind,))
        if known != len(stored):
            audit.problems.append(
                f"{kind}s: {known} have an origin, but {len(stored)} have content"
            )
        if kind != "purchase":
            numbers = file.execute(f"SELECT {column} FROM {rows} ORDER BY {column}")  # noqa: S608
            if [number for (number,) in numbers] != [row[0] for row in stored]:
                audit.problems.append(f"{kind}s: rows and contents do not match")
    samples = file.execute(
        "SELECT position, admitted_round, uses FROM samples ORDER BY position"
    ).fetchall()
    items = [one for one in audit.replay.items.values() if one.kind == "sample"]
    for row, one in zip(samples, items, strict=False):
        expected = one.position, one.admitted_round, audit.replay.uses(one)
        if row != expected:
            audit.problems.append(
                f"sample {row[0]}: position, round and uses are {row}, but by the record {expected}"
            )


def _mark(row: Sequence[Any]) -> str | None:
    """Return the mark of a stored content; None if it was not stored by us."""
    _, content, _, secret, subject = row
    if (type(content), type(secret), type(subject)) != (bytes, bytes, str):
        return None
    return mark_of(secret, subject, content)


def _compare_books(audit: Audit, file: sqlite3.Connection) -> None:
    """Check that books and answers agree with the record."""
    books, replay = audit.books, audit.replay
    counts = Counter(replay.counts)
    waiting = sum(one.kind == "candidate" for one in replay.items.values())
    ((own, keep),) = file.execute("SELECT own, keep FROM own_time").fetchall()
    ((rows,),) = file.execute("SELECT count(*) FROM purchases").fetchall()
    pairs: Mapping[str, tuple[Any, Any]] = {
        "newest round": (books.last_round, replay.round_number),
        "orders": (books.orders, replay.orders),
        "samples admitted in all": (books.total_admitted, replay.admitted),
        "samples expired": (books.total_expired, counts["expired"] + counts["swept"]),
        "samples erased": (books.total_erased, counts["erased"]),
        "candidates": (books.candidates, waiting),
        "purchases": (books.under_way, rows),
        "limit": (keep, replay.keep),
    }
    for name, (stored, told) in pairs.items():
        if stored != told:
            audit.problems.append(f"{name}: {stored} in the file, but {told} by the record")
    if own < replay.at:
        audit.problems.append("the file's time is before the newest entry of the record")
    answers = file.execute("SELECT round_number, receipt FROM answers").fetchall()
    receipts = {number: json.loads(text) for number, text in answers}
    for number, receipt in receipts.items():
        if number in audit.digests:
            held = receipt["record"], receipt["occupancy"]
            if held != (audit.digests[number], audit.holdings[number].total()):
                audit.problems.append(f"the receipt of round {number} belongs to another record")
    if audit.is_as_told and books.last_round in receipts:
        bought_in = file.execute(
            "SELECT bought_in FROM samples UNION ALL SELECT bought_in FROM purchases"
        )
        ages = [books.orders - number + 1 for (number,) in bought_in]
        planned = buffer.holding(buffer.planned(ages, books.buffer_capacity))
        reported = tuple(receipts[books.last_round]["holding"])
        if reported != planned:
            audit.problems.append(
                f"the newest receipt reports ages {reported}, but they are {planned}"
            )
    missing = audit.digests.keys() - receipts.keys()
    newest = [number for number in missing if number > books.last_round - len(answers)]
    if newest:
        audit.problems.append(f"the receipt of round {max(newest)} is missing")


def _look_ahead(audit: Audit, file: sqlite3.Connection, clock: Clock) -> None:
    """Note what may no longer be held, and waits for the next order or sweep."""
    ((own, wall),) = file.execute("SELECT own, wall FROM own_time").fetchall()
    now, keep = OwnTime(own, wall).at(milliseconds(clock)).own, audit.replay.keep
    over = [one for one in audit.replay.items.values() if keep and one.held_at <= now - keep]
    if over:
        audit.waiting.append(f"{len(over)} are past their limit")
    forgotten = Forgotten(audit.path.parent).hashes()
    subjects = file.execute("SELECT subject FROM origins").fetchall()
    erased = sum(subject in forgotten for (subject,) in subjects)
    if erased:
        audit.waiting.append(f"{erased} are of a forgotten subject")


def compare(audit: Audit, account: Mapping[str, Any]) -> None:
    """Compare an audit with the server's account of the same client.

    Args:
        audit: of the client's file; contradictions are added to it, and how far the account goes.
        account: the server's, from its books.
    """
    books, newest = audit.books, account["newest"]
    last = newest["round_number"]
    if not account["buffer_id"]:
        audit.not_covered = (
            "not compared: the server retired this client and gave up its last order; the device "
            "still holds its samples"
        )
        return
    if account["buffer_id"] != books.buffer_id:
        audit.problems.append(
            "the server knows another buffer of this client: this one was lost, or replaced the "
            "other"
        )
        return
    if last > books.last_round:
        audit.problems.append(
            f"the server has a receipt of round {last}, but this file ends at round "
            f"{books.last_round}: it is an older copy"
        )
        return
    audit.compared_to = last
    if last < books.last_round:
        audit.not_covered = f"compared up to round {last}; what came later is not covered"
    told = newest["record"]  # empty before the first receipt
    if last not in audit.digests:
        if told:
            audit.problems.append(
                f"the record has no order of round {last}, though the client replied to it"
            )
        return
    if told not in ("", audit.digests[last]):
        audit.problems.append(
            f"the server has a digest of another record up to round {last}: this one was rewritten"
        )
    elif last in audit.unbound and told:
        audit.problems.append(
            f"the server's digest of round {last} does not cover the sums of its first "
            f"{audit.sealed} entries: they were made up, or no receipt has arrived since"
        )
    held = audit.holdings[last]
    recorded = held.total(), sum(uses * count for uses, count in held.items())
    if recorded != (newest["occupancy"], newest["uses"]):
        audit.problems.append(
            f"the receipt of round {last} reported {newest['occupancy']} samples that were used "
            f"{newest['uses']} times, but the record says {recorded[0]} and {recorded[1]}"
        )
