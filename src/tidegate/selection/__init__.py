"""Which samples to buy: numbers that say how much a candidate is worth, and the choice by them."""

from tidegate.selection.choice import Selection
from tidegate.selection.worth import (
    RANKINGS,
    at_random,
    balanced,
    entropy,
    find_ranking,
    least_confidence,
    margin,
)

__all__ = [
    "RANKINGS",
    "Selection",
    "at_random",
    "balanced",
    "entropy",
    "find_ranking",
    "least_confidence",
    "margin",
]
