"""The price up to which an empty slot should be filled instead of waiting."""

from tidegate.theory.distribution import PriceDistribution
from tidegate.theory.optimum import SlotPlan
from tidegate.theory.waiting import price_to_wait_for


def filling_threshold(prices: PriceDistribution, plan: SlotPlan) -> float:
    """Return θ(0), the price up to which to fill an empty slot that will stay full.

    N_eff = S²/Q with S = ΣA and Q = ΣA² changes like 2q·dS - dQ, where q = Q/S. A slot in use adds
    2q - q a round, for money that is worth μ times its spending, so an empty slot loses
    q - μ·spent. Waiting for a price of at most θ pays as long as it saves more than that:
    E[max(θ - c, 0)] = (q - μ·spent) / μ.

    >>> from tidegate.theory.distribution import UniformDistribution
    >>> from tidegate.theory.optimum import plan_slots
    >>> uniform = UniformDistribution(1, 10)
    >>> round(filling_threshold(uniform, plan_slots(uniform, allowed=0.55)), 2)
    3.15
    """
    multiplier = plan.best.multiplier
    if not multiplier:
        return prices.highest
    return price_to_wait_for(prices, plan.growth / multiplier - plan.spent)
