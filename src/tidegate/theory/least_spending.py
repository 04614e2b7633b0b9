"""The least that a slot can spend if its sample must be replaced by some age."""

from tidegate.theory.distribution import PriceDistribution

PRECISION = 1e-12
"""Relative."""
MOST_STEPS = 100


def least_spending(prices: PriceDistribution, longest_life: int) -> float:
    """Return the money a round of the cheapest rule, which waits at most L rounds for a low price.

    Waiting another round is better if the price c exceeds the expected cost of waiting,
    w(a) = E[min(c, w(a+1))] - s, with w(L) = E[c] - s. The least rate s is the one with w(1) = 0;
    Newton's method finds it, as for the limit (``optimum``).

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
