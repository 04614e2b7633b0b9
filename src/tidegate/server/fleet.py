"""The clients of a running fleet, the policy made for them, and the room that each has.

When clients join or leave, the plan follows. A client that was offline for K rounds has left: the
plan no longer counts its memory, and its samples wait until it comes back. If samples do not
expire, no client leaves; Tide spends on those that take part, also with a cap on uses.
"""

import logging
import math
from collections.abc import (
    Callable,
    Collection,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
    Set,
)
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from types import MappingProxyType
from typing import Any

import numpy as np

from tidegate._internal.arrays import EVERYONE, FloatArray, IntArray, Members
from tidegate.admission.allocation import Allocation
from tidegate.admission.rule import GrantedRule, Quote
from tidegate.buffer import without_oldest
from tidegate.cohorts import Cohorts, share_reached
from tidegate.errors import ConfigurationError, SupplierError, TidegateError
from tidegate.policies import JointPolicy
from tidegate.prices import FarSightedFeed, PriceFeed, check_length, check_mean, fed_price
from tidegate.problem import EarlierSamples, LearningConstants, Problem
from tidegate.server.ledger import Ledger
from tidegate.server.shards import Purse
from tidegate.wire import LARGEST_AMOUNT, NO_LIMIT, Order, Retention

ROUNDING = 1e-9
"""Slots; what a division may lose."""
MOST_AHEAD = 512
"""Rounds whose prices a feed is asked for in advance."""
SHOWN = 3
"""Names of clients in a message."""
SELDOM = 50
"""Rounds. A client that buys less than a sample in so many is hardly there."""
TOO_LARGE = 100
"""Times the median capacity: more than that is perhaps a typing error."""
RARE = (
    f"clients that can buy less than one sample in {SELDOM} rounds: %s. Each gets its part of the "
    "budget by its capacity: raise the budget, or make capacities more alike"
)
LARGE = (
    f"clients with more than {TOO_LARGE} times the median capacity: %s. They get as many times the "
    "budget: check their buffer_capacity"
)
BY_NAME = (
    "prices are by client name: the SuperNode's registered name, or tidegate-client in its "
    "node-config, or partition-N for its partition-id"
)
NO_PRICE = f"no order for %s in round %d: the price feed only knows %s; {BY_NAME}"
NOBODY: Mapping[str, int] = MappingProxyType({})

logger = logging.getLogger(__name__)


def planned_slots(capacity: float, headroom: float) -> int:
    """Return the slots to plan with if some are left for peaks; at least one.

    >>> planned_slots(40, headroom=4.0)
    10
    """
    return max(int(capacity / headroom + ROUNDING), 1)


@dataclass(frozen=True, kw_only=True)
class Terms:
    """The terms of a run, whichever clients take part."""

    policy: Callable[[Problem], JointPolicy[Any]]
    """Makes the policy for a fleet, and makes it again when clients join or leave."""
    policy_name: str
    """Its name; a resumed run must have the same."""
    options: Mapping[str, Any] = field(default_factory=dict)
    """The policy's settings; a resumed run must have the same."""
    budget: float
    """C; of a shard, about what it will be granted."""
    prices: PriceFeed
    num_rounds: int
    """T."""
    fraction_train: float = 1.0
    """q: the part of the fleet that a round is meant to reach."""
    min_train_nodes: int = 1
    """Clients that it reaches in any case."""
    headroom: float = 1.0
    """Slots that each client has for every slot that is planned for."""
    endless: bool = False
    """Whether the policy ignores T, so that a resumed run may have another."""
    learning: LearningConstants = field(default_factory=LearningConstants)
    largest_buffer: int | None = None
    """The largest capacity that the server accepts; each client's part of all orders goes by
    capacity."""
    spend_ahead: float | None = None
    """s, the rounds whose budget may be spent early, whatever the policy; None for no limit but the
    policy's own."""
    purse: Purse | None = None
    """What a shard is granted each round, in place of the budget."""
    sums_only: bool = False
    """Whether decisions depend only on sums over the fleet: no client's order depends on the
    reports of a single client. A client without room then admits fewer samples than it is asked
    for."""

    def __post_init__(self) -> None:
        check_length(self.prices, self.num_rounds)
        check_mean(self.prices, self.num_rounds)
        if self.budget * self.num_rounds > LARGEST_AMOUNT:
            raise ConfigurationError(
                f"a budget of {self.budget:g} in each of {self.num_rounds} rounds is more than a "
                f"receipt can hold, {LARGEST_AMOUNT:g} in all; count money in another unit"
            )

    def share_of(self, clients: int) -> float:
        """Return the part of so many clients that a round reaches."""
        return share_reached(clients, self.fraction_train, self.min_train_nodes)

    def fixed(self) -> dict[str, Any]:
        """Return the terms that must be the same when a run is resumed."""
        fixed = {
            "budget": self.budget,
            "policy": self.policy_name,
            "options": dict(self.options),
            "headroom": self.headroom,
            "shard": None if self.purse is None else [self.purse.run, self.purse.shard],
            "learning": asdict(self.learning),
            "fraction_train": self.fraction_train,
            "min_train_nodes": self.min_train_nodes,
            "sums_only": self.sums_only,
            "spend_ahead": self.spend_ahead,
        }
        if self.endless:
            return {**fixed, "num_rounds": None, "mean_price": None}
        return {
            **fixed,
            "num_rounds": self.num_rounds,
            "mean_price": self.prices.mean(self.num_rounds),
        }


class Roster:
    """Which clients the policy plans for, by number, and for how long each has been offline.

    Clients are sorted by name, the same on every engine and in every process.

    A round costs what changes: names are compared as sets, and absences are counted from the last
    time that a client was online.

    Args:
        clients: the clients in the plan, sorted by name.
        away: those of them that were offline the last time, with the last look that found each.
        looks: how many times the server looked who is online; once a round.
    """

    def __init__(
        self, clients: Iterable[str] = (), away: Mapping[str, int] = NOBODY, looks: int = 0
    ) -> None:
        self.places = {client: number for number, client in enumerate(clients)}
        """Clients by name, with their numbers."""
        self.looks = looks
        self._away = dict(away)
        self.moved: dict[str, None] = {}
        """Clients that went offline or came back since this was saved."""
        self.is_replanned = False
        """Whether clients were added or removed since this was saved."""
        self._seen: list[str] | None = None
        """Clients that were online the last time, if all were known and nobody else came. Mostly
        the same names come again, as the same objects: such lists are compared fast."""

    @property
    def absences(self) -> dict[str, int]:
        """Return the rounds since each client was last online."""
        return {client: self.looks - self._away.get(client, self.looks) for client in self.places}

    @property
    def away(self) -> Mapping[str, int]:
        """Clients that were offline the last time, and the last look that found each."""
        return self._away

    def saved(self) -> None:
        """Note that everything is on disk."""
        self.moved, self.is_replanned = {}, False

    def look(self, present: Collection[str], online: Collection[str]) -> set[str]:
        """Note who is online; return those that are not in the plan yet."""
        seen, chosen, known = list(online), set(present), self.places.keys()
        self.looks += 1
        if seen == self._seen and chosen <= known and chosen.isdisjoint(self._away):
            return set()  # the same as last time
        here = {*seen, *chosen}
        missing = {client for client in known if client not in here}
        for client in self._away.keys() - missing:
            del self._away[client]
            self.moved[client] = None
        for client in sorted(missing - self._away.keys()):
            self._away[client] = self.looks - 1
            self.moved[client] = None
        new = here - known
        self._seen = seen if not new and chosen <= set(seen) else None
        return new

    def absent_for(self, horizon: Callable[[int], int]) -> set[str]:
        """Return clients that were offline for as many rounds as the horizon of their number."""
        return {
            client
            for client, since in self._away.items()
            if self.looks - since >= horizon(self.places[client])
        }

    def changed(self, new: Set[str], gone: Set[str]) -> list[str] | None:
        """Return the clients to plan for from now on, or None if they are the same.

        If all have left, they stay in the plan until a client joins.
        """
        known = self.places.keys()
        if not (known or new):
            raise ConfigurationError(
                "no client can take part; the log says why each node was left out"
            )
        if len(gone) == len(known) and not new:
            gone = frozenset()
        return sorted((known - gone) | new) if new or gone else None

    def replace(self, clients: list[str]) -> None:
        """Plan for these clients; those that stay keep their absences."""
        others = self.places.keys() ^ set(clients)
        self.is_replanned = True
        self.moved |= dict.fromkeys(self._away.keys() & others)
        self.places = {client: number for number, client in enumerate(clients)}
        self._seen = None
        self._away = {
            client: since for client, since in self._away.items() if client in self.places
        }


class Fleet:
    """The clients in the plan, sorted by name."""

    def __init__(self, terms: Terms, ledger: Ledger, roster: Roster | None = None) -> None:
        self.terms = terms
        self.ledger = ledger
        self.roster = roster or Roster()
        self._policy: JointPolicy[Any] | None = None
        self.allocation: Allocation | None = None
        """None before the first plan."""
        self._warned = dict[str, str]()

    @property
    def clients(self) -> list[str]:
        """All clients, in an order that is the same on every engine and in every process."""
        return list(self.roster.places)

    def __len__(self) -> int:
        """Return how many clients are in the plan."""
        return len(self.roster.places)

    @property
    def policy(self) -> JointPolicy[Any]:
        """The policy for the present fleet."""
        if self._policy is None:
            terms, earlier = self.terms, self.ledger.earlier
            capacities = {client: self.planned_capacity(client) for client in self.roster.places}
            held = {client: earlier.get(client, ()) for client in capacities if earlier}
            uses = [
                (0, *without_oldest(ages, max(sum(ages) - capacities[client], 0)))
                for client, ages in held.items()
            ]
            training = capacities | self.ledger.accounts.train_on
            problem = Problem(
                buffer_capacities=list(capacities.values()),
                train_on=[training[client] for client in capacities],
                budget=terms.budget,
                mean_price=terms.prices.mean(terms.num_rounds),
                num_rounds=terms.num_rounds,
                cohorts=Cohorts(fraction_train=terms.share_of(len(self))),
                learning=terms.learning,
                earlier=EarlierSamples(stored=uses),
            )
            policy, clients = terms.policy(problem), len(self)
            rules = {policy.retention.for_client(place, clients)[0] for place in range(clients)}
            if "oldest_first" in rules and terms.headroom > 1:
                raise ConfigurationError(
                    f"{terms.policy_name} keeps every slot full, so a headroom of "
                    f"{terms.headroom} has no effect; leave it out"
                )
            if terms.purse is not None and not isinstance(policy.admission, GrantedRule):
                raise ConfigurationError(
                    f"{terms.policy_name} cannot be sharded: it does not say what money is worth; "
                    "use tide"
                )
            if policy.charge_prefill and terms.spend_ahead is not None:
                raise ConfigurationError(
                    f"{terms.policy_name} pays for samples before round 1, whatever they cost, "
                    f"but spending ahead is limited to {terms.spend_ahead} rounds' budget; leave "
                    "out charge_prefill, or set spend_ahead=None"
                )
            self._policy = policy
        return self._policy

    @property
    def ahead(self) -> float | None:
        """Rounds whose budget may be spent early; None for no limit."""
        limits = self.terms.spend_ahead, self.policy.spend_ahead
        return min((limit for limit in limits if limit is not None), default=None)

    @property
    def away(self) -> int:
        """Clients in the plan that were offline when the last round began."""
        return len(self.roster.away.keys() - self.ledger.accounts.retired.keys())

    def see(self, present: Collection[str], online: Collection[str]) -> None:
        """Add new clients, and remove those that are retired or were offline for K rounds."""
        retired = self.ledger.accounts.retired.keys()
        new, gone = self.roster.look(present, online) - retired, retired & self.roster.places.keys()
        if self.roster.away and self.retention(0)[0] == "k_step":  # or nobody's samples expire
            gone |= self.roster.absent_for(self._rounds_kept)
        clients = self.roster.changed(new, gone)
        if clients is not None:
            self._replan(clients)

    def _rounds_kept(self, number: int) -> int:
        """Return the rounds after which all samples of an offline client are too old."""
        retention, horizon = self.retention(number)
        return horizon if retention == "k_step" else NO_LIMIT

    def retention(self, number: int) -> tuple[Retention, int]:
        """Return the retention rule and K of a client."""
        return self.policy.retention.for_client(number, len(self))

    def members(self, chosen: Collection[str]) -> list[tuple[int, str]]:
        """Return the clients that take part, each with its number in the fleet."""
        retired, places = self.ledger.is_retired, self.roster.places
        return sorted(
            (places[client], client)
            for client in chosen
            if client in places and not retired(client)
        )

    def slots(self, members: Sequence[tuple[int, str]]) -> int:
        """Return the planned slots of these clients."""
        return sum(self.planned_capacity(client) for _, client in members)

    def numbers(self, members: Sequence[tuple[int, str]]) -> Members:
        """Return the indices of clients in the fleet."""
        if len(members) == len(self):
            return EVERYONE
        return np.array([number for number, _ in members], dtype=np.int64)

    def order(
        self,
        round_number: int,
        client: str,
        price: float,
        count: int = NO_LIMIT,
        thresholds: tuple[float, ...] = (),
        *,
        paused: bool = False,
    ) -> Order:
        """Return a client's order; a buffer that never changes is filled before round 1."""
        retention, horizon = self.retention(self.roster.places[client])
        if retention == "frozen":
            count = 0 if paused else self.first_fill(client)
            price = price if self.policy.charge_prefill else 0.0
        order = Order(
            run=self.ledger.run,
            round_number=round_number,
            price=price,
            retention=retention,
            retention_horizon=horizon,
            count=count,
            thresholds=thresholds,
        )
        return self.ledger.account(client).within_losses(order)

    def room_of(self, client: str) -> int:
        """Return how many samples a client can buy beside those that it must keep."""
        slots = self.planned_capacity(client)
        if self.retention(self.roster.places[client])[0] == "oldest_first":
            return slots
        return max(slots - self.held_by(client), 0)

    def held_by(self, client: str) -> int:
        """Return the samples in a client's plan that its next order leaves there."""
        retention, horizon = self.retention(self.roster.places[client])
        until = math.inf if retention == "frozen" else horizon or math.inf
        return sum(self.ledger.account(client).kept(until))

    def first_fill(self, client: str) -> int:
        """Return how many samples fill a buffer that never changes, before its first round."""
        if self.terms.sums_only:
            return self.planned_capacity(client)  # a full one admits nothing
        account = self.ledger.account(client)
        return 0 if account.admitted or account.newest.under_way else self.room_of(client)

    def quote(
        self, round_number: int, members: list[tuple[int, str]]
    ) -> tuple[Quote, list[tuple[int, str]]]:
        """Return what a sample costs these clients in a round, and those that have a price.

        Where no client takes part, it is what a sample costs the whole fleet.
        """
        quoted = members or [(number, client) for client, number in self.roster.places.items()]
        clients = [client for _, client in quoted]
        price = _asked_price(self.terms.prices, round_number, clients)
        if isinstance(price, Mapping):
            quoted = [(number, client) for number, client in quoted if client in price]
            members = quoted if members else []
            own = [fed_price(price[client], round_number, client) for _, client in quoted]
            shares = self.policy.shares[self.numbers(quoted)]
            quote = Quote.of(np.array(own, dtype=np.float64), shares)
        else:
            ahead = _known_prices(self.terms.prices, round_number)
            quote = Quote(fed_price(price, round_number), ahead=ahead)
        if self.retention(0)[0] == "oldest_first":
            empty = sum(self._empty_slots(client) for _, client in members)
            quote = replace(quote, empty_slots=empty)
        return quote, members

    def _empty_slots(self, client: str) -> int:
        """Return the slots that a client can fill, if samples stay until others replace them."""
        account = self.ledger.account(client)
        if account.newest.is_dry:
            return 0
        return max(self.planned_capacity(client) - self.held_by(client), 0)

    def planned_capacity(self, client: str) -> int:
        """Return B_m: all slots of a client, unless some are left for peaks."""
        return planned_slots(self.ledger.accounts.capacity(client), self.terms.headroom)

    def _replan(self, clients: list[str]) -> None:
        """Plan for another fleet; clients that stay keep the fractions that they are owed."""
        old, before = self.allocation, self.roster.places
        self._policy = None
        self.roster.replace(clients)
        shares = self.policy.shares
        self._warn_of_uneven_parts()
        if old is None:
            self.allocation = Allocation.start(shares)
            return
        owed = old.unserved
        kept = [float(owed[before[client]]) if client in before else 0.0 for client in clients]
        self.allocation = Allocation.start(shares, np.array(kept))

    def _warn_of_uneven_parts(self) -> None:
        """Name clients whose part of the budget is almost nothing, or almost all."""
        clients = self.clients
        capacities = np.array([self.planned_capacity(client) for client in clients])
        shares, price = self.policy.shares, self.terms.prices.mean(self.terms.num_rounds)
        rare = (shares > 0) & (self.terms.budget * shares < price / SELDOM)
        large = capacities > TOO_LARGE * np.median(capacities)
        for chosen, warning in ((rare, RARE), (large, LARGE)):
            names = _some(clients[place] for place in np.flatnonzero(chosen))
            if chosen.any() and self._warned.get(warning) != names:
                logger.warning(warning, names)
                self._warned[warning] = names


class FleetStock:
    """What the clients of one round hold, by their newest receipts.

    If decisions depend only on sums, every client counts as if its buffer were to be filled anew,
    and nothing is reserved for any.
    """

    def __init__(self, fleet: Fleet, clients: Sequence[str], round_number: int) -> None:
        self._fleet = fleet
        self._clients = clients
        self._round_number = round_number
        self._by_sums = fleet.terms.sums_only

    def room(self) -> IntArray:
        """Return how many samples each can buy within its capacity."""
        of_client = self._fleet.planned_capacity if self._by_sums else self._fleet.room_of
        return np.array([of_client(client) for client in self._clients], dtype=np.int64)

    def total_room(self) -> float:
        """Return how many samples all can buy within their capacities."""
        room = np.array([self._fleet.room_of(client) for client in self._clients], dtype=np.int64)
        places = [self._fleet.roster.places[client] for client in self._clients]
        return float(room[self._fleet.policy.shares[places] > 0].sum())

    def wanted(self, thresholds: Sequence[float], prices: FloatArray) -> IntArray:
        """Return how many samples each buys under a rule by age, at its own price."""
        if self._by_sums:
            return self.room()
        wanted = []
        for client, price in zip(self._clients, prices.tolist(), strict=True):
            order = self._fleet.order(
                self._round_number, client, price, thresholds=tuple(thresholds)
            )
            wanted.append(self._fleet.ledger.account(client).most_bought(order))
        return np.array(wanted, dtype=np.int64)

    def reserves(self) -> tuple[FloatArray, IntArray, IntArray]:
        """Return what each has paid, how many samples it holds, and the most reserved for it."""
        accounts = [self._fleet.ledger.account(client) for client in self._clients]
        reserved = [
            0 if self._by_sums else 1 if account.newest.is_dry else account.buffer_capacity
            for account in accounts
        ]
        return (
            np.array([account.paid for account in accounts], dtype=np.float64),
            np.array([self._fleet.held_by(client) for client in self._clients], dtype=np.int64),
            np.array(reserved, dtype=np.int64),
        )


def _asked_price(
    feed: PriceFeed, round_number: int, clients: Sequence[str]
) -> float | Mapping[str, float]:
    """Return what a sample costs in a round: one price for all, or one for each known client."""
    with _naming_the_feed(round_number):
        price = feed.at(round_number, clients)
    if isinstance(price, Mapping):
        unknown = [client for client in clients if client not in price]
        if unknown:
            logger.warning(NO_PRICE, _some(unknown), round_number, _some(price))
        if len(unknown) == len(clients):
            raise SupplierError(
                "the price feed",
                f"has no price for {_some(unknown)} in round {round_number}, only for "
                f"{_some(price)}; {BY_NAME}",
            )
    return price


def _known_prices(feed: PriceFeed, round_number: int) -> tuple[float, ...]:
    """Return the prices of the next rounds that the feed knows; none if it cannot say."""
    if not isinstance(feed, FarSightedFeed):
        return ()
    with _naming_the_feed(round_number):
        known = list(feed.known(round_number, MOST_AHEAD))[:MOST_AHEAD]
    return tuple(fed_price(price, round_number + n) for n, price in enumerate(known, start=1))


def _some(names: Iterable[object]) -> str:
    """Return the first names, and whether there are more."""
    shown = [repr(name) for name in names]
    return ", ".join(shown[:SHOWN]) + (" and others" if len(shown) > SHOWN else "") or "nobody"


@contextmanager
def _naming_the_feed(round_number: int) -> Iterator[None]:
    """Name the feed and the round if the user's feed fails."""
    try:
        yield
    except TidegateError:
        raise
    except Exception as wrong:
        reason = f"failed in round {round_number} with {type(wrong).__name__}: {wrong}"
        raise SupplierError("the price feed", reason) from wrong
