"""A store in one SQLite file, which survives crashes of the process and of the machine.

Write-ahead log, ``synchronous=FULL``: what was committed is on disk before the client replies. Only
its owner can read the file; a sample that has left the buffer is overwritten in it.
"""

import json
import time
from collections.abc import Sequence
from dataclasses import asdict
from math import isinf
from pathlib import Path
from typing import Any

from tidegate._internal.saving import plain, reading
from tidegate._internal.sqlite_file import empty_log, transaction
from tidegate.client.codec import ArrayCodec, SampleCodec
from tidegate.client.limits import Clock
from tidegate.client.record import Entry
from tidegate.client.sqlite_books import as_text, names_the_file
from tidegate.client.sqlite_file import REMEDY
from tidegate.client.sqlite_waiting import SqliteWaiting
from tidegate.client.store import (
    KEPT_ANSWERS,
    KEPT_FAILURES,
    Books,
    Change,
    Choice,
    FailedSample,
    Origin,
    StoredSample,
    checked_books,
    with_void,
)
from tidegate.wire import Order, Receipt


class SqliteStore(SqliteWaiting):
    """A client's buffer in a file; opening the same file again continues where it stopped."""

    def __init__(
        self,
        path: Path,
        run: str,
        client: str,
        buffer_capacity: int,
        codec: SampleCodec | None = None,
        *,
        clock: Clock = time.time,
    ) -> None:
        self._codec = ArrayCodec() if codec is None else codec
        self._capacity = buffer_capacity
        start = Books(run=run, client=client, buffer_capacity=buffer_capacity)
        super().__init__(path, start, clock)

    @names_the_file
    def stored(self) -> list[StoredSample]:
        """Return what is in the buffer, oldest first."""
        rows = self._connection.execute(
            "SELECT position, admitted_round, uses, bought_in FROM samples "
            "ORDER BY position LIMIT ?",
            (self._capacity + 1,),
        ).fetchall()
        if len(rows) > self._capacity or not all(type(cell) is int for row in rows for cell in row):
            raise self._damaged(f"holds more than {self._capacity} samples, or no numbers")
        return [StoredSample(*row) for row in rows]

    def samples(self) -> list[Any]:
        """Return the samples, oldest first, without those that were held for too long."""
        return [self._codec.decode(content) for content in self._contents()]

    @names_the_file
    def _contents(self) -> list[bytes]:
        """Yield the samples as they are stored."""
        rows = self._connection.execute(
            "SELECT content FROM contents JOIN origins ON kind = 'sample' AND number = position "
            "WHERE held_at > ? ORDER BY position LIMIT ?",
            (self._keeping.last_over(), self._capacity + 1),
        ).fetchall()
        contents = [content for (content,) in rows if type(content) is bytes]
        if not len(contents) == len(rows) <= self._capacity:
            raise self._damaged(f"holds more than {self._capacity} samples, or no bytes")
        return contents

    @names_the_file
    def answer(self, round_number: int) -> tuple[Order, Receipt] | None:
        """Return the order of a round and its receipt."""
        row = self._connection.execute(
            "SELECT sent_order, receipt FROM answers WHERE round_number = ?", (round_number,)
        ).fetchone()
        if row is None:
            return None
        with reading(self._path, REMEDY):
            return Order.from_record(json.loads(row[0])), Receipt.from_record(json.loads(row[1]))

    @names_the_file
    def failures(self) -> list[FailedSample]:
        """Return samples that failed, in the order in which they were noted."""
        rows = self._connection.execute(
            "SELECT content FROM failures ORDER BY number LIMIT ?", (2 * KEPT_FAILURES,)
        ).fetchall()
        with reading(self._path, REMEDY):
            return [plain(FailedSample, json.loads(content)) for (content,) in rows]

    def pack(self, sample: Any) -> bytes:
        """Return a sample as it will be stored."""
        return self._codec.encode(sample)

    def unpack(self, packed: bytes) -> Any:
        """Return the sample that was packed."""
        return self._codec.decode(packed)

    @names_the_file
    def choose(self, choice: Choice) -> None:
        """Record a choice in one transaction, on disk when this returns."""
        execute, kept = self._connection.execute, self._keeping
        with transaction(self._connection):
            self._refuse_forgotten(one.origin for one in choice.fresh)
            books, now = checked_books(choice, self.books()), kept.order_time()
            held, passing = [], {*choice.dropped}
            for one in choice.fresh:
                if one.key in passing:
                    continue  # read and dropped in one choice: it was never held
                added = execute("INSERT INTO candidates (key) VALUES (?)", (one.key,)).lastrowid
                execute("INSERT INTO candidate_contents VALUES (?, ?)", (added, one.packed))
                held.append(kept.hold("candidate", added or 0, one.packed, one.origin, now))
            ((last,),) = execute("SELECT coalesce(max(choice), 0) FROM candidates")
            for place, key in enumerate(choice.chosen, start=last + 1):
                execute("UPDATE candidates SET choice = ? WHERE key = ?", (place, key))
            gone = self._drop(choice.dropped, "candidate")
            self._note(choice.failed)
            told = Entry(event="choice", at=now, gone=tuple(gone), candidates=tuple(held))
            self._write(kept.note(kept.append(books, told) if gone or held else books))
        empty_log(self._connection)

    @names_the_file
    def commit(self, change: Change) -> None:
        """Apply a change in one transaction, on disk when this returns."""
        round_number, execute = change.order.round_number, self._connection.execute
        kept = self._keeping
        with transaction(self._connection):
            self._refuse_forgotten([*change.origins, *(one.origin for one in change.asked)])
            books, now = checked_books(change, self.books()), kept.order_time()
            gone = []
            for position in change.removed:
                execute("DELETE FROM samples WHERE position = ?", (position,))
                execute("DELETE FROM contents WHERE position = ?", (position,))
                gone += kept.release("sample", position)
            gone += self._drop(change.done, "candidate")
            gone += self._drop(change.ended, "purchase")
            execute("UPDATE samples SET uses = uses + 1")
            samples, purchases = [], []
            for place, packed in enumerate(change.admitted):
                position = change.before.total_admitted + place
                bought_in = change.bought_in[place] if change.bought_in else books.orders
                row = position, round_number, bought_in
                execute("INSERT INTO samples VALUES (?, ?, 1, ?)", row)
                execute("INSERT INTO contents VALUES (?, ?)", (position, packed))
                origin = change.origins[place] if change.origins else Origin()
                samples.append(kept.hold("sample", position, packed, origin, now))
            for one in change.asked:
                added = execute(
                    "INSERT INTO purchases (key, price, round_number, bought_in, asked) "
                    "VALUES (?, ?, ?, ?, 0)",
                    (one.key, change.order.price, round_number, books.orders),
                ).lastrowid
                execute("INSERT INTO purchase_contents VALUES (?, ?)", (added, one.packed))
                purchases.append(kept.hold("purchase", added or 0, one.packed, one.origin, now))
            self._note(change.failed)
            told = Entry(
                event="order",
                at=now,
                round_number=round_number,
                most_uses=0 if isinf(change.order.horizon) else int(change.order.horizon),
                gone=tuple(gone),
                samples=tuple(samples),
                purchases=tuple(purchases),
            )
            kept.end_order()
            self._write(kept.note(kept.append(books, told)))
            execute(
                "INSERT INTO answers VALUES (?, ?, ?)",
                (
                    round_number,
                    as_text(change.order.to_record()),
                    as_text(change.receipt.to_record()),
                ),
            )
            execute("DELETE FROM answers WHERE round_number <= ?", (round_number - KEPT_ANSWERS,))
        empty_log(self._connection)

    def _note(self, failed: Sequence[FailedSample]) -> None:
        """Keep what failed; it replaces earlier entries that were to be tried again."""
        execute = self._connection.execute
        execute("DELETE FROM failures WHERE set_aside = 0")
        for one in failed:
            row = int(one.set_aside), as_text(asdict(one))
            execute("INSERT INTO failures (set_aside, content) VALUES (?, ?)", row)
        if failed:
            execute(
                "DELETE FROM failures WHERE set_aside AND number NOT IN "
                "(SELECT number FROM failures WHERE set_aside ORDER BY number DESC LIMIT ?)",
                (KEPT_FAILURES,),
            )

    @names_the_file
    def void(self, round_number: int) -> None:
        """Never apply an order of a round up to this one from now on."""
        if self.books().void_round < round_number:
            with transaction(self._connection):
                self._write(with_void(self.books(), round_number))
