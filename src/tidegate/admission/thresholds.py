"""The rule that Tide sends out: solved for the prices seen, and for the money of a round."""

import bisect
import math
from dataclasses import dataclass, field, replace

import numpy as np

from tidegate._internal.arrays import FloatArray
from tidegate._internal.saving import ADDED
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

LONGEST_LIFE = 1000
"""Rounds, and thresholds in an order. A budget that does not pay for replacing a sample in so many
rounds is spent as it comes in, at the cheapest rule's prices."""
PRECISION = 1e-5
"""Relative, of what a rule costs; the prices seen say less."""
LONGEST_CHAIN = 256
"""Ages planned for at most where prices depend on each other: twice those that the rule for
independent prices needs, and 32. Longer lives are planned as if prices were independent."""
WINDOW = 512
"""Rounds of the past from which it is learned what follows the prices that are known ahead."""
OTHER_ALLOWANCE = 0.05
"""A rule is solved again when the money for a slot and round has moved by this part."""


@dataclass(frozen=True)
class Thresholds:
    """What was solved last, and for what."""

    round_number: int = 0
    allowance: float = 0.0
    """Money for a slot and round."""
    spends: float = 0.0
    """What the rule spends of it; less only where every sample is replaced in every round."""
    shadow_price: float = 0.0
    """μ: growth of ΣA² that one unit of money more would save, at what is spent; where all is
    replaced, the last that it saved."""
    highest: float = -1.0
    """Of the prices that were seen; a higher one may need another rule."""
    affordable: bool = True
    """Whether the allowance pays for the rule."""
    empty: float = 0.0
    """θ(0)."""
    edges: tuple[float, ...] = ()
    """Prices at which another group of prices begins; none where prices are independent."""
    by_group: tuple[tuple[float, ...], ...] = ()
    """For each group of prices, θ(1), θ(2), ... of a rule that spends the allowance or less."""
    filling: tuple[float, ...] = field(default=(), metadata=ADDED)
    """For each group of prices, the price up to which a slot is filled that a cap on uses has
    emptied; infinity for any price. Nothing without a cap."""
    behind: tuple[float, ...] = field(default=(), metadata=ADDED)
    """Where prices are known ahead: h(a) - h(1) behind the last of them (``theory.known_prices``).
    """
    informed: float = field(default=0.0, metadata=ADDED)
    """Beside these, μ of a slot that knows them."""
    looked_ahead: bool = field(default=False, metadata=ADDED)
    """Whether prices were known ahead when this was solved."""

    def at(
        self, price: float, ahead: tuple[float, ...], most_uses: int | None
    ) -> tuple[tuple[float, ...], float | None]:
        """θ(1), θ(2), ... at a price, and the price up to which what a cap has emptied is filled.

        Args:
            price: of the round, for all clients or on average.
            ahead: prices of the next rounds, as far as they are known.
            most_uses: U, none for no cap.
        """
        group = bisect.bisect_right(self.edges, price)
        by_age, filling = self.by_group[group], self.filling[group] if self.filling else None
        if not (ahead and self.behind):
            return by_age, filling
        ages = len(self.behind)
        keeping = keeping_costs(ages, _weight(ages, most_uses))
        rule = thresholds_now(ahead, self.informed, np.array(self.behind), keeping)
        # Where prices ahead cost next to nothing, any price will do: the highest that was seen.
        known = np.minimum(rule, max(self.highest, price)).tolist()
        if ages == most_uses:
            filling = known.pop()
        # All that are older than one that is replaced at this price are replaced, too.
        return tuple(known[: bisect.bisect_left(known, price) + 1]), filling


def solve(
    seen: PriceMemory,
    recent: FloatArray,
    allowance: float,
    groups: int,
    most_uses: int | None,
    ahead: tuple[float, ...] = (),
    near: float = 0.0,
) -> Thresholds:
    """The best rule for an allowance, if the prices seen are all there are.

    Args:
        seen: all prices.
        recent: the last of them, in order.
        allowance: money for a slot and round.
        groups: of prices, between which the next may depend on the present one.
        most_uses: U, none for no cap.
        ahead: prices of the next rounds, as far as they are known.
        near: μ of a slot that knows them, as it was solved last; 0 for the first time.
    """
    law = seen.distribution()
    plan = plan_slots(
        law, allowance, most_uses=most_uses, longest_life=LONGEST_LIFE, precision=PRECISION
    )
    independent = Thresholds(
        allowance=allowance,
        spends=min(plan.spent, allowance),
        shadow_price=plan.best.multiplier or 2 / max(law.highest, allowance),
        affordable=plan.spent <= (1 + OTHER_ALLOWANCE) * allowance,
        empty=filling_threshold(law, plan),
        by_group=(plan.less.thresholds,),
        filling=() if most_uses is None else (_any(plan.less.filling, law.highest),),
        looked_ahead=bool(ahead),
    )
    ages, weight = 2 * len(plan.less.thresholds) + 32, math.inf
    if most_uses is not None and most_uses <= ages:
        ages, weight = most_uses, weight_of_empty(most_uses)
    if ahead and plan.best.multiplier and independent.affordable:
        window = np.append(recent[-WINDOW:], ahead)
        if window.mean() <= allowance:
            return independent  # all of them can be paid: there is nothing to wait for
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


def _weight(ages: int, most_uses: int | None) -> float:
    """w, where the last of so many ages is that of an empty slot; infinity where none is."""
    return weight_of_empty(most_uses) if most_uses == ages else math.inf


def _any(price: float, highest: float) -> float:
    """A price, or infinity where no price that is known lies above it."""
    return price if price < highest else math.inf
