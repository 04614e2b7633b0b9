"""Where a running server tells what it does: files, Prometheus, TensorBoard, MLflow.

A sink sees every round that is settled and everything that is measured about the model. It is told
by a thread of its own, and what it raises is logged and goes no further: watching a run never stops
it, and does not hold it up.
"""

import dataclasses
import logging
import math
import numbers
import queue
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Literal, Protocol

from tidegate.controller import FleetRound

Source = Literal["server", "train", "clients"]
"""Who measured: the server's own evaluation, clients while they train, or while they evaluate."""

MOST_WAITING = 1000
"""Of what a slow sink has not been told yet."""
SECONDS_AT_END = 20.0
"""That a slow sink has when the run is over."""

logger = logging.getLogger("flwr.tidegate")


@dataclass(frozen=True)
class Moment:
    """A round that is settled, and the fleet after it."""

    done: FleetRound
    budget: float
    """C; of a shard, about what it is granted."""
    away: int
    """Clients that are planned for and cannot be reached."""

    def numbers(self) -> dict[str, float]:
        """Everything as plain numbers, by name; the round's own number is not among them."""
        told = {name: float(value) for name, value in dataclasses.asdict(self.done).items()}
        del told["round_number"]
        return told | {"budget": self.budget, "away": self.away}


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

    def close(self, *, failed: bool) -> None:
        """The run is over, or its server stops with an error."""
        ...


Tell = Callable[[Sink], None]


class Sinks:
    """All sinks of a run.

    The first, which writes beside the checkpoint, is told at once. Each of the others has a thread
    and a queue of its own: one that is slow or gone holds nobody up, and what does not fit into its
    queue is lost to it alone.

    Args:
        others: the user's own.
        first: of the run itself, if it has a folder.
    """

    def __init__(self, others: Iterable[Sink], first: Sink | None = None) -> None:
        self._first = None if first is None else _Told(first)
        self._others = [_Line(sink) for sink in others]

    @contextmanager
    def open(self) -> Iterator[None]:
        """While a run goes on; at the end all are closed, and told whether it failed."""
        for line in self._others:
            line.start()
        failed = True
        try:
            yield
            failed = False
        finally:
            self._all(lambda sink: sink.close(failed=failed))
            for line in self._others:
                line.finish()

    def decided(self, round_number: int, price: float) -> None:
        """Tell all of them."""
        self._all(lambda sink: sink.decided(round_number, price))

    def settled(self, moment: Moment) -> None:
        """Tell all of them."""
        self._all(lambda sink: sink.settled(moment))

    def measured(
        self, round_number: int, source: Source, metrics: Mapping[str, object] | None
    ) -> None:
        """Tell all of them, of what is a finite number."""
        plain = {
            name: number
            for name, value in (metrics or {}).items()
            if (number := _plain(value)) is not None
        }
        if plain:
            self._all(lambda sink: sink.measured(round_number, source, plain))

    def _all(self, tell: Tell) -> None:
        if self._first is not None:
            self._first.tell(tell)
        for line in self._others:
            line.put(tell)


class _Told:
    """A sink that is told at once; what it raises is logged the first time."""

    def __init__(self, sink: Sink) -> None:
        self._sink = sink
        self._failed = False

    @property
    def name(self) -> str:
        """For the log."""
        return type(self._sink).__name__

    def tell(self, tell: Tell) -> None:
        """Whatever it raises, the run goes on."""
        try:
            tell(self._sink)
        except Exception as wrong:
            if not self._failed:
                logger.warning("%s cannot be told: %r", self.name, wrong)
            self._failed = True


class _Line:
    """A sink that is told by a thread of its own."""

    def __init__(self, sink: Sink) -> None:
        self._told = _Told(sink)
        self._waiting: queue.Queue[Tell | None] = queue.Queue(MOST_WAITING)
        self._thread = threading.Thread(target=self._work, daemon=True)
        self._lost = False

    def start(self) -> None:
        """Begin to tell."""
        self._thread = threading.Thread(target=self._work, daemon=True)
        self._thread.start()

    def put(self, tell: Tell | None) -> None:
        """Tell it as soon as it has time."""
        try:
            self._waiting.put_nowait(tell)
        except queue.Full:
            if not self._lost:
                logger.warning("%s is too slow, and is not told of everything", self._told.name)
            self._lost = True

    def finish(self) -> None:
        """Wait a little until all is told."""
        self.put(None)
        self._thread.join(SECONDS_AT_END)
        if self._thread.is_alive():
            logger.warning("%s is not done, and is left alone", self._told.name)

    def _work(self) -> None:
        while (tell := self._waiting.get()) is not None:
            self._told.tell(tell)


def _plain(value: object) -> float | None:
    """A finite number, if it is one."""
    try:
        number = float(value) if isinstance(value, numbers.Real) else math.nan
    except OverflowError:
        return None
    return number if math.isfinite(number) else None
