"""The least that a slot can spend at all, if its sample must go at some age."""

from tidegate.theory.distribution import PriceDistribution

PRECISION = 1e-12
"""Relative."""
MOST_STEPS = 100


def least_spending(prices: PriceDistribution, longest_life: int) -> float:
    """Money a round of the rule that spends least: it waits for a low price, L rounds at most.

    A life is worth waiting for another round where the price c lies above what waiting will cost,
    w(a) = E[min(c, w(a+1))] - s, with w(L) = E[c] - s; at the least rate s a life costs nothing
    beyond it, w(1) = 0. Newton's method on s, as for the limit itself (``optimum``).

    >>> from tidegate.theory.distribution import UniformDistribution
    >>> round(least_spending(UniformDistribution(1, 10), longest_life=1), 2)
    5.5
    >>> round(least_spending(UniformDistribution(1, 10), longest_life=2), 3)
    2.655
    """
    rate = prices.mean / longest_life
    for _ in range(MOST_STEPS):
        beyond, length = prices.mean - rate, 1.0
        for _ in range(longest_life - 1):
            replaced, paid = prices.up_to(beyond)
            kept = 1.0 - replaced
            beyond, length = paid + kept * beyond - rate, 1.0 + kept * length
        better = rate + beyond / length
        if rate - better <= PRECISION * rate:
            break
        rate = better
    return better
