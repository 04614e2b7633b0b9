"""Generated histories of a device: orders, time that passes, sweeps, and what it may hold."""

import os
import random
import shutil
import signal
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from tidegate.client.forgotten import Forgotten
from tidegate.client.gate import Gate
from tidegate.client.store import Store
from tidegate.client.streams import IndexedStream, Stream
from tidegate.client.supplier import Delivered, Outcome, Refused, Request
from tidegate.client.sweeping import sweep
from tidegate.integrations.mqtt import Spool, SpooledStream
from tidegate.integrations.mqtt.spool import Delivery, Message
from tidegate.selection import Selection
from tidegate.server.ledger import Ledger
from tidegate.wire import Introduction, Order, Receipt

DAY = 24 * 3600.0
START = 1_700_000_000.0
CAPACITY = 8
RUN, CLIENT = "r", "site"


def person(number: int) -> int:
    """Whom a sample is about."""
    return number * number % 7


def content(number: int) -> str:
    """A sample that is found again among bytes."""
    return f"sample-{number:05d}-{random.Random(number).getrandbits(64):016x}"  # noqa: S311


class SlowPeople:
    """A supplier that answers when it likes."""

    def __init__(self, draw: random.Random) -> None:
        self.draw = draw

    def ask(self, requests: Sequence[Request]) -> None:
        """It takes note of nothing: what it says is drawn."""

    def collect(self, keys: Sequence[str]) -> Iterable[Outcome]:
        for key in keys:
            kind = self.draw.random()
            if kind < 0.3:
                yield Delivered(key, "label")
            elif kind < 0.4:
                yield Refused(key, refunded=kind < 0.35)

    def cancel(self, keys: Sequence[str]) -> Iterable[Outcome]:
        for key in keys:
            kind = self.draw.random()
            if kind < 0.7:
                yield Refused(key, refunded=kind < 0.5)
            elif kind < 0.8:
                yield Delivered(key, "label")

    def complete(self, sample: str, answer: str) -> str:
        return f"{sample}, {answer}"


@dataclass
class Device:
    """One client with a clock of its own, and a server that believes it or not."""

    folder: Path
    number: int
    keep: int = 5
    """Days."""
    now: float = START
    round_number: int = 0
    came: dict[int, float] = field(default_factory=dict)
    """When each sample came to the device."""
    selection: Selection = field(default_factory=lambda: Selection(4, 6, random_share=0.0))
    arrived: int = 0
    trained: list[list[int]] = field(default_factory=list)
    gone: set[int] = field(default_factory=set)
    """People who are forgotten."""

    def __post_init__(self) -> None:
        self.draw = random.Random(self.number)  # noqa: S311
        self.mode = self.draw.choice(["plain", "selection", "supplier", "both"])
        self.spooled = self.draw.random() < 0.4
        self.retention = self.draw.choice(["k_step", "oldest_first", "thresholds"])
        self.ledger = Ledger(RUN)
        self.people = SlowPeople(self.draw)
        self.spool: Spool | None = None
        if self.spooled:
            self.spool = Spool(self.folder / "spool.sqlite", clock=self.clock)
            self.spool.claim("test")

    def clock(self) -> float:
        return self.now

    def __len__(self) -> int:
        return 10**6

    def __getitem__(self, number: int) -> str:
        self.came.setdefault(number, self.now)
        return content(number)

    def receive(self, count: int) -> None:
        """Messages come to the spool, whether the client is asked or not."""
        assert self.spool is not None
        for _ in range(count):
            message = Message("t", content(self.arrived).encode())
            assert self.spool.put(message, None, Delivery(0, again=False)) == "stored"
            self.came[self.arrived] = self.now
            self.arrived += 1

    @contextmanager
    def gate(self) -> Iterator[tuple[Gate, Store]]:
        """As a new process opens it."""
        path = self.folder / "buffer.sqlite"
        store = Store(path, RUN, CLIENT, CAPACITY, clock=self.clock)
        stream: Stream = IndexedStream(self)
        if self.spool is not None:
            stream = SpooledStream(self.spool, lambda payload, topic: payload.decode())
        selects = self.mode in ("selection", "both")
        selection = self.selection if selects else None
        supplier = self.people if self.mode in ("supplier", "both") else None
        try:
            yield (
                Gate(
                    store,
                    stream,
                    selection=selection,
                    supplier=supplier,
                    give_up_after=6,
                    keep_at_most=f"{self.keep}d",
                    subject=lambda sample: f"person-{person(int(sample.split('-')[1]))}",
                ),
                store,
            )
        finally:
            store.close()

    def order(self) -> Receipt:
        """The server asks, and believes what it hears."""
        self.round_number += 1
        rule = (1.0, *sorted(self.draw.uniform(0, 4) for _ in range(4)))
        order = Order(
            run=RUN,
            round_number=self.round_number,
            price=float(self.draw.randint(1, 3)),
            retention="k_step" if self.retention == "k_step" else "oldest_first",
            retention_horizon=4 if self.retention == "k_step" else 0,
            count=self.draw.randint(0, 5),
            thresholds=rule if self.retention == "thresholds" else (),
        )
        with self.gate() as (gate, store):
            books = store.books()
            self.ledger.open(CLIENT, CAPACITY, books.buffer_id)
            if self.mode in ("selection", "both"):
                known = Introduction(
                    run=RUN,
                    client=CLIENT,
                    buffer_capacity=CAPACITY,
                    buffer_id=books.buffer_id,
                    candidates=self.selection.candidates,
                )
                self.ledger.introduce(CLIENT, known)
            account = self.ledger.account(CLIENT)
            order = account.within_losses(order)
            self.ledger.send(CLIENT, order)
            exposure = self.ledger.account(CLIENT).exposure
            receipt = gate.apply(order)
            assert receipt.spent - account.newest.spent <= exposure
            self.ledger.book(CLIENT, receipt)
            samples = [int(one.split("-")[1]) for one in gate.samples()]
            assert len(samples) == receipt.occupancy
            assert not {*samples} & self.over()
            assert not {*map(person, samples)} & self.gone
            self.trained.append(samples)
        return receipt

    def sweep(self) -> None:
        swept, wrong = sweep(self.folder, self.clock)
        assert not wrong
        assert len(swept) == 1 + self.spooled or not (self.folder / "buffer.sqlite").exists()

    def forget(self, who: int) -> None:
        """Somebody wants to be erased."""
        self.gone.add(who)
        Forgotten(self.folder).add(f"person-{who}")
        self.sweep()

    def erased(self) -> set[int]:
        """Samples of people who are forgotten."""
        return {number for number in self.came if person(number) in self.gone}

    def over(self) -> set[int]:
        """Samples that the device may no longer hold."""
        return {n for n, at in self.came.items() if self.now - at >= self.keep * DAY}

    def step(self) -> None:
        """Time passes, and something happens."""
        self.now += self.draw.uniform(0, 1.5) * DAY
        if self.spooled:
            self.receive(self.draw.randint(0, 4))
        if self.draw.random() < 0.75:
            self.order()
        else:
            self.sweep()

    def close(self) -> None:
        if self.spool is not None:
            self.spool.close()


def found(folder: Path, numbers: Iterable[int]) -> list[int]:
    """Which samples' bytes are in any file of a folder, logs of databases included."""
    files = b"\0".join(path.read_bytes() for path in folder.rglob("*") if path.is_file())
    return [number for number in numbers if content(number).encode() in files]


class Dying(sqlite3.Connection):
    """Its process dies before a statement, as by a power switch."""

    left = 0

    def execute(self, *given: Any) -> sqlite3.Cursor:
        Dying.left -= 1
        if not Dying.left:
            os.kill(os.getpid(), signal.SIGKILL)
        return super().execute(*given)


def killed_at_every_statement(
    folder: Path, number: int, action: Callable[[Device], None], every: int
) -> Iterator[Device]:
    """A device whose process died before a statement of an action, for one statement after another.

    Args:
        folder: for the files.
        number: of the device.
        action: that is not completed, except for the last time.
        every: how many statements later it dies the next time.
    """
    begun = folder / "begun"
    begun.mkdir()
    device = Device(begun, number)
    for _ in range(5):
        device.step()
    device.order()
    device.close()
    device.spool = None
    for last in range(1, 10_000, every):
        copy = deepcopy(device)
        copy.folder = Path(shutil.copytree(begun, folder / str(last)))
        child = os.fork()
        if not child:
            sqlite3.connect = partial(sqlite3.connect, factory=Dying)  # type: ignore[assignment]
            Dying.left = last
            action(copy)
            os._exit(0)
        _, status = os.waitpid(child, 0)
        if copy.spooled:
            copy.spool = Spool(copy.folder / "spool.sqlite", clock=copy.clock)
        yield copy
        copy.close()
        if not os.WIFSIGNALED(status):
            assert os.WEXITSTATUS(status) == 0
            assert last > 20
            return
