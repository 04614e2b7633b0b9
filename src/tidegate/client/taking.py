"""Read and pay for samples one by one; a failing one is tried again, then set aside."""

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from tidegate.client.forgotten import NOBODY
from tidegate.client.store import Candidate, FailedSample, Origin, Store
from tidegate.client.streams import Limited, Stream
from tidegate.wire import MOST_IN_A_ROW, MOST_PASSED

Acquire = Callable[[Any, str], Any]
"""Given a sample and its key, pays for it (fetches the label, switches the sensor on) and returns
the sample to store. Called once for each admitted sample. If it raises, returns something that
cannot be stored, or the process dies or the disk is full before the commit, it is called again
with the same key: a hook that must not pay twice asks its supplier for that key. If the gate
chooses among candidates, these were stored before, and arrive as the codec returns them."""

Subject = Callable[[Any], str | None]
"""Given a sample as the stream has it, returns whom or what it is about; None or "" for nobody."""

TRIES = 3
"""Tries after which a failing sample is skipped. One is not enough: a file may be locked for a
moment, and a supplier be away for a round; a damaged sample stays damaged."""
LONGEST_ERROR = 500
"""Characters that are kept of an error: enough for its kind and its reason."""

logger = logging.getLogger("flwr.tidegate")
"""Below Flower's own, so that it is seen wherever Flower's log is; without Flower a plain name."""


def to_try_again(store: Store) -> dict[str, FailedSample]:
    """Return samples that failed and are not set aside, by their keys."""
    return {one.key: one for one in store.failures() if not one.set_aside}


def one_try_more(key: str, tried: Mapping[str, FailedSample], wrong: Exception) -> FailedSample:
    """Return a sample that has failed once more, after earlier tries."""
    tries = tried[key].tries + 1 if key in tried else 1
    return FailedSample(key, tries, f"{type(wrong).__name__}: {wrong}"[:LONGEST_ERROR])


@dataclass
class Taken:
    """What one order took."""

    tried: dict[str, FailedSample]
    """By their keys, samples that failed and will be tried again, in the order of the stream."""
    kept: frozenset[str] = frozenset()
    """Keys whose failures stay noted until they are taken or set aside: those of candidates, which
    are no longer in the stream."""
    dry: bool = False
    """Whether the stream had no more samples."""
    passed_over: int = 0
    """Samples of the stream whose subject is forgotten."""
    samples: list[Candidate] = field(default_factory=list)
    set_aside: list[FailedSample] = field(default_factory=list)

    def fails(self, key: str, wrong: Exception) -> FailedSample:
        """Note one more try."""
        self.tried[key] = one_try_more(key, self.tried, wrong)
        return self.tried[key]

    def takes(self, sample: Candidate, passed: list[FailedSample]) -> None:
        """Note a sample, which proves that those before it are at fault themselves."""
        self.samples.append(sample)
        for one in passed:
            logger.warning("%a is set aside after %d tries: %a", one.key, one.tries, one.error)
            self.set_aside.append(replace(one, set_aside=True))
            del self.tried[one.key]
        keys = [key for key in self.tried if key not in self.kept]
        # Up to this one all are done with; files may have left the stream, too.
        for done in keys[: keys.index(sample.key) + 1] if sample.key in keys else keys:
            del self.tried[done]

    @property
    def failed(self) -> list[FailedSample]:
        """Return the failures as a store takes them."""
        return [*self.set_aside, *self.tried.values()]


class Taker:
    """Takes samples for one client.

    A sample that has failed ``TRIES`` times is skipped, and set aside as soon as a later one is
    taken: that proves that the sample is at fault, and not its source. A failure before the
    supplier is asked costs nothing and is tried again at once. A supplier that fails may be down,
    and is asked once an order.
    """

    def __init__(
        self,
        store: Store,
        stream: Stream,
        acquire: Acquire | None,
        owner: str,
        subject: Subject | None = None,
    ) -> None:
        self._subject = subject
        self._store = store
        self._stream = stream
        self._limited = stream if isinstance(stream, Limited) else None
        self._acquire = acquire
        self._owner = owner
        """Run and client, with which keys begin."""

    def buy_next(self, wanted: int) -> Taken:
        """Buy the next samples of the stream; a failure ends only the admission."""
        return self._from_stream(wanted, Taken(self.failures()), self._acquire)

    def read_next(self, wanted: int, kept: Sequence[str]) -> Taken:
        """Read the next samples of the stream as candidates, which cost nothing yet.

        Args:
            wanted: how many to read.
            kept: keys of samples that were read before and are still needed.
        """
        return self._from_stream(wanted, Taken(self.failures(), frozenset(kept)), None)

    def buy(self, chosen: Sequence[Candidate], wanted: int) -> Taken:
        """Buy chosen candidates, in this order."""
        failures = self.failures()
        taken = Taken(failures, kept=frozenset(failures))
        passed: list[FailedSample] = []
        for one in chosen:
            if len(taken.samples) == wanted or len(passed) == MOST_IN_A_ROW:
                break
            try:
                sample = self._store.unpack(one.packed)
                if self._acquire is not None:
                    sample = self._acquire(sample, one.key)
                packed = self._store.pack(sample)
            except Exception as wrong:
                failed = taken.fails(one.key, wrong)
                if failed.tries < TRIES:
                    logger.exception("%a could not be acquired; it is asked for again", one.key)
                    break
                passed.append(failed)
                continue
            taken.tried.pop(one.key, None)
            taken.takes(Candidate(one.key, packed, origin=one.origin), passed)
            passed = []
        self._tell_of_row(passed)
        return taken

    def failures(self) -> dict[str, FailedSample]:
        """Return what will be tried again."""
        return to_try_again(self._store)

    def _from_stream(self, wanted: int, taken: Taken, acquire: Acquire | None) -> Taken:
        passed: list[FailedSample] = []
        taken_up_to = self._stream.cursor
        forgotten = 0
        while (
            len(taken.samples) < wanted
            and len(passed) < MOST_IN_A_ROW
            and taken.passed_over + forgotten < MOST_PASSED
        ):
            before = self._stream.cursor
            asked = False
            try:
                samples = self._stream.take(1)
                if not samples:
                    taken.dry = True
                    break
                sample, key = samples[0], f"{self._owner}/{self._stream.cursor}"
                origin = self._origin(sample)
                if origin is None:
                    forgotten += 1
                    if not passed:
                        taken.passed_over, forgotten = taken.passed_over + forgotten, 0
                        taken_up_to = self._stream.cursor
                    continue
                if acquire is not None:
                    asked = True
                    sample = acquire(sample, key)
                packed = self._store.pack(sample)
            except Exception as wrong:
                after = self._stream.cursor
                failed = None if after == before else taken.fails(f"{self._owner}/{after}", wrong)
                if failed is None or (asked and failed.tries < TRIES):
                    logger.exception(
                        "the stream failed after %a; the sample stays in the stream",
                        f"{self._owner}/{before}",
                    )
                    break
                if failed.tries < TRIES:
                    self._stream.seek(before)
                else:
                    passed.append(failed)
                continue
            taken.takes(Candidate(key, packed, origin=origin), passed)
            taken.passed_over, forgotten = taken.passed_over + forgotten, 0
            passed, taken_up_to = [], self._stream.cursor
        self._tell_of_row(passed)
        if self._stream.cursor != taken_up_to:
            self._stream.seek(taken_up_to)
        return taken

    def _origin(self, sample: Any) -> Origin | None:
        """Return since when the device holds a sample, and whose it is; None if forgotten."""
        origin = Origin(held_at=0 if self._limited is None else self._limited.arrived_at)
        if self._subject is None:
            return origin
        named = self._subject(sample)
        if not named:
            return replace(origin, subject=NOBODY)
        whose = self._store.whose(str(named))
        return None if whose is None else replace(origin, subject=whose)

    def _tell_of_row(self, passed: Sequence[FailedSample]) -> None:
        if passed:
            logger.error(
                "%d samples in a row of %s failed, and none after them could be taken; they stay "
                "in the stream. If the gate chooses among candidates, its codec must be able to "
                "store samples as the stream returns them. The first is %a: %a",
                *(len(passed), self._owner, passed[0].key, passed[0].error),
            )
