"""Several servers under one budget: what they tell each other, and nothing else.

Above what one server carries, each of several runs a part of the fleet, a *shard*, with a policy
and a ledger of its own. A coordinator divides the budget of every round among them. They need two
messages: a shard *reports* what one more unit of money would be worth to it, and gets a *grant*,
the budgets of its coming rounds. Where money is worth the same everywhere, no other division of it
would be better.

Most of a round's budget is promised many rounds ahead, so that a shard which hears nothing can go
on; the rest, and what would be promised to shards that are not heard of, is added when the round
begins, where money is worth most by then. What was promised or added is never taken back. So
whatever is lost, late, doubled or out of order, the budgets that shards hold for a round never add
up to more than C; each shard's cost debt is a certificate for its own budgets, and their sum for
the whole:

    total overspend up to t  <=  Σ_i Z_i(t+1).

A grant says all that a shard needs to know, so that the newest alone counts. A shard whose promises
have come to their end spends what it has saved, and no more.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from tidegate.saving import plain
from tidegate.wire import LARGEST_AMOUNT, Record, WireError

MOST_LEAD = 100
"""Rounds ahead that budgets are promised: as long a shard goes on that hears nothing, and as long a
shard that is gone for good holds money that nobody else can spend."""
LEAST_LEAD = 2
"""In the beginning, when little is known of what money is worth where."""
PROMISED = 0.9
"""Of what a shard would get now: so much is promised for rounds to come."""
PATIENCE = 10
"""Rounds without a report after which a shard is promised nothing more."""
LEAST_SHARE = 0.01
"""Of what its slots would get it: no shard that is there gets less."""
ROUNDING = 1e-12
"""Part of a budget that is kept back, so that a sum of shares cannot exceed it by rounding."""


@dataclass(frozen=True, kw_only=True)
class Report(Record):
    """What a shard tells the coordinator, as often as it likes."""

    run: str
    shard: str
    round_number: int
    """Rounds that it has played; an older report than the last is ignored."""
    spent: float
    """In all these rounds."""
    allowance: float
    """Money a round that it has planned with."""
    shadow_price: float
    """μ: what one unit more would be worth to it, at this allowance."""


@dataclass(frozen=True, kw_only=True)
class Grant(Record):
    """What a shard may spend: everything that it needs to know, so that the newest counts."""

    run: str
    shard: str
    first_round: int
    """The round that the first of the budgets is for."""
    before: float
    """Sum of all its budgets of earlier rounds."""
    budgets: tuple[float, ...]
    """For the rounds from the first on."""

    @property
    def last_round(self) -> int:
        """The last one that it has a budget for."""
        return self.first_round + len(self.budgets) - 1

    def until(self, round_number: int) -> float:
        """Sum of the budgets of all rounds up to this one, as far as they are known."""
        known = max(round_number - self.first_round + 1, 0)
        return self.before + math.fsum(self.budgets[:known])


class Purse:
    """What a shard has been granted, and has counted on so far."""

    def __init__(self, run: str, shard: str) -> None:
        self._grant = Grant(run=run, shard=shard, first_round=1, before=0.0, budgets=())
        self._counted = 0.0

    def take(self, grant: Grant) -> None:
        """Remember a grant; one that is older than the last adds nothing."""
        mine = self._grant
        if (grant.run, grant.shard) != (mine.run, mine.shard):
            raise WireError(
                f"a grant for {grant.shard!r} of run {grant.run!r} came to {mine.shard!r} of "
                f"run {mine.run!r}"
            )
        if grant.last_round > mine.last_round:
            self._grant = grant

    def budget(self, round_number: int) -> float:
        """C_i(t): what a round may cost, with what earlier rounds were not told in time.

        To be asked once for every round.
        """
        granted = self._grant.until(round_number)
        budget = max(granted - self._counted, 0.0)
        self._counted += budget
        return budget


@dataclass(frozen=True)
class _Known:
    """What the coordinator knows of a shard."""

    slots: int
    heard: int = 0
    """The coordinator's round when the last report came."""
    reported: int = 0
    """The shard's round in it; 0 before the first."""
    allowance: float = 0.0
    shadow_price: float = 0.0
    before: float = 0.0
    """Sum of its budgets of rounds that are over."""
    budgets: tuple[float, ...] = ()
    """Of the round that is under way, and what is promised for those after it."""

    @property
    def wish(self) -> float:
        """What its share of the budget should be in proportion to, as far as it has said.

        The shadow price falls about as the square of the money (exactly so if the price is always
        the same): this much would bring it to 1.
        """
        return self.allowance * math.sqrt(self.shadow_price)


class Coordinator:
    """Divides every round's budget so that money is worth the same in all shards.

    Args:
        run: the run's name.
        budget: C, of all shards together.
        slots: of each shard; the budget goes by them until all that are there have reported.
        lead: rounds ahead that budgets are promised at most: half of those that are over.
        patience: rounds without a report after which a shard is promised nothing more.

    >>> coordinator = Coordinator("r", budget=12.0, slots={"east": 100, "west": 200})
    >>> for grant in coordinator.divide(1):
    ...     print(grant.shard, [round(budget, 6) for budget in grant.budgets])
    east [4.0, 3.6, 3.6]
    west [8.0, 7.2, 7.2]
    """

    def __init__(
        self,
        run: str,
        budget: float,
        slots: Mapping[str, int],
        *,
        lead: int = MOST_LEAD,
        patience: int = PATIENCE,
    ) -> None:
        if not slots or min(slots.values()) < 1:
            raise ValueError(f"every shard needs at least one slot, got {dict(slots)}")
        if not (0 < budget <= LARGEST_AMOUNT and lead >= 1 and patience >= 1):
            raise ValueError(
                f"need a positive budget, lead and patience, got {budget}, {lead} and {patience}"
            )
        self.run = run
        self._budget = budget
        self._lead = lead
        self._patience = patience
        self._now = 1
        self._left: list[float] = []
        """Of the round that is under way and those after it, what is not promised to anybody."""
        self._shards = {name: _Known(count) for name, count in slots.items()}

    def hear(self, report: Report) -> None:
        """Take in a report; one that is no newer than the last adds nothing."""
        if report.run != self.run or report.shard not in self._shards:
            raise WireError(f"no shard {report.shard!r} of run {report.run!r} is known here")
        known = self._shards[report.shard]
        if report.round_number > known.reported:
            self._shards[report.shard] = replace(
                known,
                heard=self._now,
                reported=report.round_number,
                allowance=report.allowance,
                shadow_price=report.shadow_price,
            )

    def divide(self, now: int) -> list[Grant]:
        """The grants of a round that begins, to be sent to all.

        Rounds that passed while nobody divided are made good. What is divided must be on disk
        before it is sent (``to_record``): a coordinator that divides a round again would grant its
        budget twice.
        """
        if now < self._now:
            raise ValueError(f"round {now} is over, {self._now} is under way")
        over, self._now = now - self._now, now
        ahead = min(max(now // 2, LEAST_LEAD), self._lead)
        self._promise(max(over + 1 + ahead - len(self._left), 0))
        for place in range(over + 1):
            self._add(place)
        for name, known in self._shards.items():
            before = math.fsum((known.before, *known.budgets[:over]))
            self._shards[name] = replace(known, before=before, budgets=known.budgets[over:])
        self._left = self._left[over:]
        return [
            Grant(
                run=self.run,
                shard=name,
                first_round=now,
                before=known.before,
                budgets=known.budgets,
            )
            for name, known in self._shards.items()
        ]

    def _promise(self, rounds: int) -> None:
        """Promise a part of so many rounds more; that of those who are away waits for them."""
        whole, shares = self._budget * (1 - ROUNDING), _shares(self._shards)
        for name, known in self._shards.items():
            promised = PROMISED * shares[name] * whole * self._is_there(known)
            self._shards[name] = replace(known, budgets=(*known.budgets, *[promised] * rounds))
        promised = math.fsum(known.budgets[-1] for known in self._shards.values())
        self._left += [whole - promised] * rounds

    def _add(self, place: int) -> None:
        """Give what is left of a round to those who are there and have less than their share."""
        there = {name: known for name, known in self._shards.items() if self._is_there(known)}
        # Who hears nobody keeps all for those who come back.
        shares = dict.fromkeys(self._shards, 0.0) | _shares(there or self._shards)
        lacking = {
            name: max(shares[name] * self._budget - known.budgets[place], 0.0)
            for name, known in self._shards.items()
        }
        scale = self._left[place] / (math.fsum(lacking.values()) or math.inf)
        for name, known in self._shards.items():
            budgets = list(known.budgets)
            budgets[place] += lacking[name] * scale
            self._shards[name] = replace(known, budgets=tuple(budgets))
        self._left[place] = 0.0

    def _is_there(self, known: _Known) -> bool:
        return self._now - max(known.heard, 1) <= self._patience

    def to_record(self) -> dict[str, Any]:
        """All that the next step depends on, as JSON can carry it."""
        return {
            "run": self.run,
            "budget": self._budget,
            "lead": self._lead,
            "patience": self._patience,
            "now": self._now,
            "left": list(self._left),
            "shards": {name: vars(known) for name, known in self._shards.items()},
        }

    @classmethod
    def from_record(cls, record: Mapping[str, Any]) -> "Coordinator":
        """The coordinator that ``to_record`` gave."""
        shards = {
            name: plain(_Known, {**values, "budgets": tuple(values["budgets"])})
            for name, values in record["shards"].items()
        }
        slots = {name: known.slots for name, known in shards.items()}
        coordinator = cls(
            record["run"],
            record["budget"],
            slots,
            lead=record["lead"],
            patience=record["patience"],
        )
        coordinator._now, coordinator._left = record["now"], list(record["left"])
        coordinator._shards = shards
        return coordinator


def _shares(shards: Mapping[str, _Known]) -> dict[str, float]:
    """Each shard's part of a budget that is divided among these."""
    slots = sum(known.slots for known in shards.values())
    shares = {name: known.slots / slots for name, known in shards.items()}
    wished = math.fsum(known.wish for known in shards.values())
    if not (wished and all(known.reported for known in shards.values())):
        return shares
    shares = {
        name: max(known.wish / wished, LEAST_SHARE * shares[name]) for name, known in shards.items()
    }
    total = math.fsum(shares.values())
    return {name: share / total for name, share in shares.items()}
