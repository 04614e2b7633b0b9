"""Randomness has an address: no generator is global, none depends on who drew before it."""

from typing import Final

import numpy as np

from tidegate._internal.arguments import check_whole_number

PRICES: Final = 1
"""Address of the price path of a run."""
STREAM: Final = 2
"""Address of the order in which a client meets its samples, followed by the client's number."""
COHORTS: Final = 3
"""Address of who takes part in each round."""
ALTERED: Final = 4
"""Address of wrong labels and rare classes in a client's data, followed by the client's number."""


def generator(seed: int, *place: int) -> np.random.Generator:
    """Independent generator for one place in a run, for example ``(PRICES,)``.

    Two policies compared on one seed draw from the same address, and so meet the same prices.

    >>> bool(generator(7, PRICES).random() == generator(7, PRICES).random())
    True
    >>> bool(generator(7, PRICES).random() == generator(8, PRICES).random())
    False
    """
    check_whole_number("seed", seed, least=0)
    return np.random.default_rng(np.random.SeedSequence(seed, spawn_key=place))
