"""Randomness has an address: no generator is global, none depends on who drew before it."""

import hashlib
import json
from collections.abc import Sequence
from typing import Final

import numpy as np

from tidegate._internal.arguments import check_whole_number
from tidegate._internal.arrays import FloatArray, IntArray

PRICES: Final = 1
"""Address of the price path of a run."""
STREAM: Final = 2
"""Address of the order in which a client meets its samples, followed by the client's number."""
COHORTS: Final = 3
"""Address of who takes part in each round."""
ALTERED: Final = 4
"""Address of wrong labels and rare classes in a client's data, followed by the client's number."""
DELAYS: Final = 5
"""Address of how long purchases take, followed by the client's number and the purchase's."""

TRAINING: Final = 6
"""Address of which of equally used samples train, followed by the round."""


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


def seed_of(place: Sequence[str | int]) -> int:
    """Return a seed for an address with names in it, the same in every process.

    Python's own hash of a text is not.
    """
    return int.from_bytes(hashlib.sha256(json.dumps(list(place)).encode()).digest()[:8], "big")


def uniform_at(seed: int, place: int, *numbers: IntArray) -> FloatArray:
    """Numbers in [0, 1), one for each address, where a generator for each would cost too much.

    Args:
        seed: of the run.
        place: what is drawn, for example ``DELAYS``.
        numbers: the rest of the addresses, part by part; 0 or more.

    >>> both = uniform_at(7, DELAYS, np.array([0, 1]), np.array([4, 4]))
    >>> bool(both[1] == uniform_at(7, DELAYS, np.array([1]), np.array([4]))[0]), both.round(2)
    (True, array([0.55, 0.01]))
    """
    check_whole_number("seed", seed, least=0)
    start = np.random.SeedSequence(seed, spawn_key=(place,)).generate_state(1, np.uint64)
    mixed = np.broadcast_to(start, np.shape(numbers[0])).copy()
    for part in numbers:  # SplitMix64, once for each part of the address
        mixed += (part.astype(np.uint64) + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)
        mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        mixed ^= mixed >> np.uint64(31)
    return (mixed >> np.uint64(11)).astype(np.float64) * 2.0**-53
