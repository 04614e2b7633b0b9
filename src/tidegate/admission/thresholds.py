"""The rule that Tide sends out: solved for the prices seen, and for the money of a round."""

import math
from dataclasses import dataclass, field, replace

from tidegate._internal.arrays import FloatArray
from tidegate._internal.saving import ADDED
from tidegate.admission.price_memory import PriceMemory
from tidegate.theory.filling import filling_threshold
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


def solve(
    seen: PriceMemory,
    recent: FloatArray,
    allowance: float,
    groups: int,
    most_uses: int | None,
) -> Thresholds:
    """The best rule for an allowance, if the prices seen are all there are.

    Args:
        seen: all prices.
        recent: the last of them, in order.
        allowance: money for a slot and round.
        groups: of prices, between which the next may depend on the present one.
        most_uses: U, none for no cap.
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
    )
    ages, weight = 2 * len(plan.less.thresholds) + 32, math.inf
    if most_uses is not None and most_uses <= ages:
        ages, weight = most_uses, weight_of_empty(most_uses)
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


def _any(price: float, highest: float) -> float:
    """A price, or infinity where no price that is known lies above it."""
    return price if price < highest else math.inf
