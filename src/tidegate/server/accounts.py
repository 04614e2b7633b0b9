"""The accounts of all clients, with their sums: work for the clients that change, not for all.

A fleet may know a million clients and reach a thousand in a round. Sums over all clients are
updated with each account that changes. Money is counted in whole units of the smallest float, so
the sums are, to the last bit, what adding up all accounts would give. The class tracks which
accounts changed since they were last saved, and reads accounts in a file when they are needed.
"""

from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from tidegate._internal.replacing import with_changes
from tidegate.errors import WireError
from tidegate.server.account import Account
from tidegate.wire import Order

UNITS = 2**1074
"""Of one: every float is a whole number of them."""
MOST_HELD = 20_000
"""Accounts of a file that stay in memory after they were saved."""


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
    """Accounts by client.

    Args:
        read: reads an account that is not in memory, by the client's number; None if all are.
        known: clients whose accounts ``read`` returns, each with the capacity of its buffer.
        sums: the sums over all of these.
    """

    def __init__(
        self,
        read: Callable[[int], Account] | None = None,
        known: Iterable[tuple[str, int]] = (),
        sums: Sums | None = None,
    ) -> None:
        self._read = read
        self.sums = sums or Sums()
        self._capacities = array("q")
        self._numbers: dict[str, int] = {}
        for client, capacity in known:
            if client in self._numbers:
                raise ValueError(f"client {client} has two accounts")
            self._numbers[client] = len(self._capacities)
            self._capacities.append(capacity)
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
            self._held = {one: self[one] for one in (*self.unanswered, *self.waiting)}

    def _note(self, client: str, account: Account) -> None:
        _keep(self.unanswered, client, is_in=account.outstanding is not None)
        _keep(self.waiting, client, is_in=account.newest.under_way > 0 and not account.retired_in)
        _keep(self.retired, client, is_in=account.retired_in > 0)


def _keep(names: dict[str, None], client: str, *, is_in: bool) -> None:
    if is_in:
        names[client] = None
    else:
        names.pop(client, None)
