"""The record of a buffer: what it admitted, used and let go, without content.

Entries form a chain: the digest of each covers its text and the digest before it. A sample is named
by its mark, a keyed hash of its content. The key is beside the sample and is overwritten with it,
so the mark of a sample that has left reveals nothing about it. Each entry ends with the sums of all
before it, so that early ones can be removed: a digest that the server holds covers the sums, too.
"""

import base64
import hashlib
import hmac
import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal, NamedTuple

from tidegate._internal.saving import plain

Event = Literal["begun", "limit", "clock", "taken", "order", "expired", "swept", "erased"]
EARLY = ("expired", "swept", "erased")
"""Events by which content leaves before its turn."""
FIRST = hashlib.sha256(b"tidegate record").hexdigest()
"""The digest before the first entry."""
KEPT_ENTRIES = 1000
"""Entries that are kept; what those before them say is in their sums."""
KEPT_ORDERS = 3
"""Orders whose entries are kept, with one entry before each, however many others follow."""
MARK_BYTES = 12
HELD = 2**256
"""The sum of the hashes of all items is kept below this."""


class Item(NamedTuple):
    """Something whose content a device holds."""

    mark: str
    kind: str
    """candidate, purchase (bought, and not in the buffer yet) or sample."""
    held_at: int
    """Since when, by the file's own time, in milliseconds since 1970."""
    since: int
    """Of a stored sample, the orders before the one that stored it; each later one has used it.
    Below 0 for one that an earlier run has used."""

    def digest(self) -> int:
        """Return a number that stands for it in a sum."""
        return int.from_bytes(hashlib.sha256(json.dumps(self).encode()).digest())


@dataclass(frozen=True)
class Sums:
    """What all entries up to one add up to."""

    round_number: int = 0
    """Of the newest order."""
    orders: int = 0
    keep: int = 0
    """The limit, in milliseconds; 0 for none."""
    train_on: int = 0
    """The most samples that train in a round; 0 for all that are stored."""
    stored: int = 0
    """Samples in the buffer."""
    trained: int = 0
    """Those of them that trained in the newest order."""
    uses: int = 0
    """Sum of the rounds that each of these has trained in; of all that are stored, if all train."""
    held: str = "0"
    """Sum of the hashes of all items, in hexadecimal digits."""
    longest: int = 0
    """How long the oldest sample was held that trained, in milliseconds."""
    most_used: int = 0
    breaches: int = 0
    """Orders in which a sample trained beyond a limit."""
    counts: Mapping[str, int] = field(default_factory=dict)
    """How often each thing happened to a sample."""

    @classmethod
    def read(cls, content: Mapping[str, Any]) -> "Sums":
        """Restore from JSON."""
        sums = plain(cls, content)
        if not all(type(count) is int for count in sums.counts.values()):
            raise ValueError("it counts something that is not a number")
        int(sums.held, 16)
        return sums


@dataclass(frozen=True, kw_only=True)
class Entry:
    """One thing that happened to a buffer."""

    event: Event
    at: int
    """By the file's own time."""
    round_number: int = 0
    most_uses: int = 0
    """Rounds that a sample may be used in, by the order; 0 for any number."""
    oldest_uses: int = 0
    """Of the samples that trained in an order, the rounds of the most used one."""
    train_on: int = 0
    """Of the first entry: the most samples that train in a round; 0 for all."""
    trained: int = 0
    """Samples that trained in an order, if not all do."""
    uses: int = 0
    """Sum of the rounds that each of these has trained in, if not all do."""
    oldest_age: int = 0
    """How long the one that is held longest had been held, in milliseconds."""
    left: tuple[Item, ...] = ()
    """What is no longer held, or has another state now."""
    entered: tuple[Item, ...] = ()
    keep: int = 0
    """The limit that holds from now on, in milliseconds; 0 for none."""
    jump: int = 0
    """How far the clock jumped."""
    note: str = ""
    """Of the first entry: whose buffer it is."""
    sums: Sums = field(default_factory=Sums)

    def text(self) -> str:
        """Return the entry as it is stored and chained; empty fields are left out."""
        content = {name: value for name, value in vars(self).items() if value}
        content["sums"] = {name: value for name, value in vars(self.sums).items() if value}
        return json.dumps(content, separators=(",", ":"))

    @classmethod
    def read(cls, text: str) -> "Entry":
        """Parse an entry; raise ``ValueError`` if it is none, or not in our format."""
        try:
            content: dict[str, Any] = json.loads(text)
            for name in ("left", "entered"):
                content[name] = tuple(
                    Item(str(mark), str(kind), int(held_at), int(since))
                    for mark, kind, held_at, since in content.get(name, ())
                )
            content["sums"] = Sums.read(content.get("sums", {}))
            entry = cls(**content)
        except (TypeError, AttributeError, RecursionError) as wrong:
            raise ValueError(str(wrong)) from wrong
        if entry.text() != text:
            raise ValueError("it is not in the format that this program writes")
        return entry

    def breaches(self, keep: int) -> list[str]:
        """Return the limits that an order did not keep, in words.

        Args:
            keep: the limit that holds, in milliseconds; 0 for none.
        """
        breaches = []
        if 0 < self.most_uses < self.oldest_uses:
            breaches.append(
                f"round {self.round_number}: a sample trained in {self.oldest_uses} rounds, but "
                f"the limit is {self.most_uses}"
            )
        if 0 < keep <= self.oldest_age:
            breaches.append(
                f"round {self.round_number}: a sample trained after {self.oldest_age} ms, but the "
                f"limit is {keep} ms"
            )
        return breaches


def followed(sums: Sums, entry: Entry) -> Sums:
    """Return the sums after one more entry; raise ``ValueError`` if it cannot follow."""
    if entry.event == "order" and entry.round_number <= sums.round_number:
        raise ValueError(f"round {entry.round_number} comes after {sums.round_number}")
    counts = dict(sums.counts)
    held = int(sums.held, 16)
    stored, uses = sums.stored, sums.uses
    is_first = entry.event == "begun"
    train_on = entry.train_on if is_first else sums.train_on
    stays = {item.mark for item in entry.entered}
    for item in entry.left:
        held -= item.digest()
        if item.kind == "sample":
            stored -= 1
            uses -= 0 if train_on else sums.orders - item.since
        _count(counts, _end_of(item, entry.event, stays=item.mark in stays))
    for item in entry.entered:
        held += item.digest()
        if item.kind == "sample":
            stored += 1
            uses += 0 if train_on else sums.orders - item.since
            _count(counts, "begun" if is_first else "admitted")
    if stored < 0 or uses < 0:
        raise ValueError("more leave than were admitted")
    after = replace(
        sums,
        stored=stored,
        uses=uses,
        held=f"{held % HELD:x}",
        counts=counts,
        keep=entry.keep if entry.event == "limit" else sums.keep,
        train_on=train_on,
    )
    if entry.event != "order":
        return after
    trained = entry.trained if train_on else stored
    if trained > min(stored, train_on or stored):
        raise ValueError("more train than may")
    counts["used"] = counts.get("used", 0) + trained
    return replace(
        after,
        round_number=entry.round_number,
        orders=sums.orders + 1,
        trained=trained,
        uses=entry.uses if train_on else uses + stored,
        longest=max(sums.longest, entry.oldest_age),
        most_used=max(sums.most_used, entry.oldest_uses),
        breaches=sums.breaches + len(entry.breaches(sums.keep)),
    )


def _end_of(item: Item, event: Event, *, stays: bool) -> str:
    """Return what became of something that is no longer held as it was."""
    is_early = event in EARLY and not stays
    if item.kind == "sample":
        return event if is_early else "left"
    return f"{item.kind}s {event if is_early else 'done'}"


def _count(counts: dict[str, int], what: str) -> None:
    counts[what] = counts.get(what, 0) + 1


def next_digest(before: str, text: str) -> str:
    """Return the digest of an entry: over its text, and the digest before it."""
    return hashlib.sha256(f"{before}\n{text}".encode()).hexdigest()


def mark_of(secret: bytes, subject: str, content: bytes) -> str:
    """Return the name of a sample in the record, valid as long as the secret is kept."""
    bound = hmac.digest(secret, f"{subject}\n".encode() + content, "sha256")
    return base64.b64encode(bound[:MARK_BYTES]).decode()


def sums_text(sums: Sums) -> str:
    """Return sums as the file keeps them."""
    return json.dumps(vars(sums), separators=(",", ":"))


def held_by(items: Collection[Item]) -> str:
    """Return the sum of the hashes of items."""
    return f"{sum(item.digest() for item in items) % HELD:x}"
