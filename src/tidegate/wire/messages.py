"""Orders, receipts, and the address and introduction of a client."""

import hashlib
import itertools
import json
import math
from dataclasses import dataclass, field
from typing import Literal

from tidegate.wire.record import AGES, Record, refusal

LARGEST_CAPACITY = 100_000_000
"""Samples of one client: counts of its admissions are kept in 4 bytes, far from their end."""
NO_LIMIT = 2**31 - 1
"""A count that nothing exceeds: what 4 bytes hold."""
MOST_IN_A_ROW = 20
"""Samples, one after another, that a client sets aside. A longer row of failures is a fault of the
source (a share that is not mounted, a codec that fits nothing), and costs no sample."""
MOST_CANDIDATES = 100_000
"""That a client reads for an order: what it reads and sets aside is believed in proportion."""
ROUNDING = 1e-9
"""Relative, of sums of money."""
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
    """What an order led to, and what the client has admitted and paid in all.

    The totals are cumulative: the newest receipt says what the client has paid in all.
    """

    run: str
    round_number: int
    """Of the order that it answers."""
    admitted: int
    """Fresh samples that train from this round on."""
    spent: float
    """Committed in this round, for the samples that it bought."""
    occupancy: int
    """n_m(t), samples trained on in this round."""
    expiring: int
    """Those of them that are gone before the next round."""
    prior_uses: int
    """Sum, over the stored samples, of the earlier rounds each was trained on."""
    total_admitted: int
    total_spent: float
    """Committed in all, before refunds."""
    exhausted: bool = False
    """The stream, or the supplier, delivered fewer samples than were asked for."""
    asked: int = 0
    """Samples of this round that were bought and will arrive later."""
    arrived: int = 0
    """Those of the admitted that were bought in earlier rounds."""
    under_way: int = 0
    """Samples that were bought and have not arrived yet, including those of this round."""
    under_way_spent: float = 0.0
    """Committed for them."""
    oldest_under_way: int = 0
    """The round that bought the oldest of them; 0 if nothing is under way."""
    supplier_fails: bool = False
    """The supplier could not be asked, or did not reply, since the last order."""
    spool_full: bool = False
    """The stream's spool accepts no more messages."""
    spool_dropped: int = 0
    """Messages that it dropped unread in all, because it was full."""
    total_refused: int = 0
    """Samples that were bought in all and will never arrive."""
    total_refunded: float = 0.0
    """Refunded part of what was committed, in all."""
    set_aside: int = 0
    """Samples that this buffer has skipped in all, because they could not be read, acquired or
    stored."""
    seen: int = 0
    """Samples that this buffer has read from the stream in all; 0 if the client does not choose
    among candidates."""
    last_taken: str = ""
    """``cursor_digest`` of how far the stream was read; empty if unknown."""
    gone: tuple[float, ...] = field(default=(), metadata=AGES)
    """Samples that left the buffer since the last receipt, because they were held for too long or
    their subject is forgotten: pairs of the rounds that they had trained in, and how many."""
    total_expired: int = 0
    """Samples that have left it in all, because they were held for too long."""
    total_erased: int = 0
    """Samples that have left it in all, because their subject is forgotten."""
    passed: int = 0
    """Samples of the stream that were skipped in all, because their subject is forgotten."""
    record: str = ""
    """Digest of the client's record up to this order; empty if it keeps none."""

    def _check(self) -> None:
        if self.round_number < 1:
            raise refusal("round_number", self.round_number, "at least 1")
        if self.gone:
            self._check_gone()
        self._check_held()
        self._check_under_way()
        if self.total_admitted < self.admitted:
            least = f"at least this round's {self.admitted}"
            raise refusal("total_admitted", self.total_admitted, least)
        if self.total_spent < self.spent:
            raise refusal("total_spent", self.total_spent, f"at least this round's {self.spent}")
        if self.total_refunded > self.total_spent * (1 + ROUNDING):
            back = f"at most the {self.total_spent} committed in all"
            raise refusal("total_refunded", self.total_refunded, back)
        most_aside = MOST_IN_A_ROW * self.total_admitted
        if self.seen:
            if self.seen < self.total_admitted:
                least = f"0, or at least the {self.total_admitted} samples admitted in all"
                raise refusal("seen", self.seen, least)
            most_aside = self.seen - self.total_admitted
        if self.set_aside > most_aside:
            raise refusal("set_aside", self.set_aside, f"at most {most_aside}")

    def _check_gone(self) -> None:
        """Check that what has left is counted by age, and is part of what has left in all."""
        ages, counts = self.gone[::2], self.gone[1::2]
        if len(ages) != len(counts) or not all(one >= 1 and one % 1 == 0 for one in self.gone):
            raise refusal("gone", self.gone, "pairs of whole numbers")
        if not all(first < second for first, second in itertools.pairwise(ages)):
            raise refusal("gone", self.gone, "pairs, each of more rounds than the one before")
        left = self.total_expired + self.total_erased
        if sum(counts) > left:
            raise refusal("samples gone", sum(counts), f"at most the {left} in all")

    def _check_held(self) -> None:
        """Check that what is stored includes what arrived and what expires, and its age."""
        occupancy, admitted = self.occupancy, self.admitted
        if admitted > occupancy:
            raise refusal("admitted", admitted, f"at most the occupancy {occupancy}")
        if self.expiring > occupancy:
            raise refusal("expiring", self.expiring, f"at most the occupancy {occupancy}")
        most = (occupancy - admitted) * (self.round_number - 1)
        if self.prior_uses > most:
            raise refusal("prior_uses", self.prior_uses, f"at most {most}")
        if self.arrived > admitted:
            raise refusal("arrived", self.arrived, f"<= {admitted}")

    def _check_under_way(self) -> None:
        """Check that a receipt without purchases under way says nothing about them."""
        if self.asked > self.under_way:
            raise refusal("asked", self.asked, f"<= {self.under_way}")
        if self.under_way_spent and not self.under_way:
            raise refusal("under_way_spent", self.under_way_spent, "0 where nothing is under way")
        oldest = self.round_number if self.under_way else 0
        if self.oldest_under_way > oldest:
            raise refusal("oldest_under_way", self.oldest_under_way, f"<= {oldest}")

    @property
    def bought(self) -> int:
        """Samples that the order of this round led to, whether they came at once or will later."""
        return self.admitted - self.arrived + self.asked

    def gone_by_uses(self) -> dict[int, int]:
        """Return how many samples left since the last receipt, by their uses."""
        return {
            int(uses): int(count)
            for uses, count in zip(self.gone[::2], self.gone[1::2], strict=True)
        }

    def check_answers(self, order: Order, *, buffer_capacity: int | None = None) -> None:
        """Refuse a receipt that cannot be the reply to this order.

        Args:
            order: the newest order that the client was sent.
            buffer_capacity: B_m if it is a hard limit.
        """
        if self.run != order.run:
            raise refusal("run", self.run, f"the order's {order.run!r}")
        now = order.round_number
        if self.round_number > now:
            raise refusal("round_number", self.round_number, f"at most {now}")
        if self.round_number == now:
            bought, price = self.bought, order.price * self.bought
            if bought > order.count:
                raise refusal("samples bought", bought, f"<= {order.count}")
            if not math.isclose(self.spent, price):
                raise refusal("spent", self.spent, f"the price, {price}")
        if buffer_capacity is not None and self.occupancy > buffer_capacity:
            raise refusal("occupancy", self.occupancy, f"at most the capacity {buffer_capacity}")


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
    seen: int = 0
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
