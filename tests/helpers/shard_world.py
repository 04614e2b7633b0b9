"""Shards that meet under schedules of faults by number; everything else is the real code."""

import math
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from meetings import record_of, settled

from tidegate.errors import RunDiffersError, SupplierError
from tidegate.server.fleet_round import FleetRound
from tidegate.server.shards import Grant, Meeting, MeetingView, Membership, Report, Shard
from tidegate.server.shards.coordinator import KEPT_BACK, UNITS
from tidegate.server.shards.meeting import Registration, Visit

BUDGET = 30.0
LONGEST = 120.0
"""Seconds until a network that works has answered."""
AWAY = SupplierError("the network", "is away")


class Network:
    """Between shards and their meeting place; what is to go wrong next is set from outside."""

    def __init__(self, meeting: Meeting) -> None:
        self.meeting = meeting
        self.is_down = False
        self.fault = ""
        self.late: list[Visit] = []

    def register(self, given: Registration) -> int:
        if self.is_down:
            raise AWAY
        return self.meeting.register(given)

    def look(self, run: str) -> MeetingView:
        return self.meeting.look(run)

    def exchange(self, visit: Visit) -> Grant:
        if self.is_down or self.fault == "lost question":
            raise AWAY
        if self.fault == "late":
            self.late.append(visit)
            raise AWAY
        grant = self.meeting.exchange(visit)
        if self.fault == "doubled":
            self.meeting.exchange(visit)
        if self.fault == "lost answer":  # as if the shard had died between commit and reading
            raise AWAY
        return grant

    def deliver(self) -> None:
        """A connection that was given up comes to its end."""
        if self.late and not self.is_down:
            self.meeting.exchange(self.late.pop(0))


@dataclass
class Server:
    """A shard's server: its books, which survive it, and its membership, which does not."""

    name: str
    folder: Path
    network: Network
    slots: dict[str, int]
    run: str
    earned: float = 0.0
    """Budgets of all rounds before, as its books have it."""
    counted: float = 0.0
    """The same, as an onlooker has it."""
    spent: float = 0.0
    rounds: list[FleetRound] = field(default_factory=list)
    wish: float = 1.0
    membership: Membership | None = None
    has_books: bool = False

    @property
    def now(self) -> int:
        return len(self.rounds) + 1

    def start(self) -> bool:
        """Start, also again; whether it could."""
        shard = Shard(self.name, self.slots, self.network, patience=60.0)
        membership = Membership(shard, self.run, BUDGET, self.folder)
        try:
            membership.join(self.rounds if self.has_books else None)
        except SupplierError:
            return False
        self.membership, self.has_books = membership, True
        return True

    def meet(self) -> None:
        assert self.membership is not None
        news = None
        if self.rounds:
            told = {"spends": self.wish, "shadow_price": 1.0, "round_number": self.now - 1}
            news = Report(run=self.run, shard=self.name, **told)  # type: ignore[arg-type]
        self.membership.meet(self.now, news, self.rounds)

    def meet_surely(self) -> None:
        """Meet where nothing goes wrong; a busy machine may be too slow some times."""
        assert self.membership is not None
        until = time.monotonic() + LONGEST
        while time.monotonic() < until:
            self.meet()
            if self.membership.purse.grant.first_round >= self.now:
                return
        raise TimeoutError("nobody answers on a network that works")

    def play(self, part: float) -> None:
        """Count on what there is, and spend a part of what is saved; then all is on disk."""
        assert self.membership is not None
        budget = self.membership.purse.budget(self.now, self.earned)
        self.earned, self.counted = self.earned + budget, self.counted + budget
        spent = part * max(self.earned - self.spent, 0.0)
        self.spent += spent
        self.rounds.append(settled(self.now, spent, overspend=self.spent - self.earned))

    def die(self) -> None:
        self.membership = None


class World:
    """Two to four shards under a schedule."""

    def __init__(self, number: int, meeting: Meeting, folder: Path) -> None:
        self.draw = np.random.default_rng(number)
        self.run = f"{folder.name}-{number}"
        self.network = Network(meeting)
        slots = {f"s{n}": int(self.draw.integers(1, 50)) for n in range(self.draw.integers(2, 5))}
        self.servers = []
        for name in slots:
            place = folder / f"{number}-{name}"
            place.mkdir()
            self.servers.append(Server(name, place, self.network, slots, self.run))
        self.folder, self.impostors = folder, list[Server]()
        self.met: set[str] = set()
        """Faults that happened."""
        self.most = 0
        """The highest round that anybody has begun."""

    def chance(self, probability: float) -> bool:
        return bool(self.draw.random() < probability)

    def step(self) -> None:
        """A turn of every server; some are faster than others."""
        network = self.network
        if self.chance(0.15):
            network.is_down = not network.is_down
            self.met.add("away")
        if self.chance(0.3) and network.late:
            network.deliver()
        if self.chance(0.25):
            self._pretend()
        if self.chance(0.3):
            self._at_once()
        for server in self.servers:
            if self.chance(0.25):
                continue
            if self.chance(0.1):
                server.die()
                self.met.add("died")
            faults = ("lost question", "lost answer", "late", "doubled")
            network.fault = str(self.draw.choice(faults)) if self.chance(0.4) else ""
            self.met.add(network.fault)
            self._turn(server)
            network.fault = ""

    def _turn(self, server: Server) -> None:
        server.wish = float(self.draw.uniform(0, 20))
        if server.membership is None and not server.start():
            return
        server.meet()
        self.most = max(self.most, server.now)
        if self.chance(0.05):  # between the grant and the books
            server.die()
            return
        server.play(float(self.draw.uniform(0, 1)))

    def _at_once(self) -> None:
        """All that are there come to the same new round at the same time."""
        front = [one for one in self.servers if one.membership is not None]
        if self.network.is_down or len(front) < 2:
            return
        for one in front:
            one.wish = float(self.draw.uniform(0, 20))
            while one.now < max(other.now for other in front):
                one.play(0.5)  # rounds in which nobody could be reached
        ready = threading.Barrier(len(front))

        def come(server: Server) -> None:
            ready.wait()
            server.meet()

        with ThreadPoolExecutor(len(front)) as pool:
            list(pool.map(come, front))
        self.met.add("at once")
        self.most = max(self.most, front[0].now)
        self.check_record()  # what comes later would make good for much that is wrong here
        for one in front:
            one.play(float(self.draw.uniform(0, 1)))

    def _pretend(self) -> None:
        """Somebody starts a second server under a name that is taken, with a folder of its own."""
        real = self.servers[int(self.draw.integers(len(self.servers)))]
        if self.network.is_down or not real.has_books:
            return
        place = Path(tempfile.mkdtemp(prefix=f"{self.run}-{real.name}-false-", dir=self.folder))
        false = Server(real.name, place, self.network, real.slots, self.run, has_books=True)
        self.met.add("pretended")
        try:
            false.start()
        except RunDiffersError:
            return
        self.impostors.append(false)
        for _ in range(self.most):
            false.meet()
            false.play(1.0)

    def check(self) -> None:
        """No more was ever counted on, or promised, than there was, to the last unit."""
        everybody = [*self.servers, *self.impostors]
        assert math.fsum(one.counted for one in everybody) <= BUDGET * self.most
        assert all(one.spent <= one.earned * (1 + 1e-12) for one in everybody)
        purses = [one.membership.purse for one in everybody if one.membership is not None]
        for now in range(self.most, self.most + 5):
            assert math.fsum(one.grant.until(now) for one in purses) <= BUDGET * now

    def check_record(self) -> None:
        """The division adds up in whole units, and takes back nothing that a shard was told."""
        if not self.most:
            return
        record = record_of(self.network.meeting, self.run)
        known, unit = record["shards"], BUDGET / UNITS * (1 - KEPT_BACK)
        assert sum(one["before"] for one in known.values()) <= UNITS * (record["now"] - 1)
        for place, left in enumerate(record["left"]):
            assert sum(one["budgets"][place] for one in known.values()) + left <= UNITS
        for server in self.servers:
            if server.membership is not None:
                mine, amount = known[server.name], 0.0
                for place, _ in enumerate(mine["budgets"]):
                    amount = (mine["before"] + sum(mine["budgets"][: place + 1])) * unit
                    told = server.membership.purse.grant.until(record["now"] + place)
                    assert told <= amount * (1 + 1e-12), "what was granted is taken back"

    def calm_down(self) -> None:
        """Once everything works again, all money is there, where it is worth most, and booked."""
        self.network.is_down, self.network.fault = False, ""
        while self.network.late:
            self.network.deliver()
        first = self.servers[0]
        for one in self.servers:
            if one.membership is None:
                assert one.start()
            while one.now <= self.most:
                one.meet_surely()
                one.play(1.0)
        for _ in range(self.most // 2 + 10):  # longer than anything is promised ahead
            for one in self.servers:
                one.wish = 1000.0 if one is first else 1.0
                one.meet_surely()
                one.play(1.0)
            self.most += 1
            self.check()
        self.check_record()
        for one in self.servers:
            assert one.membership is not None
            one.membership.leave(None, one.rounds)
            assert one.membership._posted == len(one.rounds)
        view = self.network.look(self.run)
        assert math.isclose(view.granted, BUDGET * self.most, rel_tol=1e-9)
        for one, told in zip(self.servers, view.shards, strict=True):
            booked = math.fsum(row.spent for row in one.rounds)
            assert math.isclose(told.spent, booked, rel_tol=1e-12)
            assert told.round_number == len(one.rounds)
        assert math.isclose(
            math.fsum(one.counted for one in self.servers), BUDGET * self.most, rel_tol=1e-9
        )
        part = first.slots[first.name] / sum(first.slots.values())
        last = first.membership.purse.rate(self.most) / BUDGET if first.membership else 0.0
        assert last > 0.85 * min(1.0, 10 * part), "money does not go where it is worth most"


def play_schedule(number: int, meeting: Meeting, folder: Path, steps: int = 10) -> World:
    """A schedule, from which everything follows but the order of threads."""
    world = World(number, meeting, folder)
    for _ in range(steps):
        world.step()
        world.check()
        world.check_record()
    if world.most:
        world.calm_down()
    return world
