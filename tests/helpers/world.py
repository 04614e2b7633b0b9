"""A server, its clients, and all between them that can go wrong, one step at a time.

Nothing here runs at the same time or by the clock: whoever holds the world decides what happens
next, so that a schedule of faults can be played again. The parts are the product's own: controller
and checkpoint record at the server, gate and store on devices. The network loses, doubles, delays
and reorders messages; processes die before and after everything that they write; disks are full or
gone; suppliers fail.
"""

import errno
import functools
import logging
import math
import random
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, get_args

from late_supplier import LateSupplier
from saved_controller import brought_back, parts, written

from tidegate.client.buying import TRIES
from tidegate.client.codec import ArrayCodec
from tidegate.client.gate import Gate
from tidegate.client.store import Books, Change, State, Store, check_meant_for
from tidegate.client.streams import IndexedStream
from tidegate.errors import WireError
from tidegate.policies import ControlOptions
from tidegate.policies.options import NotApplicable
from tidegate.policies.presets import make_policy
from tidegate.prices import PricePath, UniformPrice
from tidegate.runs.books import RunBooks
from tidegate.selection import Selection
from tidegate.server.controller import Controller
from tidegate.server.fleet import Terms
from tidegate.server.fleet_round import FleetRound
from tidegate.wire import Address, Introduction, Order, Receipt

RUN = "run"
NOTHING: Mapping[str, Any] = {}
NO_ANSWER = "the supplier does not answer"
IN_MEMORY = Path(":memory:")
AWAY = f"ConnectionError: {NO_ANSWER}"
"""A sample that meets this at its last try is set aside, though it may not be at fault."""


class OnceDecoded(ArrayCodec):
    """Decodes equal bytes once; every step looks at all samples."""

    decode = functools.lru_cache(maxsize=10_000)(ArrayCodec.decode)


CODEC = OnceDecoded()


class ProcessDied(BaseException):
    """Not an exception that anybody may handle: the process is gone."""


class Disk(Store):
    """A store whose next change may meet with an accident."""

    known: Books
    changes = -1
    """Made by this process when ``known`` was read."""
    accident = ""
    """``before`` or ``after``: the process dies then; ``full``: nothing can be written. Behind
    ``choosing`` it is due when a choice is written down, behind ``asked`` when it is noted that the
    supplier was asked; else at the end of an order."""

    def books(self) -> Books:
        """Read them once for each change: nobody else writes to what is in memory."""
        connection = self.file._connection
        changes = connection.total_changes
        if self.file.path != IN_MEMORY or (connection.in_transaction and changes != self.changes):
            return super().books()  # a change that is under way may still be undone
        if changes != self.changes:
            self.known, self.changes = super().books(), changes
        return self.known

    def answer(self, round_number: int) -> tuple[Order, Receipt] | None:
        """Read each once: all are looked at after every step."""
        known: dict[int, tuple[Order, Receipt]] = vars(self).setdefault("answers", {})
        if round_number not in known:
            answer = super().answer(round_number)
            if answer is None:
                return None
            known[round_number] = answer
        return known[round_number]

    @contextmanager
    def step(self, round_number: int, before: Books) -> Iterator[Change]:
        with super().step(round_number, before) as change:
            yield change
            name = "" if change.books.last_round > before.last_round else "choosing"
            kind = self._due(name)
        _die_after(kind)

    def mark_asked(self, numbers: Sequence[int]) -> None:
        kind = self._due("asked")
        super().mark_asked(numbers)
        _die_after(kind)

    def void(self, round_number: int) -> None:
        if self.accident.endswith("full"):
            raise OSError(errno.ENOSPC, "no space left on device")
        super().void(round_number)

    def _due(self, step: str) -> str:
        """Return the accident that is due at this step; one before it happens at once."""
        at, _, kind = self.accident.rpartition(" ")
        if at != step:
            return ""
        self.accident = ""
        if kind == "before":
            raise ProcessDied
        if kind == "full":
            raise OSError(errno.ENOSPC, "no space left on device")
        return kind


MakeStore = Callable[[str, int, int], Disk]
"""Given a client's name, its capacity and how many samples train, opens its store."""


def _die_after(kind: str) -> None:
    if kind == "after":
        raise ProcessDied


class Sample(NamedTuple):
    """A sample in a device's file."""

    key: str
    price: float
    bought_in: int
    since: int
    group: str
    uses: int
    used_in: int
    content: Any


@dataclass
class Device:
    """A client: what survives its process, and the process."""

    name: str
    capacity: int
    pool: int
    """Samples in its stream."""
    make_store: MakeStore
    at_fault: frozenset[int] = frozenset()
    """Places of samples that cannot be had: those with odd numbers cannot even be read."""
    selection: Selection | None = None
    supplier: LateSupplier | None = None
    """Of samples that come later; without one they come at once."""
    give_up_after: int | None = None
    train_on: int = 0
    options: Mapping[str, Any] = field(default_factory=dict)
    """Of its gate, besides."""
    mood: int = 0
    """What it ranks candidates by: no two models rank alike."""
    online: bool = True
    disks_lost: int = 0
    paid_before: float = 0.0
    """From books that went with a disk."""
    read_before: int = 0
    """Samples of the stream that went into buffers which are lost."""
    lost_aside: dict[str, int] = field(default_factory=dict)
    """Samples that each of these has set aside, by its id."""
    unheard_aside: dict[str, int] = field(default_factory=dict)
    """Those of them of which the server had not heard when it learned of the loss."""
    bought: dict[str, int] = field(default_factory=dict)
    """How often a supplier was asked for each key."""
    supplier_fails_after: int | None = None
    checked: Books | None = None
    """Its books when they were last looked at."""
    answered: list[tuple[Order, Receipt]] = field(default_factory=list)
    """What its books had answered then."""

    def __post_init__(self) -> None:
        self.disk = self.make_store(self.name, self.capacity, self.train_on)
        self.start()

    def start(self) -> None:
        """A new process."""
        stream, selection = IndexedStream(self), self.selection
        if self.supplier is None:
            self.gate = Gate(self.disk, stream, self.acquire, selection, **self.options)
            return
        self.supplier.unusable = lambda sample: int(sample.rsplit(":", 1)[1]) in self.at_fault
        self.gate = Gate(
            self.disk,
            stream,
            selection=selection,
            supplier=self.supplier,
            give_up_after=self.give_up_after,
            **self.options,
        )

    def worth(self, candidates: Sequence[str]) -> list[float]:
        """Another order of the candidates each time."""
        self.mood += 1
        return [random.Random(f"{self.mood} {one}").random() for one in candidates]  # noqa: S311

    def __len__(self) -> int:
        return self.pool

    def __getitem__(self, number: int) -> str:
        if number % 2 and number in self.at_fault:
            raise OSError(f"sample {number} is damaged")
        return f"{self.name}:{number}"

    def acquire(self, sample: str, key: str) -> str:
        """Pay a supplier who knows what was paid for by its key."""
        if self.supplier_fails_after is not None:
            self.supplier_fails_after -= 1
            if self.supplier_fails_after < 0:
                self.supplier_fails_after = None
                raise ConnectionError(NO_ANSWER)
        if int(sample.rsplit(":", 1)[1]) in self.at_fault:
            raise LookupError(f"nobody knows {sample}")
        self.bought[key] = self.bought.get(key, 0) + 1
        return sample

    def lose_disk(self) -> None:
        self.disks_lost += 1
        self.paid_before = self.paid
        self.read_before = max(self.read_before, int(self.disk.books().cursor or 0))
        self.disk = self.make_store(self.name, self.capacity, self.train_on)
        self.bought, self.checked, self.answered = {}, None, []
        self.start()

    @property
    def paid(self) -> float:
        """All that was ever paid here."""
        books = self.disk.books()
        return self.paid_before + books.spent - books.refunded

    def samples(self) -> dict[str, list[Sample]]:
        """All that are in its file, by their state, in the order in which they came to it."""
        rows = self.disk.file.execute(
            "SELECT state, key, price, bought_in, since, in_group, uses, used_in, content "
            "FROM samples LEFT JOIN contents USING (number) ORDER BY state, place"
        )
        samples: dict[str, list[Sample]] = {state: [] for state in get_args(State)}
        for row in rows:
            samples[row[0]].append(Sample._make((*row[1:-1], self.disk.unpack(row[-1]))))
        return samples

    def newest(self) -> Receipt | None:
        answer = self.disk.answer(self.disk.books().last_round)
        return None if answer is None else answer[1]

    def introduction(self) -> Introduction:
        books = self.disk.books()
        return Introduction(
            run=books.run,
            client=books.client,
            buffer_capacity=books.buffer_capacity,
            buffer_id=books.buffer_id,
            train_on=books.train_on,
            void_round=books.void_round,
            candidates=0 if self.selection is None else self.selection.candidates,
            read=books.read,
            last_taken=books.last_taken,
        )

    def apply(self, address: Address, order: Order) -> Receipt | None:
        """What a client app does with an order; none if its process dies over it."""
        try:
            check_meant_for(self.disk.books(), address)
            return self.gate.apply(order, address, self.worth)
        except ProcessDied:
            self.start()
            return None


@dataclass(frozen=True)
class Letter:
    """A message on its way."""

    client: str
    address: Address | None = None
    order: Order | None = None
    receipt: Receipt | None = None
    """None on the way back: the client failed."""


def terms(policy: str, *, strict: bool, seed: int, rounds: int = 40) -> Terms:
    options = ControlOptions(hard_capacity=True, spend_ahead=0.0 if strict else None)
    return Terms(
        policy=lambda problem: make_policy(policy, problem, options),
        policy_name=policy,
        budget=20.0,
        prices=PricePath(UniformPrice(1, 10), seed),
        num_rounds=rounds,
    )


class World:
    """All of it, with the checks that must hold after every step."""

    def __init__(
        self, run_terms: Terms, *, strict: bool = False, make_store: MakeStore | None = None
    ) -> None:
        self.terms, self.strict = run_terms, strict
        self.make_store: MakeStore = make_store or (
            lambda name, capacity, train_on: Disk(
                None, RUN, name, capacity, CODEC, train_on=train_on
            )
        )
        self.devices: dict[str, Device] = {}
        self.controller = Controller(run_terms, RUN)
        self.books = RunBooks(IN_MEMORY)
        self.save()
        self.known: set[str] = set()
        """Who has introduced itself to this server process."""
        self.orders: list[Letter] = []
        self.replies: list[Letter] = []
        self.rounds: list[FleetRound] = []
        self.sent: dict[tuple[str, int], Order] = {}
        self.deciding = False

    # What can happen.

    def join(
        self,
        capacity: int,
        pool: int,
        at_fault: frozenset[int] = frozenset(),
        selection: Selection | None = None,
        supplier: LateSupplier | None = None,
        give_up_after: int | None = None,
        train_on: int = 0,
        options: Mapping[str, Any] = NOTHING,
    ) -> None:
        name = f"client-{len(self.devices)}"
        parts = self.make_store, at_fault, selection, supplier, give_up_after, train_on, options
        self.devices[name] = Device(name, capacity, pool, *parts)

    def open_round(self, *, dies_before_saving: bool = False) -> None:
        """Introductions, a decision, a checkpoint, and orders on their way."""
        online = [device for device in self.devices.values() if device.online]
        self.known = {one for one in self.known if not self.controller.is_silent(one)}
        for device in sorted(online, key=lambda one: one.name):
            if device.name not in self.known:
                try:
                    device.disk.void(self.controller.round_number - 1)
                    self._note_unheard(device)
                    self.controller.join(device.introduction(), device.newest())
                except (WireError, OSError):
                    continue
                self.known.add(device.name)
        for device in self.devices.values():
            if device.supplier is not None:
                device.supplier.now += 1
        present = [device.name for device in online if device.name in self.known]
        if not present:
            return  # Flower waits for somebody
        orders = self.controller.decide(present, present)
        if dies_before_saving:
            self.restart_server()
            return
        self.save()
        self.deciding = True
        for client, order in orders.items():
            before = self.sent.setdefault((client, order.round_number), order)
            assert before == order, "a round that was decided before has other orders"
            self.orders.append(Letter(client, self.controller.address(client), order))

    def deliver(self, number: int, *, keep: bool = False) -> None:
        """An order arrives; ``keep`` leaves a copy on its way."""
        letter = self.orders[number] if keep else self.orders.pop(number)
        device = self.devices[letter.client]
        if not device.online or letter.order is None or letter.address is None:
            return
        try:
            receipt = device.apply(letter.address, letter.order)
        except (WireError, OSError):
            self.replies.append(Letter(letter.client))
            return
        if receipt is not None:
            self.replies.append(Letter(letter.client, receipt=receipt))

    def receive(self, number: int, *, keep: bool = False) -> None:
        """A reply arrives at the server."""
        letter = self.replies[number] if keep else self.replies.pop(number)
        if not self.deciding:
            return  # a server app that waits for nothing hears nothing
        if letter.receipt is None:
            self.known.discard(letter.client)
            return
        try:
            self.controller.book(letter.client, letter.receipt)
        except WireError:
            self.known.discard(letter.client)

    def close_round(self, *, dies_before_saving: bool = False) -> None:
        row = self.controller.close()
        if dies_before_saving:
            self.restart_server()
            return
        self.save()
        self.rounds.append(row)
        self.deciding = False

    def restart_server(self) -> None:
        """The server app dies; replies to messages that it does not know are lost with it."""
        state, record = written(self.saved)
        again = written(parts(self._from_books().standing))
        assert again[0] == state, "the policy's state is another after a restart"
        assert again[1] == record, "the books are others after a restart"
        self.controller = self._from_books()  # one that has read nothing yet
        self.known, self.replies, self.deciding = set(), [], False

    def lose_disk(self, name: str) -> None:
        device = self.devices[name]
        books = device.disk.books()
        device.lost_aside[books.buffer_id] = books.set_aside
        device.lose_disk()

    def _note_unheard(self, device: Device) -> None:
        """What the server does not know of lost buffers; after a restart it may know less."""
        ledger = self.controller.ledger
        account = ledger.account(device.name) if device.name in ledger else None
        for buffer_id, aside in device.lost_aside.items():
            heard = 0
            if account is not None and account.buffer_id == buffer_id:
                heard = int(account.newest.health.get("set_aside", 0))
            elif buffer_id in device.unheard_aside:
                continue
            before = device.unheard_aside.get(buffer_id, 0)
            device.unheard_aside[buffer_id] = max(before, aside - heard)

    def save(self) -> None:
        standing = self.controller.standing
        self.saved = parts(standing)  # written out only when the server starts again
        self.books.save(standing)

    def _from_books(self) -> Controller:
        return brought_back(self.books, self.terms)

    # What must hold.

    def check(self) -> None:
        """The books of server and clients, after any step."""
        ledger, paid = self.controller.ledger, 0.0
        for device in self.devices.values():
            books = device.disk.books()
            if device.checked is not books:
                self._check_device(device, books)
                device.checked = books
            device_paid = device.paid_before + books.spent - books.refunded
            paid += device_paid
            if device.name not in ledger.clients:
                assert not device_paid, "paid for what nobody ordered"
                continue
            newest = ledger.account(device.name).newest
            if not device.disks_lost:
                assert newest.spent <= books.spent + 1e-9
                if newest.round_number == books.last_round:
                    assert newest.admitted == books.admitted
                    assert math.isclose(newest.spent, books.spent, abs_tol=1e-9)
                    assert math.isclose(newest.refunded, books.refunded, abs_tol=1e-9)
                    assert newest.under_way == books.under_way
        heard = math.fsum(ledger.account(client).paid for client in ledger.clients)
        unheard = ledger.exposure
        assert paid <= heard + unheard + 1e-6, "somebody paid what the server did not expect"
        booked = math.fsum(row.spent for row in self.rounds) + ledger.booked.spent
        assert math.isclose(booked, heard, abs_tol=1e-6), "money that is in no round"
        for row in self.rounds[-1:]:
            assert row.overspend <= row.cost_debt + 1e-6, "the certificate does not hold"
        if self.strict:
            assert paid <= self.terms.budget * self.controller.round_number + 1e-6, "overspent"

    def _check_device(self, device: Device, books: Books) -> None:  # noqa: PLR0915 - many promises
        disk, newest = device.disk, device.newest()
        checked = 0 if device.checked is None else device.checked.last_round
        held, samples, failures = device.samples(), list(disk.samples()), disk.failures()
        stored, under_way, chosen = held["stored"], held["under way"], held["chosen"]
        waiting = held["candidate"]
        for round_number in range(checked + 1, books.last_round + 1):
            answer = disk.answer(round_number)
            if answer is not None:
                device.answered.append(answer)
        bought, spent = 0, list[float]()
        for order, receipt in device.answered:
            spent.append(order.price * (receipt.bought - bought))
            bought = receipt.bought
        assert math.isclose(math.fsum(spent), books.spent, abs_tol=1e-9), "bought x price"
        assert bought == books.bought
        assert len(stored) <= device.capacity, "memory is a hard limit"
        trains = [one for one in stored if not device.train_on or one.used_in == books.orders]
        assert len(trains) == (newest.occupancy if newest else 0), "what the receipt says is there"
        assert not device.train_on or len(trains) == min(device.train_on, len(stored))
        since = [sample.since for sample in stored]
        assert since == sorted(since), "the oldest leave first"
        assert len(set(samples)) == len(samples) == len(trains), "a sample twice"
        assert samples == [sample.content for sample in trains]
        aside = [one.key for one in failures if one.set_aside]
        assert len(aside) == len(set(aside)) == books.set_aside
        told = 0 if newest is None else newest.health.get("set_aside", 0)
        if newest is not None and books.chosen_round > books.last_round:  # by a choice
            assert told <= books.set_aside
        else:
            assert newest is None or told == books.set_aside
        places = {
            int(one.key.rsplit("/", 1)[1]) - 1
            for one in failures
            if one.set_aside and not (one.tries == TRIES and one.error.startswith(AWAY))
        }
        assert places <= device.at_fault, "a sample was set aside that is not at fault"
        skipped = int(books.cursor or 0) - books.read
        assert skipped == 0 or device.disks_lost, "each sample of the stream once"
        if books.admitted:
            heard = device.read_before - sum(device.unheard_aside.values())
            assert skipped >= heard, "a sample that a lost disk had, once more"
        if device.supplier is None:
            # A key may be asked for again after a crash, but no other in its place, unless the
            # supplier, who was paid before the crash, was away when asked again.
            away = {one.key for one in failures if one.error.startswith(AWAY)}
            kept = device.bought.keys() - away
            assert books.admitted <= len(kept) <= books.admitted + device.capacity
        else:
            charged = device.supplier.charged(list(device.supplier.bill))
            assert charged <= device.paid + 1e-9, "the bill is higher than the books"
        bought_samples = [sample.content for sample in (*under_way, *stored, *held["kept"])]
        assert len(set(bought_samples)) == len(bought_samples), "bought twice, or still under way"
        candidates = [sample.content for sample in (*chosen, *waiting)]
        assert not {*candidates} & {*bought_samples}, "it is bought, and still waits"
        assert len(under_way) == books.under_way
        if newest is not None:
            self._check_newest(newest, books, stored, under_way, device)
        self._check_candidates(device, books, aside, chosen, waiting)
        if device.options.get("keep_bought"):
            assert len(stored) + len(held["kept"]) == books.admitted, "what was bought stays"
        if "spend_at_most" in device.options:
            orders = books.orders + device.options["spend_ahead"]
            ceiling = device.options["spend_at_most"] * orders * (1 + 1e-9)
            assert books.spent - books.refunded <= ceiling, "more than the site's own ceiling"

    def _check_newest(
        self,
        newest: Receipt,
        books: Books,
        stored: list[Sample],
        under_way: list[Sample],
        device: Device,
    ) -> None:
        """What is planned is told by age, without what makes room, chosen sample by sample."""
        plan = [(books.orders - one.bought_in + 1, one.group) for one in (*stored, *under_way)]
        while len(plan) > device.capacity:
            sizes = Counter(group for _, group in plan)
            plan.remove(
                max(plan, key=lambda one: (one[0] * (sizes[one[1]] ** 2 if one[1] else 1), *one))
            )
        told = [age for age, count in enumerate(newest.holding, start=1) for _ in range(count)]
        assert told == sorted(age for age, _ in plan), "the plan"
        uses = sum(books.orders - sample.since for sample in stored)
        if device.train_on:
            uses = sum(sample.uses for sample in stored if sample.used_in == books.orders)
            least = [sample.uses for sample in stored if sample.used_in != books.orders]
            trained = [sample.uses for sample in stored if sample.used_in == books.orders]
            assert max(trained, default=0) - 1 <= min(least, default=math.inf), "the least used"
        assert newest.uses == uses, "rounds that samples trained in"
        assert newest.under_way == books.under_way
        assert newest.read <= books.read
        committed = math.fsum(purchase.price for purchase in under_way)
        assert math.isclose(committed, newest.under_way_spent, abs_tol=1e-9)

    def _check_candidates(
        self,
        device: Device,
        books: Books,
        aside: list[str],
        chosen: list[Sample],
        waiting: list[Sample],
    ) -> None:
        """Nobody waits who was bought, and whoever was paid for is chosen or bought."""
        most = 0 if device.selection is None else device.selection.backlog
        assert len(waiting) <= most, "the backlog is a hard limit"
        keys = [sample.key for sample in (*chosen, *waiting)]
        places = [int(key.rsplit("/", 1)[1]) for key in keys]
        assert len(set(places)) == len(places), "a candidate twice"
        assert max(places, default=0) <= int(books.cursor or 0)
        assert not set(keys) & set(aside)
        if device.selection is not None:
            waits = {sample.key for sample in waiting}
            assert not waits & set(device.bought), "paid for, and chosen no longer"

    def calm_down(self, rounds: int = 3) -> None:
        """No more faults: everybody is there, and everything arrives."""
        for device in self.devices.values():
            device.online, device.disk.accident, device.supplier_fails_after = True, "", None
            if device.supplier is not None:
                device.supplier.fails_after = None
        self.orders.clear()
        for _ in range(rounds):
            if not self.deciding:
                self.open_round()
                self.check()
            while self.orders:
                self.deliver(0)
            while self.replies:
                self.receive(0)
            self.close_round()
            self.check()
        for device in self.devices.values():
            account, books = self.controller.ledger.account(device.name), device.disk.books()
            assert account.outstanding is None
            newest = account.newest
            assert newest.round_number == books.last_round
            assert newest.admitted == books.admitted
            assert math.isclose(newest.spent, books.spent, abs_tol=1e-6)
            assert math.isclose(newest.refunded, books.refunded, abs_tol=1e-6)
            if device.supplier is not None and not device.disks_lost:
                under_way = {one.key: one for one in device.disk.held("under way")}
                assert all(one.is_asked for one in under_way.values())
                heard = [key for key in device.supplier.bill if key not in under_way]
                charged = device.supplier.charged(heard) + newest.under_way_spent
                assert math.isclose(charged, device.paid, abs_tol=1e-6), "the bill differs"


POLICIES = (
    "acdpp",
    "constant_admission",
    "tide",
    "drift_plus_penalty",
    "hybrid",
    "costless_oracle",
)
STEPS = 120


def play_schedule(
    number: int,
    make_store: MakeStore | None = None,
    *,
    choosing: bool = False,
    late: bool = False,
    keeping: bool = False,
) -> World:
    """The schedule of faults of this number, and the end of all faults; checked at every step.

    Args:
        number: of the schedule.
        make_store: of the clients; in memory by default.
        choosing: whether clients choose among candidates.
        late: whether what they buy comes later, or never.
        keeping: whether they name groups, train on a part of what they store, keep what has left
            the buffer, or have ceilings of their own.
    """
    draw = random.Random(number)  # noqa: S311 - nothing here is secret
    strict = draw.random() < 0.3
    policy = draw.choice(POLICIES[:-1] if strict else POLICIES)
    world = World(terms(policy, strict=strict, seed=number), strict=strict, make_store=make_store)
    lossy, clumsy = draw.choice((0.0, 0.1, 0.4)), draw.choice((0.0, 0.05, 0.2))
    may_lose_disks = draw.random() < 0.3
    for _ in range(draw.randint(1, 4) + (policy == "hybrid")):
        _join(world, draw, choosing=choosing, late=late, keeping=keeping)
    with suppress(NotApplicable):  # hybrid, while only one client has introduced itself
        for _ in range(STEPS):
            if draw.random() < clumsy:
                _accident(
                    *(world, draw),
                    may_lose_disks=may_lose_disks,
                    choosing=choosing,
                    late=late,
                    keeping=keeping,
                )
            else:
                _step(world, draw, lossy, clumsy)
            world.check()
        world.calm_down()
    return world


def play_some(first: int, count: int, **kind: bool) -> None:
    """So many schedules, from a number on; one that fails is named."""
    logging.getLogger("tidegate").setLevel(logging.CRITICAL)
    for number in range(first, first + count):
        try:
            play_schedule(number, None, **kind)
        except (Exception, ProcessDied) as failure:
            raise AssertionError(f"schedule {number} ends in {failure!r}") from failure


def _step(world: World, draw: random.Random, lossy: float, clumsy: float) -> None:
    if not world.deciding:
        world.open_round(dies_before_saving=draw.random() < clumsy)
    elif world.orders and draw.random() < 0.7:
        _move(draw, lossy, world.orders, world.deliver)
    elif world.replies and draw.random() < 0.8:
        _move(draw, lossy, world.replies, world.receive)
    elif not world.orders or draw.random() < 0.2:
        world.close_round(dies_before_saving=draw.random() < clumsy)


def _move(
    draw: random.Random, lossy: float, letters: list[Letter], arrive: Callable[..., None]
) -> None:
    """One of the letters arrives, is lost, or arrives and will arrive again."""
    number = draw.randrange(len(letters))
    if draw.random() < lossy:
        draw.choice((letters.pop, lambda one: arrive(one, keep=True)))(number)
    else:
        arrive(number)


def _some_at_fault(draw: random.Random) -> frozenset[int]:
    """None of a device's samples, or some of the first ones."""
    return frozenset(draw.sample(range(40), draw.choice((0, 0, 2, 10))))


def _group_of(sample: str) -> int:
    """Every fourth sample is of a rare group."""
    number = int(sample.rsplit(":", 1)[1])
    return int(number % 4 > 0)


def _join(world: World, draw: random.Random, *, choosing: bool, late: bool, keeping: bool) -> None:
    """A client that chooses, if it may, among few or many candidates, with a backlog or without."""
    sizes = draw.randint(1, 6), draw.choice((3, 30, 1000)), _some_at_fault(draw)
    selection = None
    if choosing:
        selection = Selection(draw.choice((1, 3, 10)), draw.choice((0, 2, 20)), draw.random() / 2)
        if draw.random() < 0.2:  # an order may ask for far more than the candidates
            sizes, selection = (40, *sizes[1:]), Selection(1, draw.choice((0, 2)), 0.0)
    supplier, give_up_after = None, None
    if late:
        supplier = LateSupplier(draw.randrange(10**6), draw.choice((0, 2, 8, 30)))
        give_up_after = draw.choice((None, 1, 4))
    train_on, options = 0, dict[str, Any]()
    if keeping:
        train_on = draw.choice((0, *range(1, sizes[0])))
        options["keep_bought"] = draw.random() < 0.5
        if draw.random() < 0.7:
            options["group"] = _group_of
        if draw.random() < 0.5:
            options["spend_at_most"] = draw.choice((2.0, 7.5, 20.0))
            options["spend_ahead"] = draw.choice((0, 3))
    world.join(*sizes, selection, supplier, give_up_after, train_on, options)


def _accident(
    world: World,
    draw: random.Random,
    *,
    may_lose_disks: bool,
    choosing: bool,
    late: bool,
    keeping: bool,
) -> None:
    device = draw.choice(list(world.devices.values()))
    kind = draw.choice(
        ("process", "disk", "supplier", "offline", "online", "join", "server", "lost")
    )
    if kind == "process":
        device.disk.accident = _when(draw, choosing, late) + draw.choice(("before", "after"))
    elif kind == "disk":
        device.disk.accident = _when(draw, choosing, late) + "full"
    elif kind == "supplier" and device.supplier is not None:
        device.supplier.fails_after = draw.randint(0, 3)
        device.supplier.dies = draw.choice((None, _die))
    elif kind == "supplier":
        device.supplier_fails_after = draw.randint(0, 3)
    elif kind in ("offline", "online"):
        device.online = kind == "online"
    elif kind == "join" and len(world.devices) < 6:
        _join(world, draw, choosing=choosing, late=late, keeping=keeping)
    elif kind == "server":
        world.restart_server()
    elif kind == "lost" and may_lose_disks:
        world.lose_disk(device.name)


def _when(draw: random.Random, choosing: bool, late: bool) -> str:
    """At the next commit, or perhaps at the next of the other things that are written."""
    steps = ["", *["choosing "] * (choosing or late), *["asked "] * late]
    return draw.choice(steps) if len(steps) > 1 else ""


def _die() -> None:
    raise ProcessDied
