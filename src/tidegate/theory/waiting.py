"""The price to wait for, if every round of waiting costs the same."""

from tidegate.theory.distribution import PriceDistribution

PRECISION = 1e-15
"""The relative precision of the price."""
MOST_STEPS = 200


def price_to_wait_for(prices: PriceDistribution, loss: float) -> float:
    """Return θ with E[max(θ - c, 0)] = loss: buy at a price up to θ, and wait at a higher one.

    The left side is convex in θ, so Newton's method from above never overshoots.

    Args:
        prices: the distribution of prices.
        loss: the money that one round of waiting costs; if it is 0, θ is 0.

    >>> from tidegate.theory.distribution import UniformDistribution
    >>> price_to_wait_for(UniformDistribution(1, 10), loss=0.5)
    4.0
    >>> price_to_wait_for(UniformDistribution(1, 10), loss=6.0)  # buy at any price
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
            break  # the loss is below the precision
        step = price - (paid + loss) / likely
        if step <= PRECISION * price:
            break
        price -= step
    return price
