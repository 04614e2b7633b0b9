"""The cost-debt queue, and the certificate it gives for nothing.

Summing Z(τ+1) >= Z(τ) + C_τ - C over τ = 1..t, with Z(1) = 0, leaves

    total overspend up to t  =  Σ (C_τ - C)  <=  Z(t+1),

on every path of prices, whatever was decided. Tidegate calls this the spend certificate.
"""


def next_cost_debt(debt: float, spent: float, budget: float) -> float:
    """Debt carried into the next round: Z(t+1) = max(Z(t) + C_t - C, 0).

    >>> next_cost_debt(debt=3.0, spent=60.0, budget=55.0)
    8.0
    """
    return max(debt + spent - budget, 0.0)
