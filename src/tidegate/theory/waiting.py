"""The price that is worth waiting for, where every round of waiting costs the same."""

from tidegate.theory.distribution import PriceDistribution

PRECISION = 1e-15
"""Relative, of the price."""
MOST_STEPS = 200


def price_to_wait_for(prices: PriceDistribution, loss: float) -> float:
    """θ with E[max(θ - c, 0)] = loss: take a price up to θ, and wait at a higher one.

    The left side is convex in θ, so Newton's method from above never steps too far.

    Args:
        prices: how prices are distributed.
        loss: money that one round of waiting costs; where it costs nothing, only what is free is
            taken.

    >>> from tidegate.theory.distribution import UniformDistribution
    >>> price_to_wait_for(UniformDistribution(1, 10), loss=0.5)
    4.0
    >>> price_to_wait_for(UniformDistribution(1, 10), loss=6.0)  # any price will do
    11.5
    """
    if loss <= 0:
        return 0.0
    price = prices.highest
    if loss >= price - prices.mean:
        return prices.mean + loss
    for _ in range(MOST_STEPS):
        likely, paid = prices.up_to(price)
        if not likely:
            break  # a loss too small to be seen
        step = price - (paid + loss) / likely
        if step <= PRECISION * price:
            break
        price -= step
    return price
