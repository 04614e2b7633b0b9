"""Where a running server tells what it does: files, Prometheus, TensorBoard, MLflow.

A sink sees every round that is settled and everything that is measured about the model. What a sink
raises is logged and goes no further: watching a run never stops it.
"""

import dataclasses
import logging
import math
import numbers
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Literal, Protocol

from tidegate.controller import FleetRound

Source = Literal["server", "train", "clients"]
"""Who measured: the server's own evaluation, clients while they train, or while they evaluate."""

logger = logging.getLogger("flwr.tidegate")


@dataclass(frozen=True)
class Moment:
    """A round that is settled, and the fleet after it."""

    done: FleetRound
    budget: float
    """C; of a shard, about what it is granted."""
    slots: int
    """Of all clients that are planned for."""
    away: int
    """Of these, clients that cannot be reached."""

    def numbers(self) -> dict[str, float]:
        """Everything as plain numbers, by name; the round's own number is not among them."""
        told = {name: float(value) for name, value in dataclasses.asdict(self.done).items()}
        del told["round_number"]
        return told | {"budget": self.budget, "slots": self.slots, "away": self.away}


class Sink(Protocol):
    """Somebody who is told."""

    def decided(self, round_number: int, price: float) -> None:
        """A round has its price and its orders, which are about to be sent."""
        ...

    def settled(self, moment: Moment) -> None:
        """A round is over; its books are on disk."""
        ...

    def measured(self, round_number: int, source: Source, metrics: Mapping[str, float]) -> None:
        """Accuracy and the like of the model after a round."""
        ...

    def close(self) -> None:
        """The run is over, or its server stops."""
        ...


class Sinks:
    """All sinks of a run; one that fails is told of in the log, once, and the others go on."""

    def __init__(self, sinks: Iterable[Sink]) -> None:
        self._sinks = list(sinks)
        self._failed: set[int] = set()

    def decided(self, round_number: int, price: float) -> None:
        """Tell all of them."""
        self._each(lambda sink: sink.decided(round_number, price))

    def settled(self, moment: Moment) -> None:
        """Tell all of them."""
        self._each(lambda sink: sink.settled(moment))

    def measured(
        self, round_number: int, source: Source, metrics: Mapping[str, object] | None
    ) -> None:
        """Tell all of them, of what is a finite number."""
        plain = {
            name: float(value)
            for name, value in (metrics or {}).items()
            if isinstance(value, numbers.Real) and math.isfinite(value)
        }
        if plain:
            self._each(lambda sink: sink.measured(round_number, source, plain))

    def close(self) -> None:
        """Tell all of them."""
        self._each(lambda sink: sink.close())

    def _each(self, tell: Callable[[Sink], None]) -> None:
        for number, sink in enumerate(self._sinks):
            try:
                tell(sink)
            except Exception as wrong:  # whatever it is, the run goes on
                if number not in self._failed:
                    self._failed.add(number)
                    logger.warning("%s cannot be told: %r", type(sink).__name__, wrong)
