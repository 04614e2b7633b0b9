"""The cost-debt queue, and the certificate it gives for nothing.

Summing Z(τ+1) >= Z(τ) + C_τ - C over τ = 1..t, with Z(1) = 0, leaves

    total overspend up to t  =  Σ (C_τ - C)  <=  Z(t+1),

on every path of prices, whatever was decided. Tidegate calls this the spend certificate.
"""

ROUNDING = 1e-12
"""Relative, of a sum of money."""


def next_cost_debt(debt: float, spent: float, budget: float) -> float:
    """Debt carried into the next round: Z(t+1) = max(Z(t) + C_t - C, 0).

    >>> next_cost_debt(debt=3.0, spent=60.0, budget=55.0)
    8.0
    """
    return max(debt + spent - budget, 0.0)


def cash(budget: float, round_number: int, overspend: float) -> float:
    """What may be spent in a round if no more than C·t is ever spent by its end.

    A little less, so that the sums of a long run cannot exceed C·t by rounding.

    Args:
        budget: C.
        round_number: t.
        overspend: Σ (C_τ - C) over the rounds before, and what they may still turn out to cost.

    >>> round(cash(budget=55.0, round_number=3, overspend=-10.0), 6)
    65.0
    """
    return budget - overspend - ROUNDING * budget * round_number
