"""Sinks: where a running server reports what it does: files, Prometheus, TensorBoard, MLflow.

A sink receives every settled round and every metric of the model, in a thread of its own. Its
exceptions are logged and go no further: a sink never stops a run, and delays it only at its end, by
a few seconds at most.
"""

import logging
import numbers
import queue
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Generic, Literal, Protocol, TypeVar, runtime_checkable

from tidegate._internal.arguments import check_kind, shown
from tidegate._internal.guests import guest
from tidegate.errors import ConfigurationError
from tidegate.server.fleet_round import FleetRound

Source = Literal["server", "train", "clients"]
"""Who measured: the server's own evaluation, clients in training, or clients in evaluation."""

TOLD = ("decided", "settled", "measured", "close")
"""Methods that every sink has."""
MOST_WAITING = 1000
"""The most events that wait for a slow sink."""
SECONDS_AT_END = 20.0
"""Seconds that all slow sinks have together when the run is over."""

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Moment:
    """A settled round, and the fleet after it."""

    done: FleetRound
    budget: float
    """C; for a shard, about what it is granted."""
    away: int
    """Clients in the plan that are offline."""
    averaged: int
    """Clients whose models are in the average."""
    failed: Mapping[str, str] = field(default_factory=dict)
    """Clients that failed, or whose reply was refused, each with the reason."""
    left_out: Mapping[str, str] = field(default_factory=dict)
    """Clients that got no order, because of what they replied when the server asked how far they
    had got or because another node has their name, each with the reason; ``node N`` where the
    server cannot tell which client it is."""

    def numbers(self) -> dict[str, float]:
        """Return everything as plain numbers, by name; without the round's own number."""
        numbers = {name: float(value) for name, value in self.done.numbers().items()}
        del numbers["round_number"]
        return numbers | {"budget": self.budget, "away": self.away, "averaged": self.averaged}


class Sink(Protocol):
    """Receives the events of a run."""

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
    """A sink with totals, which continue from an earlier start of the server."""

    def resumed(self, before: Sequence[FleetRound]) -> None:
        """The rounds that were settled before this start; none if the run is new."""
        ...


class Diary(Sink, Protocol):
    """A sink that belongs to the run itself."""

    def begin(self) -> None:
        """This server has started to serve the run."""
        ...


Kind = TypeVar("Kind", bound=Sink)
Tell = Callable[[Sink], None]


Model = TypeVar("Model")
Measured = TypeVar("Measured", bound=Mapping[str, object] | None)


class Sinks:
    """All sinks of a run.

    The first, which writes beside the checkpoint, is called directly. Each of the others has a
    thread and a queue of its own: a slow or broken sink delays no other, and loses only its own
    events when its queue is full.

    Args:
        others: the user's own; a name stands for one that an installed package offers.
        first: the run's own, if it has a folder.
    """

    def __init__(self, others: Iterable[Sink | str], first: Diary | None = None) -> None:
        self._first = None if first is None else _Told(first)
        if not isinstance(others, Iterable) or isinstance(others, str):
            raise ConfigurationError(f"sinks must be a list, got {shown(others)}")
        self._others = [_Line(_checked(sink)) for sink in others]

    @contextmanager
    def open(self) -> Iterator[None]:
        """Open the user's sinks; at the end close each, and say whether the run failed."""
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
        """Wrap the server's evaluation: rounds continue over a restart, sinks get metrics."""
        if evaluate is None:
            return None

        def measured(round_number: int, model: Model) -> Measured:
            metrics = evaluate(round_number + rounds_before, model)
            if metrics is not None:
                example = "such as MetricRecord({'accuracy': 0.9}), or None"
                check_kind("the result of evaluate_fn", metrics, Mapping, example)
            self.measured(round_number + rounds_before, "server", metrics)
            return metrics

        return measured

    @contextmanager
    def kept(self, before: Sequence[FleetRound] = ()) -> Iterator[None]:
        """Tell the first sink of begin and end while this server has the run.

        Sinks that count get the rounds before.
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
        """Pass this to all sinks."""
        self._all(lambda sink: sink.decided(round_number, price))

    def settled(self, moment: Moment) -> None:
        """Pass this to all sinks."""
        self._all(lambda sink: sink.settled(moment))

    def measured(
        self, round_number: int, source: Source, metrics: Mapping[str, object] | None
    ) -> None:
        """Pass the metrics that are numbers to all sinks."""
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
    """A sink that is called directly; its first exception is logged."""

    def __init__(self, sink: Kind) -> None:
        self._sink = sink
        self._failed = False

    @property
    def name(self) -> str:
        """The sink's name in the log."""
        return type(self._sink).__name__

    def tell(self, tell: Callable[[Kind], None]) -> None:
        """Call the sink; the run continues whatever it raises."""
        try:
            tell(self._sink)
        except Exception as wrong:
            if not self._failed:
                logger.warning(
                    "sink %s failed: %r; the run continues, but the sink may miss data",
                    self.name,
                    wrong,
                )
            self._failed = True


class _Line:
    """A sink that is called from a thread of its own."""

    def __init__(self, sink: Sink) -> None:
        self._told = _Told(sink)
        self._waiting: queue.SimpleQueue[Tell | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._work, daemon=True)
        self._lost = False

    def start(self) -> None:
        """Start the thread."""
        self._thread = threading.Thread(target=self._work, daemon=True)
        self._thread.start()

    def put(self, tell: Tell) -> None:
        """Queue a call."""
        if self._waiting.qsize() < MOST_WAITING:
            self._waiting.put(tell)
            return
        if not self._lost:
            logger.warning(
                "sink %s is too slow and misses some data; the run continues", self._told.name
            )
        self._lost = True

    def end(self, tell: Tell) -> None:
        """Queue a last call, however long the queue is."""
        self._waiting.put(tell)
        self._waiting.put(None)

    def wait(self, deadline: float) -> None:
        """Wait until the queue is empty, or until this time."""
        self._thread.join(max(deadline - time.monotonic(), 0.0))
        if self._thread.is_alive():
            logger.warning(
                "sink %s did not finish in time and may have lost its last data", self._told.name
            )

    def _work(self) -> None:
        while (tell := self._waiting.get()) is not None:
            self._told.tell(tell)


def missing_methods(sink: object) -> list[str]:
    """Return what a sink must have, and this object lacks."""
    return [name for name in TOLD if not callable(getattr(sink, name, None))]


def _checked(given: Sink | str) -> Sink:
    """Return a sink if it has all methods of one."""
    sink: Sink = guest("tidegate.sinks", given)() if isinstance(given, str) else given
    missing = missing_methods(sink)
    if missing or isinstance(sink, type):
        reason = (
            "is a class; pass an instance" if isinstance(sink, type) else f"has no {missing[0]}()"
        )
        raise ConfigurationError(
            f"sinks must list objects with {', '.join(TOLD)}, such as "
            f"tidegate.integrations.prometheus.Prometheus(); {shown(sink)} {reason}"
        )
    return sink


def _plain(value: object) -> float | None:
    """Return a float, if the value is a number; NaN and infinity are passed on, too."""
    try:
        return float(value) if isinstance(value, numbers.Real) else None
    except OverflowError:
        return None
