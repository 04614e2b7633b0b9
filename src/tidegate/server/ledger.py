"""The server's books: what was ordered, admitted and paid, each order once.

A client has one order at a time. Before the next one it replies, or says how far it got and that it
will no longer apply the order. The newest receipt therefore says what a client bought, paid and
holds, and the server refuses one that does not follow from the receipt before it.

A fleet may know a million clients and reach a thousand in a round. Sums over all clients are
updated with each account that changes. Money is counted in whole units of the smallest float, so
the sums are, to the last bit, what adding up all accounts would give.
"""

import logging
import math
from array import array
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from tidegate.admission.rule import RoundTotals
from tidegate.buffer import Holding
from tidegate.errors import WireError
from tidegate.server.account import Account, with_changes
from tidegate.wire import Introduction, Order, Receipt

BEGIN_AGAIN = "Delete its buffer file to begin again"
NOTHING = RoundTotals(admitted=0, spent=0.0, training_size=0, prior_uses=0, carried=0)
UNITS = 2**1074
"""Of one: every float is a whole number of them."""
MOST_HELD = 20_000
"""Accounts of a file that stay in memory after they were saved."""

logger = logging.getLogger(__name__)


def units(amount: float) -> int:
    """Convert an amount of money to a whole number, exactly."""
    number, parts = amount.as_integer_ratio()
    return number * (UNITS // parts)


@dataclass
class Sums:
    """Sums over all accounts, or over those of clients that are not retired (members)."""

    refunded: int = 0
    """In units, all accounts."""
    under_way: int = 0
    """Members', as all that follow."""
    under_way_spent: int = 0
    """In units."""
    empty_clients: int = 0
    health: dict[str, float] = field(default_factory=dict)
    """By name, what their newest receipts say."""

    def add(self, account: Account, sign: int = 1) -> None:
        """Add an account, or subtract it again."""
        newest = account.newest
        self.refunded += sign * (units(account.lost.refunded) + units(newest.refunded))
        if account.retired_in:
            return
        self.under_way += sign * newest.under_way
        self.under_way_spent += sign * units(newest.under_way_spent)
        self.empty_clients += sign * account.is_empty
        for name, value in newest.health.items():
            self.health[name] = self.health.get(name, 0) + sign * value


class Accounts:
    """Accounts by client: work for the clients that change, not for all.

    It tracks which accounts changed since they were last saved, and reads accounts in a file when
    they are needed.

    Args:
        read: reads an account that is not in memory, by the client's number; None if all are.
        known: clients whose accounts ``read`` returns, each with the capacity of its buffer, and
            how many of its samples train.
        sums: the sums over all of these.
    """

    def __init__(
        self,
        read: Callable[[int], Account] | None = None,
        known: Iterable[tuple[str, int, int]] = (),
        sums: Sums | None = None,
    ) -> None:
        self._read = read
        self.sums = sums or Sums()
        self._capacities = array("q")
        self._numbers: dict[str, int] = {}
        self.train_on: dict[str, int] = {}
        """The most samples that train in a round, of clients that do not train on all."""
        for client, capacity, train_on in known:
            if client in self._numbers:
                raise ValueError(f"client {client} has two accounts")
            self._numbers[client] = len(self._capacities)
            self._capacities.append(capacity)
            if train_on:
                self.train_on[client] = train_on
        self._held: dict[str, Account] = {}
        self.changed: dict[str, None] = {}
        """Clients whose accounts differ from what was saved."""
        self.ordered: dict[str, None] = {}
        """Those of which only the order may differ."""
        self.unanswered: dict[str, None] = {}
        """Clients that have not replied to an order."""
        self.waiting: dict[str, None] = {}
        """Members with purchases under way."""
        self.retired: dict[str, None] = {}

    def note(self, clients: Iterable[str], orders: Mapping[str, Order]) -> None:
        """Read the accounts of clients that wait for purchases, are retired, or owe a reply.

        Args:
            clients: the first two.
            orders: those without a reply, by client; ``read`` does not know them.
        """
        for client in {**dict.fromkeys(clients), **orders}:
            self._held[client] = with_changes(self[client], outstanding=orders.get(client))
            self._note(client, self._held[client])

    def __getitem__(self, client: str) -> Account:
        """Return the account of a client."""
        held = self._held.get(client)
        if held is None:
            if client not in self._numbers or self._read is None:
                raise WireError(f"no client {client!r} has an account")
            held = self._held[client] = self._read(self._numbers[client])
        return held

    def __setitem__(self, client: str, account: Account) -> None:
        """Set the account of a client."""
        number = self._numbers.get(client)
        if number is None:
            self._numbers[client] = len(self._capacities)
            self._capacities.append(account.buffer_capacity)
        else:
            self.sums.add(self[client], -1)
            self._capacities[number] = account.buffer_capacity
        if account.train_on:
            self.train_on[client] = account.train_on
        self.sums.add(account)
        self._held[client] = account
        self.changed[client] = None
        self._note(client, account)

    def send(self, client: str, order: Order) -> None:
        """Record an order for a client; nothing else in its account changes, and no sum."""
        self._held[client] = with_changes(self[client], outstanding=order)
        self.ordered[client] = None
        self.unanswered[client] = None

    def __contains__(self, client: object) -> bool:
        """Whether a client has an account."""
        return client in self._numbers

    def __iter__(self) -> Iterator[str]:
        """Yield every client that has an account, in the order in which they joined."""
        return iter(self._numbers)

    def __len__(self) -> int:
        """Return how many clients have an account."""
        return len(self._numbers)

    def number(self, client: str) -> int:
        """Return a client's place in the order in which they joined, from 0; it never changes."""
        return self._numbers[client]

    def capacity(self, client: str) -> int:
        """Return the capacity of a client's buffer."""
        number = self._numbers.get(client)
        return self[client].buffer_capacity if number is None else self._capacities[number]

    def saved(self, read: Callable[[int], Account]) -> None:
        """Note that all accounts are on disk, where ``read`` finds them; they may leave memory."""
        self.changed, self.ordered, self._read = {}, {}, read
        if len(self._held) > MOST_HELD:
            self._held = {client: self[client] for client in (*self.unanswered, *self.waiting)}

    def _note(self, client: str, account: Account) -> None:
        _keep(self.unanswered, client, is_in=account.outstanding is not None)
        _keep(self.waiting, client, is_in=account.newest.under_way > 0 and not account.retired_in)
        _keep(self.retired, client, is_in=account.retired_in > 0)


def _keep(names: dict[str, None], client: str, *, is_in: bool) -> None:
    if is_in:
        names[client] = None
    else:
        names.pop(client, None)


@dataclass(frozen=True)
class Booking:
    """What one receipt added to the books."""

    bought: int
    admitted: int
    spent: float
    """Committed, less refunds."""
    on_time: bool
    """Its round is still open; the money of a late one counts, but it trained on an old model."""


class Ledger:
    """Accounts of all clients, and what was booked since the last round was closed."""

    def __init__(
        self,
        run: str,
        accounts: Accounts | None = None,
        closed_round: int = 0,
        booked: RoundTotals = NOTHING,
    ) -> None:
        self.run = run
        self.accounts = Accounts() if accounts is None else accounts
        self.closed_round = closed_round
        self.booked = booked
        """Since the last round was closed."""
        self.earlier = dict[str, Holding]()
        """What clients brought from earlier runs, for the first plan."""

    def account(self, client: str) -> Account:
        """Return the account of a client."""
        return self.accounts[client]

    def __contains__(self, client: str) -> bool:
        """Whether a client has an account."""
        return client in self.accounts

    @property
    def clients(self) -> list[str]:
        """All clients with an account."""
        return list(self.accounts)

    @property
    def exposure(self) -> float:
        """What orders without a reply may turn out to have cost, for all clients."""
        return math.fsum(self.accounts[client].exposure for client in self.accounts.unanswered)

    @property
    def under_way(self) -> int:
        """Samples that clients of the fleet have bought and that have not arrived yet."""
        return self.accounts.sums.under_way

    @property
    def under_way_spent(self) -> float:
        """Committed for them."""
        return self.accounts.sums.under_way_spent / UNITS

    @property
    def health(self) -> dict[str, float]:
        """What clients report of themselves, by name, summed."""
        sums = self.accounts.sums.health
        return {name: sums[name] for name in sums if sums[name] and name != "waiting_since"}

    def oldest_under_way(self, round_number: int) -> int:
        """Return the rounds since the oldest purchase under way was bought, as clients say."""
        waiting = (
            self.accounts[client].newest.health.get("waiting_since", 0)
            for client in self.accounts.waiting
        )
        return round_number - int(min(filter(None, waiting), default=round_number))

    @property
    def refunded(self) -> float:
        """What suppliers have paid back, for all clients."""
        return self.accounts.sums.refunded / UNITS

    def welcome(
        self,
        introduction: Introduction,
        newest: Receipt | None,
        *,
        round_number: int,
        largest_buffer: int | None,
    ) -> None:
        """Add a client, and settle what it did without a receipt reaching the server.

        A new client gets an account. A client that has lost its buffer begins again. A client that
        cannot be told from another is refused, with the remedy.

        Args:
            introduction: who the client is, its capacity, and its buffer.
            newest: the last receipt of this buffer, if any.
            round_number: the next round, or the one under way.
            largest_buffer: the largest capacity that the server accepts from a client.
        """
        client, buffer_id = introduction.client, introduction.buffer_id
        fresh = Account(introduction.buffer_capacity, buffer_id, introduction.train_on)
        account = self.account(client) if client in self else fresh
        if account.retired_in:
            raise WireError(
                f"{client} was retired in round {account.retired_in}; to let it take part again, "
                f"run tidegate retire FOLDER {client} --undo"
            )
        _check_capacity(account, introduction, largest_buffer)
        if account.buffer_id == buffer_id:
            last_round = newest.round_number if newest else 0
            booked = account.newest.round_number
            if last_round < booked:
                raise WireError(
                    f"the buffer of {client} is an old copy: the server booked round "
                    f"{booked}, but the buffer has none after {last_round}. {BEGIN_AGAIN}"
                )
            if newest is not None and last_round != booked:
                self._settle_unheard(client, newest, round_number)
            self.open(client, introduction.buffer_capacity, buffer_id)
            self.void(client, last_round, introduction.void_round)
        elif newest is not None and account.lost.buffers and not account.buffer_id:
            raise WireError(
                f"{client} had an order without a reply when it was retired, and the server gave "
                f"up its buffer with that order. {BEGIN_AGAIN}"
            )
        elif newest is not None and newest.round_number < round_number:
            raise WireError(
                f"{client} came with another buffer than the newest that the server knows, and "
                f"with receipts up to round {newest.round_number} only: it is an older buffer that "
                f"was put back, or another device with the same name. {BEGIN_AGAIN}, or give the "
                "other device a name of its own"
            )
        elif newest is not None:
            raise self._unknown(client, newest, round_number)
        else:
            lost = self.begin_again(client, buffer_id)
            logger.warning(
                "%s has lost its buffer, with the receipts up to round %d. It begins again; %.4g "
                "that it may have paid without a reply is booked as spent",
                *(client, account.newest.round_number, lost),
            )
        self.introduce(client, introduction)

    def _settle_unheard(self, client: str, newest: Receipt, round_number: int) -> None:
        """Book what a client did in a closed round; the receipt of an open round is to come."""
        order = self.account(client).outstanding if client in self else None
        if order is None or order.round_number != newest.round_number:
            raise self._unknown(client, newest, round_number)
        if newest.round_number < round_number:
            try:
                self.book(client, newest)
            except WireError as refused:
                raise WireError(f"{refused}. {BEGIN_AGAIN}") from refused

    def _unknown(self, client: str, newest: Receipt, round_number: int) -> WireError:
        """Return why a receipt cannot be booked: the books are older, or of another run."""
        if 1 < round_number <= newest.round_number:
            return WireError(
                f"the server's books of run {self.run!r} end at round {round_number - 1}, and "
                f"{client} is at round {newest.round_number}: the server's folder is an older "
                "copy. Put the newer folder back, or start a new run under another name"
            )
        return WireError(
            f"{client} is at round {newest.round_number} of run {self.run!r}, which this server "
            "does not know: resume the run from its folder, or give the new run another name"
        )

    def open(self, client: str, buffer_capacity: int, buffer_id: str = "") -> None:
        """Open an account for a client; an existing one stays as it is."""
        if client not in self.accounts:
            self.accounts[client] = Account(buffer_capacity, buffer_id)

    def introduce(self, client: str, introduction: Introduction) -> None:
        """Note how far a client has read its stream, and how much it reads for an order."""
        account = self.account(client)
        after = account.introduced(introduction)
        if account.is_new and introduction.holding:
            self.earlier[client] = introduction.holding
        if introduction.candidates and introduction.read > after.newest.read:
            logger.warning(
                "%s reports %d samples read from its stream, more than its orders allow; the "
                "server ignores this count",
                *(client, introduction.read),
            )
        self.accounts[client] = after

    def begin_again(self, client: str, buffer_id: str = "") -> float:
        """Continue with a client that has lost its buffer and its books.

        What it may have paid for an order without a reply is unknown, so it is booked as spent. An
        order that is still on its way is for the lost buffer. The first new buffer is filled at
        once; later ones only as fast as samples are replaced in a buffer that was not lost, so that
        a client cannot gain money by losing buffers.

        Returns:
            The amount booked as spent.
        """
        account = self.account(client)
        lost = account.exposure
        self.accounts[client] = account.with_new_buffer(buffer_id)
        self.booked = replace(self.booked, spent=self.booked.spent + lost)
        return lost

    def is_retired(self, client: str) -> bool:
        """Return whether an operator has retired a client."""
        return client in self.accounts.retired

    @property
    def retired(self) -> int:
        """Clients that an operator has retired."""
        return len(self.accounts.retired)

    def retire(self, client: str, round_number: int) -> float:
        """Retire a client for good; doing so twice changes nothing.

        What it has spent stays in the books. An order without a reply is given up, with the buffer
        that it was for: what it may have cost is booked as spent.

        Args:
            client: the client, which gets no further orders.
            round_number: the first round in which it gets none.

        Returns:
            The amount booked as spent.
        """
        account = self.account(client)
        if account.retired_in:
            return 0.0
        lost = 0.0 if account.outstanding is None else self.begin_again(client)
        self.accounts[client] = replace(self.account(client), retired_in=round_number)
        return lost

    def reinstate(self, client: str) -> None:
        """Let a retired client introduce itself again; others are not affected."""
        self.accounts[client] = replace(self.account(client), retired_in=0)

    def void(self, client: str, last_round: int, void_round: int) -> None:
        """Drop an order that a client will never apply: one after its last, up to a round."""
        account = self.account(client)
        order = account.outstanding
        if order is not None and last_round < order.round_number <= void_round:
            self.accounts[client] = replace(account, outstanding=None)

    def send(self, client: str, order: Order) -> None:
        """Record an order before it is sent."""
        account = self.account(client)
        if order.run != self.run:
            raise WireError(f"the ledger is of run {self.run!r}, not {order.run!r}")
        if account.outstanding is not None:
            raise WireError(
                f"{client} has not replied to round {account.outstanding.round_number}; it needs "
                "to before it gets another order"
            )
        booked = account.newest.round_number
        if order.round_number <= booked:
            raise WireError(
                f"{client} has replied to round {booked} and cannot get an order for an earlier "
                "round"
            )
        self.accounts.send(client, order)

    def orders_of(
        self, round_number: int, clients: Sequence[str], reachable: Collection[str]
    ) -> dict[str, Order]:
        """Return the recorded orders of a round; clients without one wait for the next."""
        return {
            client: order
            for client in clients
            if client in reachable
            and (order := self.account(client).outstanding) is not None
            and order.round_number == round_number
        }

    def book(self, client: str, receipt: Receipt) -> Booking:
        """Book a receipt; one booked before adds nothing, an impossible one is refused."""
        account = self.account(client)
        before = account.newest
        if receipt.run != self.run:
            raise WireError(f"the receipt of {client} is for run {receipt.run!r}")
        if receipt.round_number <= before.round_number:
            return Booking(0, 0, 0.0, on_time=False)
        order = account.outstanding
        if account.retired_in:
            raise WireError(
                f"{client} was retired in round {account.retired_in}, and what it may have paid "
                f"for round {receipt.round_number} is already booked as spent"
            )
        if order is None or order.round_number != receipt.round_number:
            raise WireError(f"{client} was not sent an order for round {receipt.round_number}")
        try:
            after = account.after(receipt)
        except WireError as refused:
            raise WireError(f"the receipt of {client} is refused: {refused}") from None
        set_aside = receipt.health.get("set_aside", 0)
        if set_aside > before.health.get("set_aside", 0):
            logger.warning(
                "%s set aside samples that it could not read, acquire or store: %d in all; its "
                "own log and its buffer name them",
                *(client, set_aside),
            )
        booking = Booking(
            bought=receipt.bought - before.bought,
            admitted=receipt.admitted - before.admitted,
            spent=after.paid - account.paid,
            on_time=receipt.round_number > self.closed_round,
        )
        self.accounts[client] = after
        self.booked = _plus(self.booked, booking, receipt)
        return booking

    def close_round(self, round_number: int) -> RoundTotals:
        """Return what the fleet did since the last call, for a rule's ``settle``.

        Money and samples of late receipts count. What they trained on does not, because late models
        are not averaged. From now on a receipt of this round is late.
        """
        if round_number <= self.closed_round:
            raise ValueError(
                f"round {round_number} is closed already; the last closed round is "
                f"{self.closed_round}"
            )
        totals, self.booked = self.booked, NOTHING
        self.closed_round = round_number
        return totals


def _check_capacity(account: Account, introduction: Introduction, largest: int | None) -> None:
    """Refuse a capacity that has changed, or that is above the limit."""
    client, capacity = introduction.client, introduction.buffer_capacity
    if largest is not None and capacity > largest:
        raise WireError(
            f"{client} reports a capacity of {capacity} samples, above the limit of {largest}; "
            "raise largest_buffer if the capacity is right"
        )
    if account.buffer_capacity != capacity:
        raise WireError(
            f"{client} now has a capacity of {capacity}, but had {account.buffer_capacity} "
            "before; a capacity cannot change within a run, so restore it or start a new run"
        )
    if account.train_on != introduction.train_on:
        raise WireError(
            f"{client} now trains on {introduction.train_on or 'all'} of its samples, but trained "
            f"on {account.train_on or 'all'} before; restore it, or start a new run"
        )


def _plus(totals: RoundTotals, booking: Booking, receipt: Receipt) -> RoundTotals:
    """Return the sums with one more receipt; what a late one trained on does not count."""
    trained = int(booking.on_time)
    return RoundTotals(
        admitted=totals.admitted + booking.admitted,
        spent=totals.spent + booking.spent,
        training_size=totals.training_size + trained * receipt.occupancy,
        prior_uses=totals.prior_uses + trained * (receipt.uses - receipt.occupancy),
        carried=totals.carried + trained * (sum(receipt.holding) - receipt.expiring),
        bought=totals.bought + booking.bought,
    )
