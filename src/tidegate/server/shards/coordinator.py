"""Divide the budget of every round among shards."""

import logging
import math
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

from tidegate._internal.saving import plain
from tidegate.errors import ConfigurationError
from tidegate.server.shards.messages import Grant, Report
from tidegate.wire import LARGEST_AMOUNT, LARGEST_INTEGER, MOST_AMOUNTS

MOST_LEAD = 100
"""Rounds ahead that budgets are promised: so long does a shard without contact continue, and so
long does a shard that is gone for good hold money that no other can spend."""
LEAST_LEAD = 2
"""At the start, when little is known about what money is worth where."""
PROMISED = 0.9
"""The part of what a shard would get now that is promised for coming rounds."""
PATIENCE = 10
"""Rounds divided without a report after which a shard is promised nothing more."""
LEAST_SHARE, MOST_SHARE = 0.01, 10.0
"""Times what its slots would get it: no shard gets less or more, as far as there is a choice."""
UNITS = 2**40
"""Of a round's budget, which is divided in whole ones: sums of them are exact."""
KEPT_BACK = 1e-15
"""Part of every amount that is told, so that no rounding can make their sum too large."""

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class _Known:
    """What the coordinator knows about a shard; amounts in units of a round's budget."""

    slots: int
    share: float
    """Of a budget that would be divided among all shards."""
    silent: int = 0
    """Rounds that were divided since its last report, or since the beginning."""
    reported: int = 0
    """The shard's round in its last report; 0 before the first."""
    spends: float = 0.0
    shadow_price: float = 0.0
    before: int = 0
    """Sum of its budgets of rounds that are over."""
    budgets: tuple[int, ...] = ()
    """Of the round under way, and what is promised for those after it."""

    def __post_init__(self) -> None:
        counts = (self.slots - 1, self.silent, self.reported, self.before, *self.budgets)
        if not all(type(count) is int and count >= 0 for count in counts):
            raise ValueError(f"invalid counts of a shard: {self}")
        if not (0 < self.share <= 1 and min(self.spends, self.shadow_price) >= 0):
            raise ValueError(f"invalid amounts of a shard: {self}")

    @property
    def wish(self) -> float:
        """What its share should be proportional to, by its reports.

        The shadow price falls about as the square of the money (exactly so if the price never
        changes): this much would bring it to 1.
        """
        return self.spends * math.sqrt(self.shadow_price)


class Coordinator:
    """Divides every round's budget so that money is worth the same in all shards.

    Args:
        run: the run's name.
        budget: C, of all shards together.
        slots: of each shard; they divide the budget among shards that have not reported yet.
        lead: the most rounds ahead that budgets are promised: half of those that are over.
        patience: rounds divided without a report after which a shard is promised nothing more.

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
            raise ConfigurationError(f"every shard needs at least one slot, got {dict(slots)}")
        if not (0 < budget <= LARGEST_AMOUNT and 1 <= lead < MOST_AMOUNTS and patience >= 1):
            raise ConfigurationError(
                f"need a positive budget, lead (below {MOST_AMOUNTS}) and patience, got {budget}, "
                f"{lead} and {patience}"
            )
        for name in slots:
            Grant(run=run, shard=name, first_round=1, before=0.0, budgets=())  # names that can be
        self.run = run
        self._budget = budget
        self._lead = lead
        self._patience = patience
        self._now = 1
        total = sum(slots.values())
        self._shards = {name: _Known(count, count / total) for name, count in slots.items()}
        self._left: list[int] = []
        """Of the round under way and those after it, units that no shard has."""

    def divide(self, round_number: int, reports: Iterable[Report] = ()) -> list[Grant]:
        """Return the grants of a round that begins, to be sent to all shards.

        Rounds that passed undivided are made up for. The division must be on disk before it is sent
        (``to_record``): a coordinator that divides a round again would grant its budget twice.

        Args:
            round_number: t.
            reports: those that arrived since the last time, in any order.
        """
        if round_number < self._now:
            raise ValueError(f"round {round_number} is over; round {self._now} is under way")
        away = [name for name, known in self._shards.items() if not self._is_there(known)]
        over, self._now = round_number - self._now, round_number
        for name, known in self._shards.items():
            self._shards[name] = replace(known, silent=known.silent + (over > 0))
        for report in reports:
            self._hear(report)
        self._move_shares()
        self._promise(over + 1 + min(max(round_number // 2, LEAST_LEAD), self._lead))
        for name in away:
            self._promise_again(name, over + 1)
        self._add(over + 1)
        for name, known in self._shards.items():
            before = known.before + sum(known.budgets[:over])
            self._shards[name] = replace(known, before=before, budgets=known.budgets[over:])
        self._left = self._left[over:]
        return [self._grant(name) for name in self._shards]

    def _hear(self, report: Report) -> None:
        """Accept a report; one that is no newer than the last adds nothing."""
        known = self._shards.get(report.shard)
        if report.run != self.run or known is None:
            logger.warning(
                "ignored a report of shard %r of run %r, which is not in this run",
                report.shard,
                report.run,
            )
        elif report.round_number > self._now:
            logger.warning(
                "ignored a report of %s for round %d, because round %d has just begun",
                *(report.shard, report.round_number, self._now),
            )
        elif report.round_number > known.reported:
            self._shards[report.shard] = replace(
                known,
                silent=0,
                reported=report.round_number,
                spends=report.spends,
                shadow_price=report.shadow_price,
            )

    def _is_there(self, known: _Known) -> bool:
        return known.silent <= self._patience

    def _move_shares(self) -> None:
        """Move shares half of the way, on a scale of ratios, to where money is worth the same."""
        slots = sum(known.slots for known in self._shards.values())
        wished = math.fsum(known.wish for known in self._shards.values())
        heard = sum(known.slots for known in self._shards.values() if known.reported) / slots
        wanted, most = {}, {}
        for name, known in self._shards.items():
            fair = known.slots / slots
            share = heard * known.wish / wished if known.reported and wished else fair
            wanted[name], most[name] = max(share, LEAST_SHARE * fair), MOST_SHARE * fair
        wanted = _within(wanted, most)
        moved = {
            name: math.sqrt(known.share * wanted[name]) for name, known in self._shards.items()
        }
        total = math.fsum(moved.values())
        for name, share in moved.items():
            self._shards[name] = replace(self._shards[name], share=share / total)

    def _promise(self, rounds: int) -> None:
        """Promise a part of coming rounds, up to so many; nothing to silent shards."""
        more = max(rounds - len(self._left), 0)
        taken = 0
        for name, known in self._shards.items():
            promised = int(PROMISED * known.share * UNITS) * self._is_there(known)
            self._shards[name] = replace(known, budgets=(*known.budgets, *[promised] * more))
            taken += promised
        self._left += [max(UNITS - taken, 0)] * more

    def _promise_again(self, name: str, first: int) -> None:
        """Promise a shard that is back what it would have been promised before."""
        known = self._shards[name]
        if not self._is_there(known):
            return
        wanted, budgets = int(PROMISED * known.share * UNITS), list(known.budgets)
        for place in range(first, len(budgets)):
            more = min(max(wanted - budgets[place], 0), self._left[place])
            budgets[place] += more
            self._left[place] -= more
        self._shards[name] = replace(known, budgets=tuple(budgets))

    def _add(self, rounds: int) -> None:
        """Give what is left of rounds to shards in contact that have less than their share."""
        there = [name for name, known in self._shards.items() if self._is_there(known)]
        there = there or list(
            self._shards
        )  # without any shard in contact, keep all for those that come back
        all_of_them = math.fsum(self._shards[name].share for name in there)
        due = {name: self._shards[name].share / all_of_them * UNITS for name in there}
        budgets = {name: list(self._shards[name].budgets) for name in there}
        for place in range(rounds):
            lacking = {name: max(due[name] - budgets[name][place], 0.0) for name in there}
            left, wanted = self._left[place], math.fsum(lacking.values())
            for name, part in lacking.items():
                more = min(int(self._left[place] * part / wanted) if wanted else 0, left)
                left -= more
                budgets[name][place] += more
            self._left[place] = 0
        for name, amounts in budgets.items():
            self._shards[name] = replace(self._shards[name], budgets=tuple(amounts))

    def _grant(self, name: str) -> Grant:
        known, unit = self._shards[name], self._budget / UNITS * (1 - KEPT_BACK)
        return Grant(
            run=self.run,
            shard=name,
            first_round=self._now,
            before=known.before * unit,
            budgets=tuple(budget * unit for budget in known.budgets),
        )

    def to_record(self) -> dict[str, Any]:
        """Return everything that the next step depends on, for JSON."""
        return {
            "run": self.run,
            "budget": self._budget,
            "lead": self._lead,
            "patience": self._patience,
            "now": self._now,
            "left": list(self._left),
            "shards": {name: asdict(known) for name, known in self._shards.items()},
        }

    @classmethod
    def from_record(cls, record: Mapping[str, Any]) -> "Coordinator":
        """Restore the coordinator from ``to_record``."""
        shards = {
            name: plain(_Known, {**values, "budgets": tuple(values["budgets"])})
            for name, values in record["shards"].items()
        }
        coordinator = cls(
            record["run"],
            record["budget"],
            {name: known.slots for name, known in shards.items()},
            lead=record["lead"],
            patience=record["patience"],
        )
        round_number, left = record["now"], record["left"]
        lengths = {len(left), *(len(known.budgets) for known in shards.values())}
        whole = all(
            type(number) is int and 0 <= number <= LARGEST_INTEGER
            for number in (round_number - 1, *left)
        )
        if not whole or len(lengths) > 1:
            raise ValueError(f"round {round_number} with {left} left is impossible")
        coordinator._now, coordinator._left, coordinator._shards = round_number, list(left), shards
        return coordinator


def _within(wanted: Mapping[str, float], most: Mapping[str, float]) -> dict[str, float]:
    """Return shares that sum to 1, as wanted, as far as none exceeds its maximum.

    If all maxima together are below 1, return these.
    """
    shares, open_to = dict(most), set(wanted)
    while open_to:
        left = 1 - math.fsum(shares[name] for name in wanted if name not in open_to)
        total = math.fsum(wanted[name] for name in open_to)
        full = {name for name in open_to if wanted[name] * left > most[name] * total}
        if not full:
            return shares | {name: wanted[name] / total * left for name in open_to}
        open_to -= full
    return shares
