"""The cost-debt queue, and the spend certificate that follows from it.

The sum of Z(τ+1) >= Z(τ) + C_τ - C over τ = 1..t, with Z(1) = 0, is

    total overspend up to t  =  Σ (C_τ - C)  <=  Z(t+1),

on every path of prices and for every decision. Tidegate calls this the spend certificate.
"""

import numpy as np
from numpy.typing import ArrayLike

ROUNDING = 1e-12
"""The relative rounding error of a sum of money."""


def next_cost_debt(debt: float, spent: float, budget: float) -> float:
    """Return the debt of the next round, Z(t+1) = max(Z(t) + C_t - C, 0).

    >>> next_cost_debt(debt=3.0, spent=60.0, budget=55.0)
    8.0
    """
    return max(debt + spent - budget, 0.0)


def certificate_holds(overspend: ArrayLike, cost_debt: ArrayLike, spent: ArrayLike) -> bool:
    """Return whether total overspend up to t was at most Z(t+1) at every t, up to rounding.

    Args:
        overspend: Σ (C_τ - C) up to each round.
        cost_debt: Z(t+1) of each round.
        spent: C_t; sums of larger amounts have a larger rounding error.

    >>> certificate_holds(overspend=[5.0, -50.0], cost_debt=[5.0, 0.0], spent=[60.0, 0.0])
    True
    >>> certificate_holds(overspend=[5.0, 5.1], cost_debt=[5.0, 5.0], spent=[60.0, 55.1])
    False
    """
    above, debt = np.asarray(overspend, dtype=float), np.asarray(cost_debt, dtype=float)
    largest = max(np.max(debt), np.max(np.abs(above)), np.max(spent))
    rounding = 4 * len(debt) * np.finfo(float).eps * largest
    return bool(np.min(debt - above) >= -rounding)
