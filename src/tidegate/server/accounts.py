"""The accounts of all clients, with their sums: work for the clients that change, not for all.

A fleet may know a million clients and reach a thousand in a round. Whatever is summed over all of
them is kept up to date with each account that changes, money in whole units of the smallest float,
so that the sums are what adding all accounts up would give, to the last bit. Which accounts changed
since they were last saved is known, and accounts that lie in a file are read when they are needed.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from tidegate.errors import WireError
from tidegate.server.account import Account

UNITS = 2**1074
"""Of one: every float is a whole number of them."""
NOBODY: Mapping[str, int] = MappingProxyType({})
MOST_HELD = 20_000
"""Accounts of a file that are held in memory after they were saved."""


def units(amount: float) -> int:
    """An amount of money as a whole number, exactly."""
    number, parts = amount.as_integer_ratio()
    return number * (UNITS // parts)


@dataclass
class Sums:
    """Over all accounts, or over those of clients that are not retired (members)."""

    refunded: int = 0
    """In units, all accounts."""
    refused: int = 0
    set_aside: int = 0
    under_way: int = 0
    """Members', as all that follow."""
    under_way_spent: int = 0
    """In units."""
    failing_suppliers: int = 0
    full_spools: int = 0
    spool_dropped: int = 0
    empty_clients: int = 0

    def add(self, account: Account, sign: int = 1) -> None:
        """Add an account, or take it away again."""
        self.refunded += sign * units(account.total_refunded)
        self.refused += sign * account.total_refused
        self.set_aside += sign * account.total_set_aside
        if account.retired_in:
            return
        self.under_way += sign * account.under_way
        self.under_way_spent += sign * units(account.under_way_spent)
        self.failing_suppliers += sign * account.supplier_fails
        self.full_spools += sign * account.spool_full
        self.spool_dropped += sign * account.spool_dropped
        self.empty_clients += sign * (not (account.batches or account.under_way))


class Accounts:
    """Account by client.

    Args:
        read: an account that is not in memory; none where all are.
        known: clients whose accounts ``read`` gives, each with the capacity of its buffer.
        sums: over all of these.
        noted: those of them that owe an answer, have purchases under way, or are retired.
    """

    def __init__(
        self,
        read: Callable[[str], Account] | None = None,
        known: Mapping[str, int] = NOBODY,
        sums: Sums | None = None,
        noted: Iterable[str] = (),
    ) -> None:
        self.read = read
        self.sums = sums or Sums()
        self._capacities = dict(known)
        self._held: dict[str, Account] = {}
        self._changed: dict[str, None] = {}
        self.unanswered: dict[str, None] = {}
        """Clients that owe an answer."""
        self.waiting: dict[str, None] = {}
        """Members with purchases under way."""
        self.retired: dict[str, None] = {}
        for client in noted:
            self._note(client, self[client])

    def __getitem__(self, client: str) -> Account:
        """The account of a client."""
        held = self._held.get(client)
        if held is None:
            if client not in self._capacities or self.read is None:
                raise WireError(f"no client {client!r} has an account")
            held = self._held[client] = self.read(client)
        return held

    def __setitem__(self, client: str, account: Account) -> None:
        """Give a client this account."""
        if client in self._capacities:
            self.sums.add(self[client], -1)
        self.sums.add(account)
        self._capacities[client] = account.buffer_capacity
        self._held[client] = account
        self._changed[client] = None
        self._note(client, account)

    def __contains__(self, client: object) -> bool:
        """Whether a client has an account."""
        return client in self._capacities

    def __iter__(self) -> Iterator[str]:
        """Every client that has an account."""
        return iter(self._capacities)

    def __len__(self) -> int:
        """How many have one."""
        return len(self._capacities)

    def capacity(self, client: str) -> int:
        """Samples that a client's buffer can hold."""
        return self._capacities[client] if client in self else self[client].buffer_capacity

    @property
    def changed(self) -> Mapping[str, Account]:
        """Accounts that are not as they were saved."""
        return {client: self._held[client] for client in self._changed}

    def saved(self) -> None:
        """All are on disk now; those that can be read again need not stay in memory."""
        self._changed = {}
        if self.read is not None and len(self._held) > MOST_HELD:
            self._held = {one: self[one] for one in (*self.unanswered, *self.waiting)}

    def _note(self, client: str, account: Account) -> None:
        _keep(self.unanswered, client, is_in=account.outstanding is not None)
        _keep(self.waiting, client, is_in=account.under_way > 0 and not account.retired_in)
        _keep(self.retired, client, is_in=account.retired_in > 0)


def _keep(names: dict[str, None], client: str, *, is_in: bool) -> None:
    if is_in:
        names[client] = None
    else:
        names.pop(client, None)
