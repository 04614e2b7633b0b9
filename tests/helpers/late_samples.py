"""A supplier that delivers every sample after a drawn delay, and counts rounds by itself."""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from tidegate.client.supplier import Delivered, Outcome, Request
from tidegate.problem.delays import Delays


class DelayedSamples:
    """Delays are drawn as the simulation draws them; the test moves ``now``."""

    def __init__(self, delays: Delays, seed: int, client: int) -> None:
        self._delays, self._seed, self._client = delays, seed, np.array([client])
        self._due: dict[str, int] = {}
        self.now = 0

    def ask(self, requests: Sequence[Request]) -> None:
        for one in requests:
            place = np.array([int(one.key.rpartition("/")[2])])
            delay = int(self._delays.draw(self._seed, self._client, place)[0])
            self._due.setdefault(one.key, self.now + delay)

    def collect(self, keys: Sequence[str]) -> Iterator[Outcome]:
        return (Delivered(key, None) for key in keys if self._due[key] <= self.now)

    def cancel(self, keys: Sequence[str]) -> Iterator[Outcome]:
        return iter(())

    def complete(self, sample: Any, answer: None) -> Any:
        return sample
