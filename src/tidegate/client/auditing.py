"""Audit a buffer's file: is its record complete, was every limit kept, does it match the content?

An audit only reads; the node may be running. Every finding is a contradiction that none of our
programs leaves behind.
"""

import json
import math
import sqlite3
import time
from collections import Counter
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tidegate import buffer
from tidegate._internal.saving import reading
from tidegate._internal.sqlite_file import check_tables, opened_to_read, transaction
from tidegate.client.buffer_files import check_ours
from tidegate.client.device_file import KIND, as_text, content_file
from tidegate.client.forgotten import Forgotten
from tidegate.client.limits import Clock, milliseconds
from tidegate.client.record import EARLY, Entry, Item, Sums, followed, held_by, mark_of, next_digest
from tidegate.client.store import COLUMNS, KINDS, Books, books_of
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
    """What an audit of one client's buffer found."""

    path: Path
    books: Books
    problems: list[str] = field(default_factory=list)
    """Contradictions: something else changed the record, or what is stored."""
    broken: list[str] = field(default_factory=list)
    """Limits that were not kept, by the record."""
    waiting: list[str] = field(default_factory=list)
    """What will be deleted with the next order or sweep."""
    sums: Sums = field(default_factory=Sums)
    """What the record adds up to."""
    held: Counter[str] = field(default_factory=Counter)
    """How many samples, candidates and purchases have content in the file."""
    entries: int = 0
    removed: int = 0
    """Number of early entries that are no longer there; their sums are."""
    digests: dict[int, str] = field(default_factory=dict)
    """By round, the digest before the entry of its order."""
    holdings: dict[int, tuple[int, int]] = field(default_factory=dict)
    """By round, the samples that trained in it, and the sum of their uses including that round."""
    deletions: list[Deletion] = field(default_factory=list)
    """By a limit, a sweep or ``tidegate forget``, without those of entries that were removed."""
    jumps: list[tuple[int, int]] = field(default_factory=list)
    """When the clock jumped, and how far."""
    uncovered: int = 0
    """The round whose order is the first entry: its digest does not cover the sums."""
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


def audit_file(path: Path, clock: Clock = time.time) -> list[Audit]:
    """Audit each buffer in a file; raise ``DamagedFileError`` if it cannot be read as one."""
    try:
        with closing(opened_to_read(path)) as file:
            file.text_factory = as_text
            check_ours(path, file)
            check_tables(file, path, KIND)
            with transaction(file, "DEFERRED"), reading(path, REMEDY):
                clients = file.execute(f"SELECT number, {', '.join(COLUMNS)} FROM clients")  # noqa: S608
                audits = [
                    _audit(Audit(path, books_of(row)), number, file, clock)
                    for number, *row in clients.fetchall()
                ]
                for problem in _of_the_file(file):
                    for audit in audits:
                        audit.problems.append(problem)
                return audits
    except sqlite3.DatabaseError as wrong:
        raise DamagedFileError(path, f"cannot be read as a buffer ({wrong})", REMEDY) from wrong


def _of_the_file(file: sqlite3.Connection) -> list[str]:
    """Return what is wrong with a file as a whole."""
    problems = []
    if file.execute("PRAGMA integrity_check").fetchall() != [("ok",)]:
        problems.append("the database is damaged (PRAGMA integrity_check)")
    ((contents,),) = file.execute(
        "SELECT count(*) FROM contents WHERE number NOT IN (SELECT number FROM samples)"
    )
    if contents:
        problems.append(f"{contents} contents belong to no sample")
    return problems


def _audit(audit: Audit, client: int, file: sqlite3.Connection, clock: Clock) -> Audit:
    if _follow(audit, client, file):
        _compare_stored(audit, client, file)
        _compare_books(audit, client, file)
        _look_ahead(audit, client, file, clock)
    return audit


def _follow(audit: Audit, client: int, file: sqlite3.Connection) -> bool:
    """Follow the record from its first entry to its end; return whether that is possible."""
    rows = file.execute(
        "SELECT number, before, entry FROM record WHERE client = ? ORDER BY number", (client,)
    ).fetchall()
    number, digest = (rows[0][0] - 1, rows[0][1]) if rows else (0, "")
    audit.removed = number
    at = breaches = 0
    for place, before, text in rows:
        number += 1
        if (place, before) != (number, digest):
            audit.problems.append(f"entry {number} of the record is missing")
            return False
        try:
            entry = Entry.read(text)
            is_known = number == 1 or number > audit.removed + 1
            expected = followed(audit.sums, entry) if is_known else entry.sums
        except (ValueError, TypeError, LookupError) as wrong:
            audit.problems.append(f"entry {number} of the record is not possible: {wrong}")
            return False
        if entry.at < at or entry.sums != expected:
            audit.problems.append(
                f"entry {number} of the record is not possible: its time or its sums do not follow "
                "from the entries before it"
            )
            return False
        broken = entry.breaches(audit.sums.keep) if entry.event == "order" else []
        audit.broken += broken
        breaches += bool(broken)
        at, audit.sums = entry.at, entry.sums
        _note(audit, entry, digest, is_first=number == audit.removed + 1)
        digest = next_digest(digest, text)
    audit.entries = number
    if audit.sums.breaches > breaches:
        earlier = audit.sums.breaches - breaches
        audit.broken.append(f"in {earlier} earlier orders a sample trained beyond a limit")
    books = audit.books
    if (number, digest) != (books.record_number, books.record_digest):
        audit.problems.append(
            f"the record has {number} entries and ends in {digest[:16]}, but the books say "
            f"{books.record_number} and {books.record_digest[:16]}"
        )
    if json.loads(books.sums) != json.loads(json.dumps(vars(audit.sums))):
        audit.problems.append("the books have other sums than the record")
    if books.own_time < at:
        audit.problems.append("the file's time is before the newest entry of the record")
    return True


def _note(audit: Audit, entry: Entry, digest: str, *, is_first: bool) -> None:
    """Note what an order used, and what was deleted.

    Args:
        audit: to note it in.
        entry: of the record.
        digest: before the entry.
        is_first: whether it is the first that is left.
    """
    if entry.event == "order":
        audit.is_as_told = True
        audit.digests[entry.round_number] = digest
        audit.holdings[entry.round_number] = entry.sums.trained, entry.sums.uses
        if is_first and audit.removed:
            audit.uncovered = entry.round_number
    if entry.event in EARLY and entry.left:
        audit.is_as_told = False
        audit.deletions.append(Deletion(entry.at, entry.event, len(entry.left)))
    if entry.jump:
        audit.jumps.append((entry.at, entry.jump))


def _compare_stored(audit: Audit, client: int, file: sqlite3.Connection) -> None:
    """Check that what is stored is what the record says, byte by byte."""
    items, wrong = [], 0
    since_before = -math.inf
    for state, held_at, since, subject, secret, mark, name, content in file.execute(
        "SELECT state, held_at, since, subject, secret, mark, file, content FROM samples "
        "LEFT JOIN contents USING (number) WHERE client = ? ORDER BY state, place",
        (client,),
    ):
        kinds = tuple(map(type, (state, held_at, since, subject, secret, mark)))
        if kinds != (str, int, int, str, bytes, str) or state not in KINDS:
            wrong += 1
            continue
        if state == "stored":
            wrong += since < since_before  # it would leave before its turn, or after
            since_before = since
        if not mark and content is None and state in ("paid", "under way"):
            continue  # it is void
        items.append(Item(mark, KINDS[state], held_at, since))
        if name:
            content = _large_content(audit.path, name)  # noqa: PLW2901
        if type(content) is not bytes or mark != mark_of(secret, subject, content):
            wrong += not name or _is_named(audit.path, name)
    audit.held = Counter(item.kind for item in items)
    if wrong:
        audit.problems.append(f"{wrong} of {len(items)} samples are not as they were stored")
    if held_by(items) != audit.sums.held:
        audit.problems.append(
            f"the {len(items)} samples, candidates and purchases in the file are not those of the "
            "record"
        )


def _large_content(path: Path, name: str) -> bytes | None:
    """Return a content that is a file beside the buffer; None if it is not there."""
    try:
        return content_file(path, name).read_bytes()
    except (OSError, TypeError, DamagedFileError):
        return None


def _is_named(path: Path, name: str) -> bool:
    """Return whether a content is still in the buffer: the node may have deleted it meanwhile."""
    with closing(opened_to_read(path)) as file:
        return bool(file.execute("SELECT 1 FROM contents WHERE file = ?", (name,)).fetchall())


def _compare_books(audit: Audit, client: int, file: sqlite3.Connection) -> None:
    """Check that books and answers agree with the record."""
    books, sums, counts = audit.books, audit.sums, Counter(audit.sums.counts)
    ((under_way,),) = file.execute(
        "SELECT count(*) FROM samples WHERE client = ? AND state = 'under way'", (client,)
    )
    pairs: dict[str, tuple[Any, Any]] = {
        "newest round": (books.last_round, sums.round_number),
        "orders": (books.orders, sums.orders),
        "samples admitted in all": (books.admitted, counts["admitted"]),
        "samples expired": (books.expired, counts["expired"] + counts["swept"]),
        "samples erased": (books.erased, counts["erased"]),
        "samples stored": (audit.held["sample"], sums.stored),
        "purchases under way": (books.under_way, under_way),
        "limit": (books.keep, sums.keep),
    }
    rows = file.execute("SELECT round_number, receipt FROM answers WHERE client = ?", (client,))
    receipts = {number: json.loads(text) for number, text in rows}
    newest = receipts.get(books.last_round)
    if newest is not None:
        money = ("bought", "admitted", "refused", "spent", "refunded")
        pairs |= {name: (getattr(books, name), newest[name]) for name in money}
    for name, (stored, expected) in pairs.items():
        if stored != expected:
            audit.problems.append(f"{name}: {stored} in the file, but {expected} by the record")
    for number, receipt in receipts.items():
        if number in audit.digests:
            trained = receipt["record"], receipt["occupancy"], receipt["uses"]
            if trained != (audit.digests[number], *audit.holdings[number]):
                audit.problems.append(f"the receipt of round {number} belongs to another record")
    missing = audit.digests.keys() - receipts.keys()
    lost = [number for number in missing if number > books.last_round - len(receipts)]
    if lost:
        audit.problems.append(f"the receipt of round {max(lost)} is missing")
    if audit.is_as_told and newest is not None:
        _compare_ages(audit, client, file, tuple(newest["holding"]))


def _compare_ages(
    audit: Audit, client: int, file: sqlite3.Connection, reported: tuple[int, ...]
) -> None:
    """Check that the newest receipt has told the ages of what is stored or under way."""
    rows = file.execute(
        "SELECT bought_in, in_group FROM samples "
        "WHERE client = ? AND state IN ('stored', 'under way')",
        (client,),
    )
    ages = Counter((audit.books.orders - number + 1, group) for number, group in rows)
    planned = buffer.holding(buffer.planned(ages, audit.books.buffer_capacity))
    if reported != planned:
        audit.problems.append(f"the newest receipt reports ages {reported}, but they are {planned}")


def _look_ahead(audit: Audit, client: int, file: sqlite3.Connection, clock: Clock) -> None:
    """Note what may no longer be held, and waits for the next order or sweep."""
    books = audit.books
    now = books.time.at(milliseconds(clock)).own
    rows = file.execute(
        "SELECT held_at, subject FROM samples WHERE client = ? AND mark != ''", (client,)
    ).fetchall()
    over = sum(held_at <= now - books.keep for held_at, _ in rows) if books.keep else 0
    if over:
        audit.waiting.append(f"{over} are past their limit")
    forgotten = Forgotten(audit.path.parent).hashes()
    erased = sum(subject in forgotten for _, subject in rows)
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
    digest = newest["record"]  # empty before the first receipt
    if last not in audit.digests:
        if digest:
            audit.problems.append(
                f"the record has no order of round {last}, though the client replied to it"
            )
        return
    if digest not in ("", audit.digests[last]):
        audit.problems.append(
            f"the server has a digest of another record up to round {last}: this one was rewritten"
        )
    elif last == audit.uncovered and digest:
        audit.problems.append(
            f"the server's digest of round {last} does not cover the sums of the first "
            f"{audit.removed} entries, which are gone: they may have been made up"
        )
    reported = newest["occupancy"], newest["uses"]
    if audit.holdings[last] != reported:
        trained, uses = audit.holdings[last]
        audit.problems.append(
            f"the receipt of round {last} reported {reported[0]} samples that were used "
            f"{reported[1]} times, but the record says {trained} and {uses}"
        )
