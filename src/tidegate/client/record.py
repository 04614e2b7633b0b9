"""The record of a buffer: what it admitted, used and let go, without content.

Entries form a chain: the digest of each covers its text and the digest before it. A sample is named
by its mark, a keyed hash of its content. The key is beside the sample and is overwritten with it,
so the mark of a sample that has left reveals nothing about it.
"""

import base64
import hashlib
import hmac
import json
from collections.abc import Sequence
from dataclasses import dataclass
from heapq import heapify, heappop, heappush
from typing import Any, Literal

Event = Literal[
    "begun", "limit", "clock", "choice", "order", "expired", "swept", "erased", "sealed"
]
KINDS = ("sample", "candidate", "purchase")
"""What a buffer holds content of."""
FIRST = hashlib.sha256(b"tidegate record").hexdigest()
"""The digest before the first entry."""
MARK_BYTES = 12
Held = tuple[str, int]
"""Mark of a sample, and since when the device holds it."""


@dataclass(frozen=True, kw_only=True)
class Entry:
    """One thing that happened to a buffer."""

    event: Event
    at: int
    """By the file's own time, in milliseconds since 1970."""
    round_number: int = 0
    most_uses: int = 0
    """Rounds that a sample may be used in, by the order; 0 for any number."""
    gone: tuple[str, ...] = ()
    """Marks of all whose content was overwritten."""
    samples: tuple[Held, ...] = ()
    """That entered the buffer."""
    candidates: tuple[Held, ...] = ()
    """That were read from the stream and wait."""
    purchases: tuple[Held, ...] = ()
    """That were bought and have not come yet."""
    keep: int = 0
    """The limit that holds from now on, in milliseconds; 0 for none."""
    jump: int = 0
    """How far the clock jumped."""
    note: str = ""
    """Of the first entry: whose buffer it is. Of sums: up to which entry, and their digest."""

    def text(self) -> str:
        """Return the entry as it is stored and chained; empty fields are left out."""
        told = {name: value for name, value in vars(self).items() if value}
        return json.dumps(told, separators=(",", ":"))

    @classmethod
    def read(cls, text: str) -> "Entry":
        """Parse an entry; raise ``ValueError`` if it is none, or not in our format."""
        try:
            told: dict[str, Any] = json.loads(text)
            for name in ("samples", "candidates", "purchases"):
                told[name] = tuple((str(mark), int(at)) for mark, at in told.get(name, ()))
            told["gone"] = tuple(map(str, told.get("gone", ())))
            entry = cls(**told)
        except (TypeError, AttributeError, RecursionError) as wrong:
            raise ValueError(str(wrong)) from wrong
        if entry.text() != text:
            raise ValueError("it is not in the format that this program writes")
        return entry


def next_digest(before: str, text: str) -> str:
    """Return the digest of an entry: over its text, and the digest before it."""
    return hashlib.sha256(f"{before}\n{text}".encode()).hexdigest()


def mark_of(secret: bytes, subject: str, content: bytes) -> str:
    """Return the name of a sample in the record, valid as long as the secret is kept."""
    bound = hmac.digest(secret, f"{subject}\n".encode() + content, "sha256")
    return base64.b64encode(bound[:MARK_BYTES]).decode()


@dataclass
class Item:
    """What the record says about one thing that is held."""

    kind: str
    held_at: int
    since: int = 0
    """Of a sample, the orders before the one that admitted it; each later one has used it."""
    position: int = -1
    """Of a sample, in the order of admission."""
    admitted_round: int = 0


class Replay:
    """What must be held, and which limits were broken, if the record is true.

    It starts from a seal, the sum of earlier entries.
    """

    def __init__(self, seal: str = "") -> None:
        told: dict[str, Any] = json.loads(seal) if seal else {}
        self.items = {mark: Item(*rest) for mark, *rest in told.get("items", ())}
        self.orders = int(told.get("orders", 0))
        self._samples = {mark: one for mark, one in self.items.items() if one.kind == "sample"}
        """Those of the items, the oldest first."""
        self._by_time = [(one.held_at, mark) for mark, one in self._samples.items()]
        """A heap of samples, with some that have left."""
        heapify(self._by_time)
        self.round_number = int(told.get("round_number", 0))
        self.keep = int(told.get("keep", 0))
        self.admitted = int(told.get("admitted", 0))
        """Samples in all."""
        self.at = int(told.get("at", 0))
        self.counts: dict[str, int] = dict(told.get("counts", {}))
        """How often each thing happened to a sample."""
        self.longest: int = told.get("longest", 0)
        """How long the oldest sample was held that trained, in milliseconds."""
        self.most_used: int = told.get("most_used", 0)
        self.jumps: list[list[int]] = told.get("jumps", [])
        """When the clock jumped, and how far; the newest."""
        self.broken: list[str] = told.get("broken", [])
        """Limits that were not kept, in words."""

    def seal(self) -> str:
        """Return all of it as a text, to continue from."""
        items = [(mark, *vars(one).values()) for mark, one in self.items.items()]
        sums = {name: value for name, value in vars(self).items() if not name.startswith("_")}
        return json.dumps({**sums, "items": items}, separators=(",", ":"), sort_keys=True)

    def uses(self, item: Item) -> int:
        """Return the rounds that a sample has trained in."""
        return self.orders - item.since

    def follow(self, entry: Entry) -> None:
        """Apply one more entry; raise ``ValueError`` if it cannot follow."""
        if entry.at < self.at:
            raise ValueError("its time is earlier than that of the entry before it")
        if entry.event == "order" and entry.round_number <= self.round_number:
            raise ValueError(f"round {entry.round_number} comes after {self.round_number}")
        self.at = entry.at
        if entry.event == "limit":
            self.keep = entry.keep
        if entry.event == "clock":
            self.jumps = [*self.jumps, [entry.at, entry.jump]][-KEPT_JUMPS:]
        self._lose(entry)
        for kind, held in zip(
            KINDS, (entry.samples, entry.candidates, entry.purchases), strict=True
        ):
            self._hold(kind, held, entry)
        if entry.event == "order":
            self._use(entry)

    def _lose(self, entry: Entry) -> None:
        early = entry.event in ("expired", "swept", "erased")
        for mark in entry.gone:
            if mark not in self.items:
                raise ValueError(f"{mark} left, but was never admitted")
            one = self.items.pop(mark)
            self._samples.pop(mark, None)
            if one.kind != "sample":
                self._count(f"{one.kind}s {entry.event}" if early else f"{one.kind}s done")
                continue
            self._count(entry.event if early else "left")

    def _hold(self, kind: str, held: Sequence[Held], entry: Entry) -> None:
        for mark, held_at in held:
            if mark in self.items or held_at > entry.at:
                raise ValueError(f"{mark} is admitted twice, or is from the future")
            self.items[mark] = Item(kind, held_at)
            if kind == "sample" and entry.event == "order":
                heappush(self._by_time, (held_at, mark))
                self._samples[mark] = self.items[mark]
                self.items[mark].since = self.orders
                self.items[mark].position = self.admitted
                self.items[mark].admitted_round = entry.round_number
                self.admitted += 1
                self._count("admitted")

    def _use(self, entry: Entry) -> None:
        """Count one more use of every stored sample; look at each only if a limit is broken."""
        self.round_number, self.orders = entry.round_number, self.orders + 1
        if not self._samples:
            return
        while self._by_time[0][1] not in self._samples:
            heappop(self._by_time)
        oldest = next(iter(self._samples.values()))
        used, age = self.uses(oldest), entry.at - self._by_time[0][0]
        self.counts["used"] = self.counts.get("used", 0) + len(self._samples)
        self.longest, self.most_used = max(self.longest, age), max(self.most_used, used)
        if (entry.most_uses and used > entry.most_uses) or (self.keep and age >= self.keep):
            self._find_broken(entry)

    def _find_broken(self, entry: Entry) -> None:
        for mark, one in self._samples.items():
            uses, age = self.uses(one), entry.at - one.held_at
            if entry.most_uses and uses > entry.most_uses:
                self._break(f"{mark} trained in {uses} rounds", entry, str(entry.most_uses))
            if self.keep and age >= self.keep:
                self._break(f"{mark} trained after {age} ms", entry, f"{self.keep} ms")

    def _break(self, what: str, entry: Entry, limit: str) -> None:
        self.broken = [
            *self.broken,
            f"round {entry.round_number}: {what}, but the limit is {limit}",
        ]
        self.broken = self.broken[:KEPT_BREACHES]

    def _count(self, what: str) -> None:
        self.counts[what] = self.counts.get(what, 0) + 1


KEPT_JUMPS = 20
KEPT_BREACHES = 20
