"""The choice among candidates by what they are worth."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tidegate._internal.arguments import check_number, check_whole_number
from tidegate._internal.randomness import generator, seed_of
from tidegate.wire import LARGEST_CAPACITY, MOST_CANDIDATES


@dataclass(frozen=True)
class Selection:
    """How many candidates a client looks at, and how it chooses among them."""

    candidates: int = 20
    """New ones that the client reads from its stream for each order; more where the order asks for
    more samples than that."""
    backlog: int = 100
    """Candidates that were not chosen and wait for the next order, at most; newer ones push the
    oldest out. 0 passes over whatever was not chosen at once."""
    random_share: float = 0.3
    """The share of choices that is made at random, whatever the candidates are worth. With 0, a
    client that stores little holds only what the model is unsure of, and no longer knows the rest.
    """
    seed: int = 0
    """Of what is drawn at random; with another one, chance chooses other candidates."""

    def __post_init__(self) -> None:
        without = "without a selection the gate takes samples as they come"
        most, largest = MOST_CANDIDATES, LARGEST_CAPACITY
        check_whole_number("candidates", self.candidates, most=most, remedy=without)
        check_whole_number("backlog", self.backlog, least=0, most=largest)
        check_number(
            "random_share",
            self.random_share,
            "a number from 0 to 1",
            lambda given: 0 <= given <= 1,
            "0.1 chooses one sample in ten at random",
        )
        check_whole_number("seed", self.seed, least=0)

    def choose(self, worths: Sequence[float], count: int, place: Sequence[str | int]) -> list[int]:
        """The candidates to buy, best first; equal ones in random order.

        Args:
            worths: one a candidate; NaN is worth least.
            count: candidates to choose; fewer are given if there are not so many.
            place: texts and numbers; randomness depends on them and on the seed alone.

        >>> Selection().choose([0.1, 0.9, 0.5], 2, ["client-0", 7])
        [1, 2]
        """
        draw = generator(seed_of(place) + self.seed)
        values = np.nan_to_num(np.asarray(worths, dtype=np.float64), nan=-np.inf)
        shuffled = draw.permutation(len(values))
        by_worth = shuffled[np.argsort(-values[shuffled], kind="stable")]
        by_chance = draw.permutation(len(values))
        at_random = draw.random(len(values)) < self.random_share
        chosen: dict[int, None] = {}  # a set that keeps its order
        places = {True: iter(by_chance), False: iter(by_worth)}
        for now in range(min(count, len(values))):
            left = (one for one in places[bool(at_random[now])] if int(one) not in chosen)
            chosen[int(next(left))] = None
        return list(chosen)
