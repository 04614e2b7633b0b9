"""What a client keeps between rounds: samples, orders, money, the stream's cursor, and a record.

A store decides nothing. What one change contains happens entirely or not at all.
"""

import json
import secrets
import time
import uuid
from array import array
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from copy import copy
from dataclasses import dataclass, fields, replace
from math import isinf
from pathlib import Path
from typing import Any, Literal, Self

from tidegate import buffer
from tidegate._internal.randomness import generator, seed_of
from tidegate._internal.saving import plain, reading
from tidegate.client import record
from tidegate.client.codec import ArrayCodec, SampleCodec
from tidegate.client.device_file import REMEDY, DeviceFile, as_bytes
from tidegate.client.limits import Clock, OwnTime, log_jump, milliseconds
from tidegate.client.samples import Reader, Samples
from tidegate.errors import ConfigurationError, RunDiffersError, WireError
from tidegate.wire import MOST_AGES, Address, Order, Receipt, cursor_digest

State = Literal["candidate", "chosen", "paid", "under way", "stored", "kept"]
"""Of a sample: read from the stream; to be paid for; paid for, and complete, by an order that has
not ended; bought, and still to come; in the buffer; kept after it has left the buffer."""
KINDS: Mapping[str, str] = {
    "candidate": "candidate",
    "chosen": "candidate",
    "paid": "purchase",
    "under way": "purchase",
    "stored": "sample",
    "kept": "archived sample",
}
"""What the record calls them."""
SECRET_BYTES = 16
KEPT_ANSWERS = 1000
"""Rounds whose order and receipt are kept, so that money can be traced and storage is bounded."""
KEPT_FAILURES = 1000
"""Samples set aside whose key and error are kept; the books count them all."""


@dataclass(kw_only=True)
class Books:
    """The state of a client: its row in the file. Only a ``Change`` changes it, in a copy."""

    run: str
    client: str
    """Its registered name or public key."""
    buffer_capacity: int
    """B_m, samples."""
    train_on: int = 0
    """The most of them that train in a round, the least used ones; 0 for all."""
    buffer_id: str
    """Created with the buffer: a client that has lost one comes back with another."""
    begun: str = "[]"
    """What it began with, from an earlier run: how many samples of each age, in JSON."""
    last_round: int = 0
    """The newest round whose order was applied."""
    orders: int = 0
    """Orders that were applied."""
    void_round: int = 0
    """Orders up to this round that were not applied never will be."""
    chosen_round: int = 0
    """The newest round whose choice was written down."""
    steps: int = 0
    """Changes that orders have made: two processes cannot both make the same one."""
    places: int = 0
    """The newest place of a sample within its state."""
    cursor: str | None = None
    """How far the stream has been read; None before the first sample."""
    is_dry: bool = False
    """Whether the last order that needed a sample was short because the stream had no more."""
    read: int = 0
    """Samples of the stream that were read, whatever became of them."""
    bought: int = 0
    admitted: int = 0
    """Those of them that have arrived."""
    refused: int = 0
    """Those of them that will never arrive."""
    spent: float = 0.0
    """Committed in all, before refunds."""
    refunded: float = 0.0
    set_aside: int = 0
    """Samples that were skipped because they could not be read, acquired or stored."""
    expired: int = 0
    """Samples that left the buffer because they had been held for too long."""
    erased: int = 0
    """Samples that left it because their subject is forgotten."""
    keep: int = 0
    """How long content may be held, in milliseconds; 0 for any time."""
    own_time: int = 0
    wall_time: int = 0
    """The file's own time when it was last noted, and what the clock said then."""
    used_at: int = 0
    """When a message was last answered, in milliseconds since 1970."""
    record_number: int = 0
    """Of the newest entry of the record."""
    record_digest: str = record.FIRST
    """Of that entry, and so of all before it."""
    sums: str = "{}"
    """Of the record."""

    @property
    def under_way(self) -> int:
        """Samples that were bought and have not ended."""
        return self.bought - self.admitted - self.refused

    @property
    def time(self) -> OwnTime:
        """The file's own time when it was last noted."""
        return OwnTime(self.own_time, self.wall_time)

    @property
    def last_taken(self) -> str:
        """How far the stream was read, for the server; empty before the first sample."""
        return "" if self.cursor is None else cursor_digest(self.run, self.client, self.cursor)

    def __post_init__(self) -> None:
        self.check()

    def check(self) -> None:
        """Refuse what no client's books can be."""
        if not (self.run and self.client and self.buffer_id and self.buffer_capacity >= 1):
            raise ValueError(f"books need a run, a client, an id and capacity for a sample: {self}")
        counts = [value for value in vars(self).values() if type(value) in (int, float)]
        if min(counts) < 0 or self.under_way < 0:
            raise ValueError(f"these books are not possible: {self}")


COLUMNS = tuple(column.name for column in fields(Books))


def books_of(row: Sequence[Any]) -> Books:
    """Return the books that a row of ``COLUMNS`` holds."""
    values = dict(zip(COLUMNS, row, strict=True))
    return plain(Books, {**values, "is_dry": bool(values["is_dry"])})


@dataclass(frozen=True)
class Origin:
    """Since when a device holds a sample, and whose it is."""

    held_at: int = 0
    """By the store's own time, in milliseconds since 1970; 0 for now."""
    subject: str = ""
    """Keyed hash of the person or thing that the sample is about; empty if nobody said."""


@dataclass(frozen=True)
class Fresh:
    """A sample as a step of an order writes it down."""

    key: str
    """As ``acquire`` gets it: run, client and the stream's cursor after the sample."""
    packed: bytes
    origin: Origin = Origin()
    number: int = 0
    """Of the candidate that it was; 0 for one that is new."""
    group: str = ""
    """Of a complete sample, if groups were named."""


@dataclass(frozen=True)
class Earlier:
    """A sample that an earlier run of the client paid for."""

    cursor: str
    """Of the stream, after the sample."""
    packed: bytes
    group: str
    subject: str
    held_at: int
    price: float
    bought_round: int
    uses: int
    """Rounds that it has trained in; at least 1."""


@dataclass(frozen=True)
class Held:
    """A sample of the file, in any state, without its content."""

    number: int
    key: str
    price: float
    """Of a purchase; 0 until it is booked."""
    bought_round: int
    """Of the order that bought it."""
    bought_in: int
    """Number of that order among those that the client applied."""
    is_asked: bool
    """Whether the supplier is known to have been asked."""
    is_void: bool
    """Whether its content may no longer be held and is gone: what was bought stays in the books."""
    since: int
    """Orders before the one that stored it; each from that one on has used it."""


@dataclass(frozen=True)
class FailedSample:
    """A sample that could not be read, acquired or stored."""

    key: str
    """As ``acquire`` gets it: run, client and the stream's cursor after the sample."""
    tries: int
    error: str
    """Of the last try."""
    set_aside: bool = False
    """Whether it was skipped for good; otherwise it is tried again."""


class BooksMovedError(RuntimeError):
    """Another process wrote in between; applying the order again returns its receipt."""


def check_meant_for(books: Books, address: Address) -> None:
    """Refuse an order for a lost buffer, or for a newer copy of this one."""
    if address.buffer_id != books.buffer_id:
        raise WireError(
            f"{books.client} has lost its buffer: the order is for {address.buffer_id!r}, but it "
            f"now has {books.buffer_id!r}"
        )
    if books.last_round < address.booked_round:
        raise WireError(
            f"the buffer of {books.client} is an old copy: the server has its receipt of round "
            f"{address.booked_round}, but this file ends at round {books.last_round}; delete it "
            "there, and the client begins again with an empty buffer"
        )


class Change:
    """One change of a client's part of a file, within a transaction.

    What enters and leaves meanwhile goes into the record with the next ``note``.

    Args:
        file: the open file.
        number: of the client in it.
        books: of the client.
        wall: the clock's time.
        order_at: when the present order began; 0 outside of orders. A sample whose limit passes
            while an order is applied was within it when the order began.
    """

    def __init__(
        self, file: DeviceFile, number: int, books: Books, wall: int, order_at: int
    ) -> None:
        self._execute = file.execute
        self._contents = file.contents
        self._path = file.path
        self._client = number
        self.wall = wall
        self.now = max(order_at, books.own_time) if order_at else books.time.at(wall).own
        self.books = copy(books)
        self._places = books.places
        self.forgotten = file.hashes()
        self._before: dict[int, record.Item | None] = {}
        self._after: dict[int, record.Item | None] = {}

    # What happens to a sample.

    def hold(self, state: State, fresh: Fresh) -> int:
        """Add a sample, and return its number.

        One that may not be held, because its subject was forgotten or its limit has passed
        meanwhile, is void from the start.
        """
        secret = secrets.token_bytes(SECRET_BYTES)
        subject = fresh.origin.subject
        held_at = min(fresh.origin.held_at or self.now, self.now)
        mark = record.mark_of(secret, subject, fresh.packed)
        place, key, group = self._next_place(), as_bytes(fresh.key), as_bytes(fresh.group)
        row = self._client, state, place, key, held_at, subject, secret, mark, group
        number = (
            self._execute(
                "INSERT INTO samples (client, state, place, key, held_at, subject, secret, mark, "
                "in_group, price, bought_round, bought_in, is_asked, since, uses, used_in) "
                "VALUES (?, ?, ?, CAST(? AS TEXT), ?, ?, ?, ?, CAST(? AS TEXT), "
                "0.0, 0, 0, 0, 0, 0, 0)",
                row,
            ).lastrowid
            or 0
        )
        self._contents.write(number, fresh.packed)
        self._before[number] = None
        self._after[number] = record.Item(mark, KINDS[state], held_at, 0)
        if not self._may_hold(fresh.origin):
            self.empty(number)
        return number

    def begin(self, samples: Iterable[Earlier], *, keeps_bought: bool) -> None:
        """Begin with samples of an earlier run, at no cost.

        Args:
            samples: those that shall train first.
            keeps_bought: whether those that do not fit into the buffer stay on the device.
        """
        books, begun = self.books, list[tuple[int, int]]()
        for sample in samples:
            if len(begun) == books.buffer_capacity and not keeps_bought:
                break
            origin = Origin(sample.held_at, sample.subject)
            if not self._may_hold(origin):
                continue
            key = f"{books.run}/{books.client}/{sample.cursor}"
            number = self.hold("kept", Fresh(key, sample.packed, origin, group=sample.group))
            uses = min(sample.uses, MOST_AGES)  # receipts tell apart so many ages and no more
            self._execute(
                "UPDATE samples SET price = ?, bought_round = ?, uses = ? WHERE number = ?",
                (sample.price, sample.bought_round, uses, number),
            )
            if len(begun) < books.buffer_capacity:
                begun.append((-uses, number))
        for since, number in sorted(begun):
            self.move(number, "stored", since=since, bought_in=since + 1)
        books.begun = json.dumps(buffer.holding(Counter(-since for since, _ in begun)))

    def _may_hold(self, origin: Origin) -> bool:
        """Return whether content is within its limit, and of nobody who was forgotten."""
        is_over = 0 < self.books.keep <= self.now - (origin.held_at or self.now)
        return not is_over and origin.subject not in self.forgotten

    def take(self, fresh: Fresh, state: State) -> int:
        """Write down a sample that was read, or what payment has made of a candidate.

        Returns:
            Its number; 0 for a candidate that may not be held, which costs nothing.
        """
        if fresh.number and self.numbers("number = ?", fresh.number):
            self.rewrite(fresh.number, fresh.packed, fresh.group)
            self.move(fresh.number, state)
            return fresh.number
        if state == "candidate" and not self._may_hold(fresh.origin):
            return 0
        number = self.hold(state, fresh)
        if fresh.number:  # it was swept while it was paid for
            self.empty(number)
        return number

    def keep(self, number: int) -> None:
        """Let a sample leave the buffer, and stay on the device."""
        books = self.books
        uses = "uses" if books.train_on else f"{books.orders} - since"
        self._execute(f"UPDATE samples SET uses = {uses} WHERE number = ?", (number,))  # noqa: S608 - numbers
        self.move(number, "kept")

    def move(self, number: int, state: State, **columns: Any) -> None:
        """Give a sample another state, after all that have it, and other values of its row."""
        item = self._item(number)
        columns.setdefault("since", self.books.orders if state == "stored" else 0)
        values = {"state": state, "place": self._next_place(), **columns}
        changes = ", ".join(f"{name} = ?" for name in values)
        self._execute(f"UPDATE samples SET {changes} WHERE number = ?", (*values.values(), number))  # noqa: S608 - names of columns
        if item is not None:
            since = columns["since"]
            self._after[number] = item._replace(kind=KINDS[state], since=since)

    def rewrite(self, number: int, packed: bytes, group: str) -> bool:
        """Complete a sample; return False for a void one, whose content is gone."""
        item = self._item(number)
        if item is None:
            return False
        ((secret, subject),) = self._execute(
            "SELECT secret, subject FROM samples WHERE number = ?", (number,)
        )
        mark = record.mark_of(secret, subject, packed)
        self._execute(
            "UPDATE samples SET mark = ?, in_group = CAST(? AS TEXT) WHERE number = ?",
            (mark, as_bytes(group), number),
        )
        self._contents.write(number, packed)
        self._after[number] = item._replace(mark=mark)
        return True

    def empty(self, number: int) -> None:
        """Overwrite the content of a sample, which is void from now on."""
        self._item(number)
        self._contents.remove(number)
        self._execute(
            "UPDATE samples SET subject = '', secret = x'', mark = '', in_group = '' "
            "WHERE number = ?",
            (number,),
        )
        self._after[number] = None

    def drop(self, number: int) -> None:
        """Overwrite a sample, with its row."""
        self.empty(number)
        self._execute("DELETE FROM samples WHERE number = ?", (number,))

    def train(self) -> None:
        """Note which samples train in the newest order: the least used; equal ones by chance."""
        books = self.books
        if not books.train_on:
            return
        last = self._execute(
            "SELECT uses FROM samples WHERE client = ? AND state = 'stored' "
            "ORDER BY uses LIMIT 1 OFFSET ?",
            (self._client, books.train_on),
        ).fetchone()
        if last is None:
            numbers = self.numbers("state = 'stored'")
        else:
            numbers = self.numbers("state = 'stored' AND uses < ?", *last)
            equal = self.numbers("state = 'stored' AND uses = ? ORDER BY place", *last)
            draw = generator(seed_of((books.client, books.last_round, "trains")))
            lacking = books.train_on - len(numbers)
            numbers += draw.choice(equal, lacking, replace=False).tolist()
        self._execute(
            "UPDATE samples SET uses = uses + 1, used_in = ? "
            "WHERE number IN (SELECT value FROM json_each(?))",
            (books.orders, json.dumps(numbers)),
        )

    def numbers(self, where: str, *values: object) -> list[int]:
        """Return the numbers of the client's samples that fulfil a condition."""
        statement = f"SELECT number FROM samples WHERE client = ? AND {where}"  # noqa: S608 - ours
        return [number for (number,) in self._execute(statement, (self._client, *values))]

    # What else belongs to an order.

    def keep_failures(self, failures: Sequence[FailedSample]) -> None:
        """Keep what failed; it replaces earlier failures that were to be tried again."""
        self._execute("DELETE FROM failures WHERE client = ? AND NOT set_aside", (self._client,))
        for failed in failures:
            texts = as_bytes(failed.key), failed.tries, as_bytes(failed.error)
            row = self._client, *texts, failed.set_aside
            self._execute(
                "INSERT INTO failures (client, key, tries, error, set_aside) "
                "VALUES (?, CAST(? AS TEXT), ?, CAST(? AS TEXT), ?)",
                row,
            )
        if failures:
            self._execute(
                "DELETE FROM failures WHERE client = ?1 AND set_aside AND number NOT IN (SELECT "
                "number FROM failures WHERE client = ?1 AND set_aside ORDER BY number DESC "
                "LIMIT ?2)",
                (self._client, KEPT_FAILURES),
            )

    def answer(self, order: Order, receipt: Receipt) -> None:
        """Keep an order with its receipt."""
        texts = (json.dumps(message.to_record()) for message in (order, receipt))
        row = self._client, order.round_number, *texts
        self._execute("INSERT INTO answers VALUES (?, ?, ?, ?)", row)
        oldest = self._client, order.round_number - KEPT_ANSWERS
        self._execute("DELETE FROM answers WHERE client = ? AND round_number <= ?", oldest)

    def note_order(self, order: Order) -> None:
        """Write an order into the record, with the age of the samples that it trains on.

        Early entries go. Their sums stay, in entries that are covered by the digest of a receipt
        which the server has: the newest orders' entries are kept.
        """
        since, held_at = (
            self._execute(
                f"SELECT min({column}) FROM samples WHERE client = ? AND state = 'stored'",  # noqa: S608 - its name
                (self._client,),
            ).fetchone()[0]
            for column in ("since", "held_at")
        )
        oldest_uses = 0 if since is None else self.books.orders - since
        trained = uses = 0
        if self.books.train_on:
            oldest_uses, trained, uses = self._execute(
                "SELECT ifnull(max(uses), 0), count(*), ifnull(sum(uses), 0) FROM samples "
                "WHERE client = ? AND state = 'stored' AND used_in = ?",
                (self._client, self.books.orders),
            ).fetchone()
        orders = self._execute(
            'SELECT number FROM record WHERE client = ? AND entry LIKE \'{"event":"order"%\' '
            "ORDER BY number DESC LIMIT ?",
            (self._client, record.KEPT_ORDERS),
        ).fetchall()
        if len(orders) == record.KEPT_ORDERS:
            first = min(self.books.record_number - record.KEPT_ENTRIES, orders[-1][0] - 2)
            gone = self._client, first
            self._execute("DELETE FROM record WHERE client = ? AND number <= ?", gone)
        self.note(
            "order",
            round_number=order.round_number,
            most_uses=0 if isinf(order.horizon) else int(order.horizon),
            oldest_uses=oldest_uses,
            trained=trained,
            uses=uses,
            oldest_age=0 if held_at is None else self.now - held_at,
        )

    def note(self, event: record.Event, **facts: Any) -> None:
        """Write an entry into the record, with what entered and left since the last one."""
        moved = {
            number: item for number, item in self._before.items() if item != self._after[number]
        }
        entry = record.Entry(
            event=event,
            at=self.now,
            left=tuple(item for item in moved.values() if item is not None),
            entered=tuple(item for one in moved if (item := self._after[one]) is not None),
            **facts,
        )
        with reading(self._path, REMEDY):
            sums = record.followed(record.Sums.read(json.loads(self.books.sums)), entry)
        text = replace(entry, sums=sums).text()
        number, before = self.books.record_number + 1, self.books.record_digest
        self._execute(
            "INSERT INTO record VALUES (?, ?, ?, ?)", (self._client, number, before, text)
        )
        self.books.record_number = number
        self.books.record_digest = record.next_digest(before, text)
        self.books.sums = record.sums_text(sums)
        if self.now > self.books.own_time:  # no later entry is earlier
            self.books.own_time, self.books.wall_time = self.now, self.wall
        self._before, self._after = {}, {}

    @property
    def has_moved(self) -> bool:
        """Whether something entered or left since the last entry of the record."""
        return self._before != self._after

    def tick(self) -> None:
        """Note the time; a clock that has jumped goes into the record."""
        before = self.books.time
        after, jump = before.at(self.wall), before.jump(self.wall)
        self.now = max(after.own, self.now)
        self.books.own_time, self.books.wall_time = self.now, after.wall
        if jump:
            log_jump(self.books.client, jump)
            self.note("clock", jump=jump)

    def write(self) -> None:
        """Write the books."""
        self.books.places = self._places
        self.books.check()
        changes = ", ".join(f"{name} = ?" for name in COLUMNS if name != "cursor")
        values = [getattr(self.books, name) for name in COLUMNS if name != "cursor"]
        row = *values, as_bytes(self.books.cursor), self._client
        self._execute(
            f"UPDATE clients SET {changes}, cursor = CAST(? AS TEXT) WHERE number = ?",  # noqa: S608 - names of columns
            row,
        )

    def _item(self, number: int) -> record.Item | None:
        """Return what the record has to say of a sample now; None for one without content."""
        if number not in self._after:
            row = self._execute(
                "SELECT mark, state, held_at, since FROM samples WHERE number = ?", (number,)
            ).fetchone()
            item = None
            if row is not None and row[0]:
                mark, state, held_at, since = row
                item = record.Item(mark, KINDS[state], held_at, since)
            self._before[number] = self._after[number] = item
        return self._after[number]

    def _next_place(self) -> int:
        self._places += 1
        return self._places


class Store:
    """A client's buffer in a file; opening the same file again continues where it stopped.

    Args:
        file: its path, an open file, or None to keep everything in memory.
        run: the client's run.
        client: its registered name or public key.
        buffer_capacity: B_m, samples.
        codec: turns samples into bytes and back.
        train_on: the most samples that train in a round; 0 for all.
        begin_with: returns what a new buffer begins with.
        keeps_bought: whether what does not fit into it stays on the device.
        clock: says the time.
    """

    def __init__(  # noqa: PLR0913 - all but four are given by name
        self,
        file: DeviceFile | Path | None,
        run: str,
        client: str,
        buffer_capacity: int,
        codec: SampleCodec | None = None,
        *,
        train_on: int = 0,
        begin_with: Callable[[], Iterable[Earlier]] = tuple,
        keeps_bought: bool = False,
        clock: Clock = time.time,
    ) -> None:
        self._owns_file = not isinstance(file, DeviceFile)
        self.file = file if isinstance(file, DeviceFile) else DeviceFile(file)
        self._codec = ArrayCodec() if codec is None else codec
        self._clock = clock
        self._order_at = 0
        self._read: tuple[tuple[Any, ...], Books] | None = None
        self._answer: tuple[tuple[str, str], tuple[Order, Receipt]] | None = None
        self._run, self._client, self._train_on = run, client, train_on
        with self.file.opening() if self._owns_file else nullcontext():
            self._number = self._begin(buffer_capacity, train_on, begin_with, keeps_bought)

    def _begin(
        self,
        capacity: int,
        train_on: int,
        begin_with: Callable[[], Iterable[Earlier]],
        keeps_bought: bool,
    ) -> int:
        """Return the client's number in the file, to which it is added if it is new."""
        mine = self._run, self._client, capacity, train_on
        whose = () if self._owns_file else mine[:2]
        with self.file.changing() if mine not in self.file.clients(*whose) else nullcontext():
            owners = self.file.clients(*whose)  # another process may have been faster
            for owner in owners:
                if owner != mine:
                    raise self._of_another(owner, mine)
            if mine not in owners:
                if self._owns_file and self.file.rows((int,), "SELECT 1 FROM samples LIMIT 1"):
                    raise self.file.damaged("it holds samples of no client")
                wall = milliseconds(self._clock)
                books = Books(
                    run=self._run,
                    client=self._client,
                    buffer_capacity=capacity,
                    train_on=train_on,
                    buffer_id=uuid.uuid4().hex,
                    own_time=wall,
                    wall_time=wall,
                    used_at=wall,
                )
                samples = self._readable(begin_with())
                change = Change(self.file, self._insert(books), books, wall, 0)
                change.begin(samples, keeps_bought=keeps_bought)
                note = f"{self._run}/{self._client}/{books.buffer_id}"
                change.note("begun", note=note, train_on=train_on)
                change.write()
        self.books()  # refuse what is damaged at once
        row = self._row()
        return int(row[0]) if row else 0

    def _readable(self, samples: Iterable[Earlier]) -> Iterator[Earlier]:
        """Refuse to begin with samples that the codec cannot read."""
        for sample in samples:
            try:
                self.unpack(sample.packed)
            except Exception as wrong:
                raise ConfigurationError(
                    f"{self._client} cannot begin with a sample of an earlier run, which its codec "
                    f"does not read ({wrong}); give the gate the codec of that run, or leave out "
                    "begin_with"
                ) from wrong
            yield sample

    def _insert(self, books: Books) -> int:
        places = ", ".join("?" * len(COLUMNS))
        statement = f"INSERT INTO clients ({', '.join(COLUMNS)}) VALUES ({places})"  # noqa: S608 - names of columns
        values = [getattr(books, name) for name in COLUMNS]
        return self.file.execute(statement, values).lastrowid or 0

    def _of_another(
        self, owner: tuple[str, str, int, int], mine: tuple[str, str, int, int]
    ) -> RunDiffersError:
        theirs, ours = (
            f"{client!r} in run {run!r} with capacity {capacity}"
            + (f" and train_on {train_on}" if owner[3] or mine[3] else "")
            for run, client, capacity, train_on in (owner, mine)
        )
        return RunDiffersError(
            f"{self.file.path} belongs to {theirs}, not to {ours}; restore these settings, or use "
            "another folder or file",
            name="run, client, buffer_capacity and train_on",
            saved=owner,
            given=mine,
        )

    @classmethod
    def of_each(cls, file: DeviceFile, clock: Clock = time.time) -> Iterator["Store"]:
        """Yield the store of each client in a file, for programs that train nothing."""
        for run, client, capacity, train_on in file.clients():
            yield cls(file, run, client, capacity, train_on=train_on, clock=clock)

    def close(self) -> None:
        """Close the file, unless it was open before."""
        if self._owns_file:
            self.file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def books(self) -> Books:
        """Return the state of the client."""
        with self.file.naming_damage():
            row = self._row()
        if self._read is not None and self._read[0] == row:
            return self._read[1]  # to parse them takes longer than to read them
        with reading(self.file.path, REMEDY):
            if row is None:
                raise ValueError(f"it has no books of {self._client}")
            books = books_of(row[1:])
        self._read = row, books
        return books

    def _row(self) -> tuple[Any, ...] | None:
        whose = self._run, self._client
        row: tuple[Any, ...] | None = self.file.execute(
            f"SELECT number, {', '.join(COLUMNS)} FROM clients WHERE run = ? AND client = ?",  # noqa: S608 - names of columns
            whose,
        ).fetchone()
        return row

    def held(self, *states: State) -> list[Held]:
        """Return the samples in these states, in the order in which they came to it."""
        kinds, marks = (int, str, float, int, int, int, str, int), ", ".join("?" * len(states))
        rows = self.file.rows(
            kinds,
            "SELECT number, key, price, bought_round, bought_in, is_asked, mark, since "  # noqa: S608
            f"FROM samples WHERE client = ? AND state IN ({marks}) ORDER BY state, place",
            *(self._number, *states),
        )
        return [
            Held(number, key, price, bought_round, bought_in, bool(is_asked), not mark, since)
            for number, key, price, bought_round, bought_in, is_asked, mark, since in rows
        ]

    def count(self, *states: State) -> int:
        """Return how many samples are in these states."""
        ((count,),) = self.file.rows(
            (int,),
            "SELECT count(*) FROM samples WHERE client = ? "  # noqa: S608 - marks
            f"AND state IN ({', '.join('?' * len(states))})",
            *(self._number, *states),
        )
        return int(count)

    def has(self, key: str, *states: State) -> bool:
        """Return whether a sample with this key is in one of these states."""
        rows = self.file.rows(
            (int,),
            "SELECT 1 FROM samples WHERE client = ? AND key = CAST(? AS TEXT) "  # noqa: S608 - marks
            f"AND state IN ({', '.join('?' * len(states))})",
            *(self._number, as_bytes(key), *states),
        )
        return bool(rows)

    def ages(self, orders: int) -> Counter[tuple[int, str]]:
        """Return how many samples that are stored or under way have which age and group.

        Args:
            orders: applied so far; what the newest of them bought has age 1.
        """
        rows = self.file.rows(
            (int, str, int),
            "SELECT bought_in, in_group, count(*) FROM samples WHERE client = ? AND state IN "
            "('stored', 'under way') GROUP BY bought_in, in_group",
            self._number,
        )
        newest = max((bought_in for bought_in, *_ in rows), default=0)
        if newest > orders:
            raise self.file.damaged(f"order {newest} bought a sample, but {orders} were applied")
        return Counter({(orders - bought_in + 1, group): n for bought_in, group, n in rows})

    def stays(self, orders: int, horizon: float) -> Counter[tuple[int, str]]:
        """Return how many stored samples have stayed for how many orders, by group.

        Args:
            orders: applied so far.
            horizon: those that have stayed for so many are not counted.
        """
        rows = self.file.rows(
            (int, str, int),
            "SELECT ?2 - since, in_group, count(*) FROM samples WHERE client = ?1 "
            "AND state = 'stored' AND ?2 - since < ?3 GROUP BY since, in_group",
            *(self._number, orders, horizon),
        )
        return Counter({(stay, group): count for stay, group, count in rows})

    def uses(self, orders: int) -> Counter[int]:
        """Return how many samples that train have trained in how many rounds, with this one.

        Args:
            orders: applied so far.
        """
        rows = self.file.rows(
            (int, int),
            "SELECT uses, count(*) FROM samples WHERE client = ?1 AND state = 'stored' "
            "AND used_in = ?2 GROUP BY uses"
            if self._train_on
            else "SELECT ?2 - since, count(*) FROM samples WHERE client = ?1 AND state = 'stored' "
            "GROUP BY since",
            *(self._number, orders),
        )
        return Counter(dict(rows))

    def samples(self) -> Samples:
        """Return the samples to train on, oldest first; none that was held for too long."""
        books = self.books()
        return self._stored(books, f"AND used_in = {books.orders}" if books.train_on else "")

    def _stored(self, books: Books, limit: str = "") -> Samples:
        """Return stored samples that may be held; ``limit`` is a further condition."""
        if books.keep:
            oldest = books.time.at(milliseconds(self._clock)).own - books.keep
            limit += f" AND +held_at > {oldest}"
        numbers = self.numbers("stored", limit)
        if len(numbers) > books.buffer_capacity:
            raise self.file.damaged(f"it holds more than {books.buffer_capacity} samples")
        return Samples(Reader(self.file), self._codec, numbers)

    def candidates(self, numbers: Sequence[int], fresh: Sequence[bytes]) -> Samples:
        """Return candidates by their numbers, followed by packed ones that have none yet."""
        candidates = Samples(Reader(self.file), self._codec, [*numbers, *fresh])
        candidates.stored = self._stored(self.books())
        return candidates

    def numbers(self, state: State, limit: str = "", most: int = -1) -> Sequence[int]:
        """Return the numbers of samples in a state, in the order in which they came to it.

        Args:
            state: of the samples.
            limit: a further condition.
            most: as many of the first ones; -1 for all.
        """
        rows = self.file.rows(
            (int,),
            "SELECT number FROM samples WHERE client = ? AND state = ? "  # noqa: S608 - ours
            f"{limit} ORDER BY place LIMIT ?",
            *(self._number, state, most),
        )
        return array("q", (number for (number,) in rows))

    def content(self, number: int) -> bytes | None:
        """Return the content of a sample; None if it is gone."""
        return dict(self.file.contents.read([number])).get(number)

    def answer(self, round_number: int) -> tuple[Order, Receipt] | None:
        """Return the order of a round and its receipt."""
        rows = self.file.rows(
            (str, str),
            "SELECT sent_order, receipt FROM answers WHERE client = ? AND round_number = ?",
            *(self._number, round_number),
        )
        if not rows:
            return None
        if self._answer is None or self._answer[0] != rows[0]:  # to parse it takes longer
            with reading(self.file.path, REMEDY):
                sent, receipt = map(json.loads, rows[0])
                answer = Order.from_record(sent), Receipt.from_record(receipt)
            self._answer = rows[0], answer
        return self._answer[1]

    def failures(self) -> list[FailedSample]:
        """Return samples that failed, in the order in which they were noted.

        All that will be tried again, and the newest that were set aside.
        """
        rows = self.file.rows(
            (str, int, str, int),
            "SELECT key, tries, error, set_aside FROM failures WHERE client = ? ORDER BY number",
            self._number,
        )
        return [
            FailedSample(key, tries, error, bool(set_aside))
            for key, tries, error, set_aside in rows
        ]

    def pack(self, sample: Any) -> bytes:
        """Return a sample as it will be stored; raise if it cannot be stored."""
        return self._codec.encode(sample)

    def unpack(self, packed: bytes) -> Any:
        """Return the sample that was packed."""
        return self._codec.decode(packed)

    @contextmanager
    def step(self, round_number: int, before: Books) -> Iterator[Change]:
        """Make one change of an order.

        Args:
            round_number: of the order; if the server has voided it, the change is refused.
            before: the books after the last step of an order; if another process has made a step
                since, the change is refused.
        """
        with self._changing() as change:
            books = change.books
            if books.steps != before.steps or round_number <= books.void_round:
                raise BooksMovedError(
                    f"round {round_number} was computed at round {before.last_round}, but the "
                    f"books are at {books.last_round}, and rounds up to {books.void_round} are "
                    "void; apply it again"
                )
            books.steps += 1
            books.used_at = change.wall
            yield change

    @contextmanager
    def _changing(self) -> Iterator[Change]:
        with self.file.changing():
            wall = milliseconds(self._clock)
            change = Change(self.file, self._number, self.books(), wall, self._order_at)
            yield change
            change.write()

    def void(self, round_number: int) -> None:
        """Never apply an order of a round up to this one from now on."""
        with self._changing() as change:
            change.books.void_round = max(change.books.void_round, round_number)
            change.books.used_at = change.wall

    def mark_asked(self, numbers: Sequence[int]) -> None:
        """Note that the supplier knows of these purchases."""
        with self.file.changing():
            for number in numbers:
                self.file.execute("UPDATE samples SET is_asked = 1 WHERE number = ?", (number,))

    def keep_at_most(self, length: int) -> None:
        """Hold samples for at most so many milliseconds from now on; 0 for any time."""
        if self.books().keep != length:
            with self._changing() as change:
                change.tick()
                change.books.keep = length
                change.note("limit", keep=length)

    def whose(self, subject: str) -> str | None:
        """Return the keyed hash of a subject in this folder; None for a forgotten one."""
        if self.file.forgotten is None:
            return ""  # what is gone with its process needs no names
        whose = self.file.forgotten.hash_of(subject)
        return None if whose in self.file.hashes() else whose

    def let_go(self, event: Literal["expired", "swept"] = "expired") -> tuple[int, int]:
        """Overwrite what may no longer be held, and begin an order with the time of this moment.

        The time is noted even if nothing is due: after a clock was set back, samples age only by
        the time between two notes.

        Args:
            event: the record's name for samples that were held for too long.

        Returns:
            How much was held for too long, and how much was about a forgotten subject.
        """
        self._order_at = 0
        books = self.books()
        if not (books.keep or self.file.hashes()):
            self._order_at = books.time.at(milliseconds(self._clock)).own
            return 0, 0
        with self._changing() as change:
            change.tick()
            self._order_at = change.now
            self.file.execute(  # the text of an error may quote a sample
                "UPDATE failures SET error = substr(error, 1, instr(error, ':') - 1) "
                "WHERE client = ? AND instr(error, ':')",
                (self._number,),
            )
            erased = change.numbers(
                "number IN (SELECT number FROM samples WHERE subject != '' "
                "AND subject IN (SELECT value FROM json_each(?)))",
                json.dumps(sorted(change.forgotten)),
            )
            change.books.erased += self._release(change, erased, "erased")
            over = change.numbers(
                "state IN (SELECT value FROM json_each(?)) AND mark != '' AND held_at <= ?",
                json.dumps([*KINDS]),
                change.now - books.keep if books.keep else -1,
            )
            change.books.expired += self._release(change, over, event)
        return len(over), len(erased)

    def _release(self, change: Change, numbers: Sequence[int], event: record.Event) -> int:
        """Overwrite contents, with their rows if nobody paid for them; return how many trained."""
        before = self.count("stored")
        for number in numbers:
            if change.numbers("number = ? AND state IN ('paid', 'under way')", number):
                change.empty(number)
            else:
                change.drop(number)
        if numbers:
            change.note(event)
        return before - self.count("stored")
