"""Where a running server tells what it does: files, Prometheus, TensorBoard, MLflow.

A sink sees every round that is settled and everything that is measured about the model. It is told
by a thread of its own, and what it raises is logged and goes no further: watching a run never stops
it, and holds it up at its end alone, for a few seconds at most.
"""

import dataclasses
import logging
import numbers
import queue
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Generic, Literal, Protocol, TypeVar, runtime_checkable

from tidegate._internal.arguments import shown
from tidegate.errors import ConfigurationError
from tidegate.server.fleet_round import FleetRound

Source = Literal["server", "train", "clients"]
"""Who measured: the server's own evaluation, clients while they train, or while they evaluate."""

TOLD = ("decided", "settled", "measured", "close")
"""Methods that every sink has."""
MOST_WAITING = 1000
"""Of what a slow sink has not been told yet."""
SECONDS_AT_END = 20.0
"""That slow sinks have, all together, when the run is over."""

logger = logging.getLogger("flwr.tidegate")


@dataclass(frozen=True)
class Moment:
    """A round that is settled, and the fleet after it."""

    done: FleetRound
    budget: float
    """C; of a shard, about what it is granted."""
    away: int
    """Clients that are planned for and cannot be reached."""
    averaged: int
    """Clients whose models went into the average."""

    def numbers(self) -> dict[str, float]:
        """Everything as plain numbers, by name; the round's own number is not among them."""
        told = {name: float(value) for name, value in dataclasses.asdict(self.done).items()}
        del told["round_number"]
        return told | {"budget": self.budget, "away": self.away, "averaged": self.averaged}


class Sink(Protocol):
    """Somebody who is told."""

    def decided(self, round_number: int, price: float) -> None:
        """A round has its price and its orders, which are about to be sent."""
        ...

    def settled(self, moment: Moment) -> None:
        """A round is over; its books are on disk."""
        ...

    def measured(self, round_number: int, source: Source, metrics: Mapping[str, float]) -> None:
        """Accuracy and the like of the model after a round; not every one need be finite."""
        ...

    def close(self, *, failed: bool) -> None:
        """The run is over, or its server stops with an error."""
        ...


@runtime_checkable
class Counting(Sink, Protocol):
    """A sink with totals, which go on where an earlier start of the server left them."""

    def resumed(self, before: Sequence[FleetRound]) -> None:
        """The rounds that were settled before this start; none if the run is new."""
        ...


class Diary(Sink, Protocol):
    """A sink that belongs to the run itself."""

    def begin(self) -> None:
        """This server has taken up the run."""
        ...


Kind = TypeVar("Kind", bound=Sink)
Tell = Callable[[Sink], None]


Model = TypeVar("Model")
Measured = TypeVar("Measured", bound=Mapping[str, object] | None)


class Sinks:
    """All sinks of a run.

    The first, which writes beside the checkpoint, is told at once. Each of the others has a thread
    and a queue of its own: one that is slow or gone holds nobody up, and what does not fit into its
    queue is lost to it alone.

    Args:
        others: the user's own.
        first: of the run itself, if it has a folder.
    """

    def __init__(self, others: Iterable[Sink], first: Diary | None = None) -> None:
        self._first = None if first is None else _Told(first)
        if not isinstance(others, Iterable):
            raise ConfigurationError(f"sinks must be a list, got {shown(others)}")
        self._others = [_Line(_checked(sink)) for sink in others]

    @contextmanager
    def open(self) -> Iterator[None]:
        """Tell the others; at the end each is closed, and told whether the run failed."""
        for line in self._others:
            line.start()
        failed = True
        try:
            yield
            failed = False
        finally:
            for line in self._others:
                line.end(lambda sink: sink.close(failed=failed))
            deadline = time.monotonic() + SECONDS_AT_END
            for line in self._others:
                line.wait(deadline)

    def measuring(
        self, evaluate: Callable[[int, Model], Measured] | None, rounds_before: int
    ) -> Callable[[int, Model], Measured] | None:
        """The server's evaluation, with rounds that go on from those before; sinks are told."""
        if evaluate is None:
            return None

        def measured(now: int, model: Model) -> Measured:
            found = evaluate(now + rounds_before, model)
            self.measured(now + rounds_before, "server", found)
            return found

        return measured

    @contextmanager
    def kept(self, before: Sequence[FleetRound] = ()) -> Iterator[None]:
        """While this server has the run, and nobody else: the first is told of begin and end.

        Those of the others that count are told of the rounds before.
        """
        self._tell_first(lambda diary: diary.begin())
        settled = tuple(before)
        for line in self._others:
            line.put(lambda sink: sink.resumed(settled) if isinstance(sink, Counting) else None)
        failed = True
        try:
            yield
            failed = False
        finally:
            self._tell_first(lambda diary: diary.close(failed=failed))

    def decided(self, round_number: int, price: float) -> None:
        """Tell all of them."""
        self._all(lambda sink: sink.decided(round_number, price))

    def settled(self, moment: Moment) -> None:
        """Tell all of them."""
        self._all(lambda sink: sink.settled(moment))

    def measured(
        self, round_number: int, source: Source, metrics: Mapping[str, object] | None
    ) -> None:
        """Tell all of them, of what is a number."""
        plain = {
            name: number
            for name, value in (metrics or {}).items()
            if (number := _plain(value)) is not None
        }
        if plain:
            self._all(lambda sink: sink.measured(round_number, source, plain))

    def _all(self, tell: Tell) -> None:
        self._tell_first(tell)
        for line in self._others:
            line.put(tell)

    def _tell_first(self, tell: Callable[[Diary], None]) -> None:
        if self._first is not None:
            self._first.tell(tell)


class _Told(Generic[Kind]):
    """A sink that is told at once; what it raises is logged the first time."""

    def __init__(self, sink: Kind) -> None:
        self._sink = sink
        self._failed = False

    @property
    def name(self) -> str:
        """For the log."""
        return type(self._sink).__name__

    def tell(self, tell: Callable[[Kind], None]) -> None:
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
        self._waiting: queue.SimpleQueue[Tell | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._work, daemon=True)
        self._lost = False

    def start(self) -> None:
        """Begin to tell."""
        self._thread = threading.Thread(target=self._work, daemon=True)
        self._thread.start()

    def put(self, tell: Tell) -> None:
        """Tell it as soon as it has time."""
        if self._waiting.qsize() < MOST_WAITING:
            self._waiting.put(tell)
            return
        if not self._lost:
            logger.warning("%s is too slow, and is not told of everything", self._told.name)
        self._lost = True

    def end(self, tell: Tell) -> None:
        """Tell it one thing more, however much is waiting."""
        self._waiting.put(tell)
        self._waiting.put(None)

    def wait(self, deadline: float) -> None:
        """Until all is told, or this time has come."""
        self._thread.join(max(deadline - time.monotonic(), 0.0))
        if self._thread.is_alive():
            logger.warning("%s is not done, and is left alone", self._told.name)

    def _work(self) -> None:
        while (tell := self._waiting.get()) is not None:
            self._told.tell(tell)


def _checked(sink: Sink) -> Sink:
    """A sink, if it can be told of all that a run does."""
    missing = [name for name in TOLD if not callable(getattr(sink, name, None))]
    if missing or isinstance(sink, type):
        told = "is a class; make one of it" if isinstance(sink, type) else f"has no {missing[0]}()"
        raise ConfigurationError(
            f"sinks must list objects with {', '.join(TOLD)}, such as "
            f"tidegate.runs.sinks.prometheus.Prometheus(); {shown(sink)} {told}"
        )
    return sink


def _plain(value: object) -> float | None:
    """A float, if it is a number that can be one; NaN and infinity are news, too."""
    try:
        return float(value) if isinstance(value, numbers.Real) else None
    except OverflowError:
        return None
