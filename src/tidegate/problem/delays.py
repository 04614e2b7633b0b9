"""How long a purchase takes: rounds from the order that buys a sample to its first training."""

from dataclasses import dataclass

import numpy as np

from tidegate._internal.arguments import check_whole_number, is_number
from tidegate._internal.arrays import IntArray
from tidegate._internal.randomness import DELAYS, uniform_at
from tidegate._internal.words import counted
from tidegate.errors import ConfigurationError

LONGEST = 1_000_000
"""Rounds; a sample that takes longer is of no use."""
FORMS = "a whole number of rounds, such as 10, or uniform:SHORTEST,LONGEST, such as uniform:1,20"


@dataclass(frozen=True)
class Delays:
    """Rounds until a purchased sample trains, drawn uniformly between two ends.

    0 is for samples that train in the round that buys them. Later samples arrive with the next
    order at the earliest, which is 1.

    >>> Delays.read("uniform:1,20")
    Delays(shortest=1, longest=20)
    >>> Delays(1, 3).draw(0, np.array([0, 0, 0, 0]), np.array([1, 2, 3, 4]))
    array([2, 1, 2, 1])
    """

    shortest: int = 0
    longest: int = 0

    def __post_init__(self) -> None:
        check_whole_number("the longest delay", self.longest, least=0, most=LONGEST)
        least = min(self.longest, 1)
        remedy = "a sample that arrives later arrives with the next order at the earliest"
        if is_number(self.shortest) and self.shortest > self.longest:
            remedy = "give the shortest delay first, then the longest"
        check_whole_number(
            "the shortest delay", self.shortest, least=least, most=self.longest, remedy=remedy
        )

    @classmethod
    def read(cls, text: str) -> "Delays":
        """Read delays from a short text, as on the command line: ``10`` or ``uniform:1,20``.

        >>> Delays.read("10")
        Delays(shortest=10, longest=10)
        """
        kind, law, ends = text.rpartition(":")
        numbers = [part.strip() for part in ends.split(",")]
        expected = (2, "uniform") if law else (1, "")
        if (len(numbers), kind) != expected or not all(one.isdecimal() for one in numbers):
            raise ConfigurationError(f"delay must be {FORMS}; got {text!r}")
        return cls(int(numbers[0]), int(numbers[-1]))

    @property
    def none(self) -> bool:
        """Whether samples train in the round that buys them."""
        return not self.longest

    @property
    def constant(self) -> bool:
        """Whether all purchases take equally long."""
        return self.shortest == self.longest

    @property
    def told(self) -> str:
        """The delays in words.

        >>> Delays(1, 1).told, Delays(1, 20).told
        ('1 round', '1 to 20 rounds')
        """
        if self.shortest == self.longest:
            return counted(self.longest, "round")
        return f"{self.shortest:,} to {self.longest:,} rounds"

    def draw(self, seed: int, clients: IntArray, purchases: IntArray) -> IntArray:
        """Return how long purchases take, each given by its client and its number from 1.

        The same purchase takes equally long whatever else is bought, so that policies can be
        compared.
        """
        choices = self.longest - self.shortest + 1
        drawn = uniform_at(seed, DELAYS, clients, purchases)
        rounds: IntArray = self.shortest + (choices * drawn).astype(np.int64)
        return rounds


def delay_text(given: object) -> object:
    """Return a delay of a configuration file as a text: TOML has numbers, and a number is a delay.

    >>> delay_text(10), delay_text("uniform:1,20")
    ('10', 'uniform:1,20')
    """
    return str(given) if is_number(given) else given
