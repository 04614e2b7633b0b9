"""The rule that Tide sends to clients: the best one for the prices seen and a round's money."""

import bisect
import math
from dataclasses import dataclass, replace

import numpy as np

from tidegate._internal.arrays import FloatArray
from tidegate.admission.price_memory import PriceMemory
from tidegate.theory.filling import filling_threshold
from tidegate.theory.known_prices import (
    FARTHEST,
    continuation,
    keeping_costs,
    thresholds_now,
)
from tidegate.theory.optimum import plan_slots
from tidegate.theory.price_chain import PriceChain, plan_chain
from tidegate.theory.slot_rule import weight_of_empty
from tidegate.wire import MOST_AGES

LONGEST_LIFE = MOST_AGES
"""The most rounds before a sample is replaced, and the most thresholds in an order. If the budget
does not pay for that, Tide takes the cheapest rule and spends money as it comes in."""
PRECISION = 1e-5
"""The relative precision of a rule's cost; the error of the estimated price law is larger."""
LONGEST_CHAIN = 256
"""The most ages to plan for if prices depend on each other: twice those of the rule for independent
prices, plus 32. For longer lives Tide treats prices as independent."""
WINDOW = 512
"""The past rounds from which Tide learns the value of a slot after the last known price."""
OTHER_ALLOWANCE = 0.05
"""Tide solves the rule again when the money for a slot and round has changed by this part."""


@dataclass(frozen=True)
class Thresholds:
    """The newest rule, and the prices and money that it was solved for."""

    round_number: int = 0
    allowance: float = 0.0
    """Money for a slot and round."""
    spends: float = 0.0
    """Money that the rule spends; below the allowance only if it replaces all in every round."""
    shadow_price: float = 0.0
    """μ: the growth of ΣA² that one more unit of money would save; if the rule replaces all samples
    in every round, what the last unit saved."""
    highest: float = -1.0
    """The highest price seen; a higher one may need another rule."""
    affordable: bool = True
    """Whether the allowance pays for the rule."""
    empty: float = 0.0
    """θ(0)."""
    edges: tuple[float, ...] = ()
    """Prices at which the next group of prices begins; empty if prices are independent."""
    by_group: tuple[tuple[float, ...], ...] = ()
    """For each group of prices, θ(1), θ(2), ... of a rule that spends the allowance or less."""
    filling: tuple[float, ...] = ()
    """For each group of prices, the price up to which Tide fills a slot that a cap on uses has
    emptied; infinity for any price. Empty without a cap."""
    behind: tuple[float, ...] = ()
    """If prices are known ahead: h(a) - h(1) after the last of them (``theory.known_prices``)."""
    informed: float = 0.0
    """If prices are known ahead: μ of a slot that knows them."""
    looked_ahead: bool = False
    """Whether prices were known ahead when this rule was solved."""

    def at(
        self, price: float, ahead: tuple[float, ...], most_uses: int | None
    ) -> tuple[tuple[float, ...], float | None]:
        """Return θ(1), θ(2), ... at a price, and the threshold of slots that a cap has emptied.

        Args:
            price: the round's price, for all clients or on average.
            ahead: the known prices of the next rounds.
            most_uses: U; None for no cap.
        """
        group = bisect.bisect_right(self.edges, price)
        by_age, filling = self.by_group[group], self.filling[group] if self.filling else None
        if not (ahead and self.behind):
            return by_age, filling
        ages = len(self.behind)
        keeping = keeping_costs(ages, _weight(ages, most_uses))
        rule = thresholds_now(ahead, self.informed, np.array(self.behind), keeping)
        # If prices ahead are near 0, thresholds are unbounded: cap them at the highest price seen.
        known = np.minimum(rule, max(self.highest, price)).tolist()
        if ages == most_uses:
            filling = known.pop()
        # Samples older than one that is replaced at this price are replaced as well.
        return tuple(known[: bisect.bisect_left(known, price) + 1]), filling


def solve(
    seen: PriceMemory,
    recent: FloatArray,
    allowance: float,
    groups: int,
    most_uses: int | None,
    ahead: tuple[float, ...] = (),
    near: float = 0.0,
    chance: float = 1.0,
) -> Thresholds:
    """Return the best rule for an allowance, if prices follow the law of those seen.

    Args:
        seen: all prices seen.
        recent: the last of them, in order.
        allowance: money for a slot and round.
        groups: groups of prices, for prices that depend on the price before; 1 for none.
        most_uses: U; None for no cap.
        ahead: the known prices of the next rounds.
        near: μ of a slot that knows them, from the last solution; 0 for the first time.
        chance: the part of the stored samples that trains in a round. Below 1, prices are treated
            as independent.
    """
    law = seen.distribution()
    plan = plan_slots(
        law,
        allowance,
        most_uses=most_uses,
        longest_life=LONGEST_LIFE,
        precision=PRECISION,
        chance=chance,
    )
    independent = Thresholds(
        allowance=allowance,
        spends=min(plan.spent, allowance),
        shadow_price=plan.best.multiplier or 2 / max(law.highest, allowance),
        affordable=plan.spent <= (1 + OTHER_ALLOWANCE) * allowance,
        empty=filling_threshold(law, plan),
        by_group=(by_orders(plan.less.thresholds, chance),),
        filling=() if most_uses is None else (_any(plan.less.filling, law.highest),),
        looked_ahead=bool(ahead),
    )
    if chance < 1:
        ahead, groups = (), 1
    ages, weight = 2 * len(plan.less.thresholds) + 32, math.inf
    if most_uses is not None and most_uses <= ages:
        ages, weight = most_uses, weight_of_empty(most_uses)
    if ahead and plan.best.multiplier and independent.affordable:
        window = np.append(recent[-WINDOW:], ahead)
        if window.mean() <= allowance:
            return independent  # the allowance pays for every price: no need to wait
        keeping = keeping_costs(
            min(ages, LONGEST_LIFE), weight if ages <= LONGEST_LIFE else math.inf
        )
        usual = plan.best.multiplier
        is_near = usual / FARTHEST <= near <= usual * FARTHEST
        behind = continuation(window, allowance, near if is_near else usual, keeping)
        return replace(
            independent, behind=tuple(behind.values.tolist()), informed=behind.multiplier
        )
    if (
        groups == 1
        or not plan.best.multiplier
        or ages > LONGEST_CHAIN
        or not independent.affordable
    ):
        return independent
    chain = PriceChain.from_prices(recent, groups)
    if chain is None:
        return independent
    rules = plan_chain(chain, allowance, plan.best, ages, weight)
    if rules is None:
        return independent
    _, less = rules
    filling = tuple(_any(price, law.highest) for price in less.filling())
    return replace(
        independent,
        edges=chain.edges,
        by_group=less.by_group(),
        filling=() if most_uses is None else filling,
    )


def by_orders(by_uses: tuple[float, ...], chance: float) -> tuple[float, ...]:
    """Return thresholds by orders since the purchase, given those by uses from the first on.

    A sample that is a orders old has been used about q·a times.

    >>> by_orders((2.0, 3.0), chance=0.5)
    (1.0, 2.0, 2.5, 3.0)
    """
    if chance == 1:
        return by_uses
    orders = min(math.ceil(len(by_uses) / chance), LONGEST_LIFE)
    uses = chance * np.arange(1, orders + 1)
    rule: list[float] = np.interp(uses, np.arange(len(by_uses) + 1), [0.0, *by_uses]).tolist()
    return tuple(rule)


def _weight(ages: int, most_uses: int | None) -> float:
    """Return w if the last age stands for an empty slot, else infinity."""
    return weight_of_empty(most_uses) if most_uses == ages else math.inf


def _any(price: float, highest: float) -> float:
    """Return the price, or infinity if no known price is higher."""
    return price if price < highest else math.inf
