"""Orders, receipts, and the address and introduction of a client."""

import hashlib
import itertools
import json
import math
from dataclasses import dataclass, field
from typing import Literal

from tidegate.wire.record import Health, Record, refusal

LARGEST_CAPACITY = 100_000_000
"""Samples of one client: counts of its admissions are kept in 4 bytes, far from their end."""
NO_LIMIT = 2**31 - 1
"""A count that nothing exceeds: what 4 bytes hold."""
MOST_IN_A_ROW = 20
"""Samples, one after another, that a client sets aside. A longer row of failures is a fault of the
source (a share that is not mounted, a codec that fits nothing), and costs no sample."""
MOST_CANDIDATES = 100_000
"""That a client reads for an order: what it reads and sets aside is believed in proportion."""
MOST_AGES = 800
"""Ages that a receipt tells apart: as many as a rule has thresholds for stored samples."""
MOST_PASSED = 1000
"""Samples of forgotten subjects that a client skips for an order."""
HEALTH = {
    "set_aside": "samples that could not be used",
    "expired": "samples held for too long",
    "erased": "samples of forgotten subjects",
    "waiting_since": "round of the oldest purchase",
    "failing_suppliers": "1 if the supplier did not reply",
    "full_spools": "1 if the stream has no room",
    "spool_dropped": "messages dropped unread",
}
"""What the gate reports of itself, and what it means."""
DIGEST_LENGTH = 16
"""Hexadecimal digits: enough to tell the cursors of one stream apart."""

Retention = Literal["k_step", "frozen", "oldest_first"]
RETENTIONS: tuple[Retention, ...] = ("k_step", "frozen", "oldest_first")


@dataclass(frozen=True, kw_only=True)
class Order(Record):
    """What the server asks of one client in one round: admit a count, or apply a rule.

    >>> order = Order(run="r1", round_number=3, price=2.5, retention_horizon=10, count=4)
    >>> Order.from_record(order.to_record()) == order
    True
    """

    run: str
    round_number: int
    """t, from 1."""
    price: float
    """Of one sample, for this client."""
    retention: Retention = "k_step"
    retention_horizon: int = 0
    """Rounds of training after which a sample leaves: K, or under ``oldest_first`` a cap on uses; 0
    for none."""
    count: int = 0
    """Samples to admit; beside thresholds the most that they may lead to, ``NO_LIMIT`` for any."""
    thresholds: tuple[float, ...] = ()
    """A rule in place of a count: the price up to which a slot takes a fresh sample. The first is
    for an empty slot; number u is for a slot whose sample was trained on in u rounds, the last one
    also for all that were used more often. From the second on they do not fall. What is taken in
    fills empty slots first; then the oldest samples make room."""

    @property
    def evicts(self) -> bool:
        """Whether fresh samples take the place of stored ones."""
        return self.retention == "oldest_first"

    @property
    def horizon(self) -> float:
        """Rounds of training after which a sample leaves; infinity where none does."""
        return (self.retention != "frozen" and self.retention_horizon) or math.inf

    def _check(self) -> None:
        if self.round_number < 1:
            raise refusal("round_number", self.round_number, "at least 1")
        if self.retention not in RETENTIONS:
            raise refusal("retention", self.retention, "a known rule")
        least = 1 if self.retention == "k_step" else 0
        if self.retention_horizon < least:
            raise refusal("retention_horizon", self.retention_horizon, f"at least {least}")
        rule = self.thresholds
        if rule and self.retention != "oldest_first":
            raise refusal("retention", self.retention, "oldest_first where thresholds are given")
        if not all(first <= second for first, second in itertools.pairwise(rule[1:])):
            raise refusal("thresholds", rule, "not falling from the second on")


@dataclass(frozen=True, kw_only=True)
class Receipt(Record):
    """What a client has bought, paid and holds after an order.

    *Money* and *holding* are checked against the order and the receipt before it. *Health* is kept,
    summed and shown, and nothing is decided by it. Money is counted from the beginning of the
    buffer, so that the newest receipt says all.
    """

    run: str
    round_number: int
    """Of the order that it answers; 0 before the first."""
    bought: int = 0
    """Samples bought in all."""
    admitted: int = 0
    """Those of them that have arrived, and trained."""
    refused: int = 0
    """Those of them that will never arrive."""
    spent: float = 0.0
    """Committed in all, before refunds."""
    refunded: float = 0.0
    """The part of it that was paid back."""
    under_way_spent: float = 0.0
    """Committed for the samples under way: bought, and neither admitted nor refused."""
    holding: tuple[int, ...] = ()
    """The planned buffer (``tidegate.buffer``): samples by age, from age 1 on. The last of
    ``MOST_AGES`` counts all that are as old or older."""
    expiring: int = 0
    """The oldest of them, which leave the plan before the next order."""
    occupancy: int = 0
    """n_m(t), samples stored and trained on in this round."""
    uses: int = 0
    """Sum, over the stored samples, of the rounds that each has trained in, with this one."""
    read: int = 0
    """Samples of the stream that this buffer has read in all, whatever became of them."""
    is_dry: bool = False
    """The stream, or the supplier, delivered fewer samples than were asked for."""
    last_taken: str = ""
    """``cursor_digest`` of how far the stream was read; empty if unknown."""
    record: str = ""
    """Digest of the client's record up to this order; empty if it keeps none."""
    health: Health = field(default_factory=dict)
    """How the client is, by name: ``HEALTH`` says what Tidegate's own gate reports."""

    @property
    def under_way(self) -> int:
        """Samples that were bought and have not ended."""
        return self.bought - self.admitted - self.refused

    @property
    def paid(self) -> float:
        """What was committed, less refunds."""
        return self.spent - self.refunded

    def _check(self) -> None:
        if len(self.holding) > MOST_AGES:
            raise refusal("holding", len(self.holding), f"of at most {MOST_AGES} ages")


@dataclass(frozen=True, kw_only=True)
class Address(Record):
    """The client that a message is for; sent with every order, and alone to unknown clients."""

    run: str
    client: str = ""
    """The name that the server has for the client; empty if it leaves that to the client."""
    fingerprint: str = ""
    """Of the node's public key, if it has one: a name for a client that has no other."""
    buffer_id: str = ""
    """The buffer that an order is for, as the client introduced it. A client with another one has
    lost this one, and must not buy anything before the server knows."""
    booked_round: int = 0
    """The newest round whose receipt the server has; a buffer that is behind it is an old copy."""
    void_round: int = 0
    """To a client it does not know: apply no order up to this round any more."""
    skip: int = 0
    """Samples at the beginning of the stream that lost buffers took or set aside: a new one must
    not take them again."""
    last_taken: str = ""
    """Of the newest receipt of a lost buffer: how far that had read the stream."""
    skip_after: int = 0
    """The part of ``skip`` that may have been taken after ``last_taken``, by an order that was
    never answered."""


@dataclass(frozen=True, kw_only=True)
class Introduction(Record):
    """What a client says of itself when it joins; its newest receipt, if any, goes beside it."""

    run: str
    client: str
    buffer_capacity: int
    """B_m, samples that it will never exceed."""
    buffer_id: str
    """Of the buffer that it has now."""
    void_round: int = 0
    """It will apply no order up to this round that it has not applied before."""
    candidates: int = 0
    """That it reads from its stream for an order, if it chooses among them."""
    read: int = 0
    """As in a receipt; an order that was never answered may have read some more."""
    last_taken: str = ""
    """As in a receipt."""

    def _check(self) -> None:
        if self.candidates > MOST_CANDIDATES:
            raise refusal("candidates", self.candidates, f"at most {MOST_CANDIDATES}")
        if self.buffer_capacity < 1:
            raise refusal("buffer_capacity", self.buffer_capacity, "at least 1")
        if self.buffer_capacity > LARGEST_CAPACITY:
            most = f"at most {LARGEST_CAPACITY}; count larger units (batches) in place of samples"
            raise refusal("buffer_capacity", self.buffer_capacity, most)


def cursor_digest(run: str, client: str, cursor: str) -> str:
    """Return how far a stream was read without revealing it: a cursor may be a file name.

    >>> cursor_digest("run-1", "site-0", "patient-17.dcm")
    '215478a70fbccbe5'
    """
    text = json.dumps([run, client, cursor])
    return hashlib.sha256(text.encode()).hexdigest()[:DIGEST_LENGTH]
