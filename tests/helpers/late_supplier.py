"""A supplier that answers rounds later, refuses, pays back, repeats itself and fails."""

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from tidegate.client.supplier import Delivered, Outcome, Refused, Request


@dataclass
class LateSupplier:
    """Keeps a bill by keys; what it will do is drawn from its number alone."""

    number: int
    longest_delay: int = 8
    now: int = 0
    bill: dict[str, float] = field(default_factory=dict)
    """Price of each key that it was ever asked for, once."""
    due: dict[str, int] = field(default_factory=dict)
    outcomes: dict[str, Outcome] = field(default_factory=dict)
    """What will be said of each key from its time on."""
    unusable: Callable[[str], bool] = lambda sample: False
    fails_after: int | None = None
    """Requests or outcomes after which a call fails."""
    dies: Callable[[], None] | None = None
    """What happens in place of failing."""

    def _random(self, *place: object) -> random.Random:
        return random.Random(f"{self.number} {place}")  # noqa: S311

    def _maybe_fail(self) -> None:
        if self.fails_after is None:
            return
        self.fails_after -= 1
        if self.fails_after < 0:
            self.fails_after = None
            if self.dies is not None:
                self.dies()
            raise ConnectionError("the supplier does not answer")

    def ask(self, requests: Sequence[Request]) -> None:
        for one in requests:
            self._maybe_fail()
            if one.key in self.bill:
                continue
            self.bill[one.key] = one.price
            draw = self._random(one.key)
            self.due[one.key] = self.now + draw.randint(0, self.longest_delay)
            kind = draw.random()
            self.outcomes[one.key] = (
                Delivered(one.key, "label")
                if kind < 0.7
                else Refused(one.key, refunded=kind < 0.9, reason="nobody knows")
            )
        self._maybe_fail()

    def collect(self, keys: Sequence[str]) -> Iterator[Outcome]:
        for key in keys:
            self._maybe_fail()
            if self.due.get(key, self.now + 1) <= self.now:
                yield self.outcomes[key]
        draw = self._random("again", self.now)
        for key in self.outcomes:  # also what was said before, and asked by nobody
            if self.due[key] <= self.now and draw.random() < 0.1:
                yield self.outcomes[key]

    def cancel(self, keys: Sequence[str]) -> Iterator[Outcome]:
        for key in keys:
            self._maybe_fail()
            if key not in self.bill:
                yield Refused(key, refunded=True, reason="never asked")
            elif self.due[key] > self.now:
                draw = self._random("cancelled", key).random()
                if draw < 0.2:
                    continue  # still under way
                self.outcomes[key] = Refused(key, refunded=draw < 0.7, reason="cancelled")
                self.due[key] = self.now
                yield self.outcomes[key]
            else:
                yield self.outcomes[key]

    def complete(self, sample: str, answer: str) -> str:
        assert answer == "label"
        if self.unusable(sample):
            raise LookupError(f"nobody can read the label of {sample}")
        return sample

    def charged(self, keys: Sequence[str]) -> float:
        """What these keys cost, without what was paid back."""
        return sum(self.bill[key] for key in keys if key in self.bill and not self._is_back(key))

    def _is_back(self, key: str) -> bool:
        outcome = self.outcomes[key]
        return self.due[key] <= self.now and isinstance(outcome, Refused) and outcome.refunded
