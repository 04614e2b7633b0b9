"""What an order buys: read from the stream, chosen among candidates, and paid for.

A sample that has failed ``TRIES`` times is skipped, and set aside as soon as a later one is taken:
that proves that the sample is at fault, and not its source. A failure before the supplier is asked
costs nothing and is tried again at once. A supplier that fails may be down, and is asked once an
order.
"""

import logging
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from tidegate.client.forgotten import NOBODY
from tidegate.client.samples import Samples
from tidegate.client.store import Books, Change, FailedSample, Fresh, Origin, State, Store
from tidegate.client.streams import Limited, Stream
from tidegate.errors import ConfigurationError, SampleGoneError
from tidegate.selection import Selection
from tidegate.wire import MOST_IN_A_ROW, MOST_PASSED, Order

Acquire = Callable[[Any, str], Any]
"""Given a sample and its key, pays for it (fetches the label, switches the sensor on) and returns
the sample to store. Called once for each admitted sample. If it raises, returns something that
cannot be stored, or the process dies or the disk is full before what it returned is on disk, it is
called again with the same key: a hook that must not pay twice asks its supplier for that key. If
the gate chooses among candidates, these were stored before, and arrive as the codec returns
them."""

Subject = Callable[[Any], str | None]
"""Given a sample as the stream has it, returns whom or what it is about; None or "" for nobody."""

Group = Callable[[Any], object]
"""Given a complete sample, returns the group that it belongs to, such as its class; None or "" for
none. Its text is stored beside the sample and does not leave the device."""

Worth = Callable[[Samples], Sequence[float]]
"""Rates candidates: returns one number for each; the greatest are bought first."""

TRIES = 3
"""Tries after which a failing sample is skipped. One is not enough: a file may be locked for a
moment, and a supplier be away for a round; a damaged sample stays damaged."""
LONGEST_ERROR = 500
"""Characters that are kept of an error: enough for its kind and its reason."""
LONGEST_GROUP = 200
"""Characters."""
BATCH_SECONDS = 1.0
BATCH_BYTES = 8_000_000
"""After this much, what was read is written down before its order ends; what was paid for also
after this long."""

logger = logging.getLogger(__name__)


def to_try_again(store: Store) -> dict[str, FailedSample]:
    """Return samples that failed and are not set aside, by their keys."""
    return {failed.key: failed for failed in store.failures() if not failed.set_aside}


def one_try_more(key: str, tried: Mapping[str, FailedSample], wrong: Exception) -> FailedSample:
    """Return a sample that has failed once more, after earlier tries."""
    tries = tried[key].tries + 1 if key in tried else 1
    return FailedSample(key, tries, f"{type(wrong).__name__}: {wrong}"[:LONGEST_ERROR])


@dataclass
class Batch:
    """What was read or paid for, and is not written down yet."""

    tried: dict[str, FailedSample]
    """By their keys, samples that failed and will be tried again, in the order of the stream."""
    samples: list[Fresh] = field(default_factory=list)
    set_aside: list[FailedSample] = field(default_factory=list)
    given_up: list[int] = field(default_factory=list)
    """Numbers of chosen candidates that are set aside."""
    read: int = 0
    """Samples of the stream, whatever became of them."""
    cursor: str | None = None
    """After them."""
    size: int = 0
    """Bytes."""
    begun: float = field(default_factory=time.monotonic)

    def fails(self, key: str, wrong: Exception) -> FailedSample:
        """Note one more try."""
        self.tried[key] = one_try_more(key, self.tried, wrong)
        return self.tried[key]

    def takes(self, sample: Fresh, failed: Iterable[FailedSample]) -> None:
        """Add a sample, which proves that those before it are at fault themselves."""
        self.samples.append(sample)
        self.size += len(sample.packed)
        self.sets_aside(failed)

    def sets_aside(self, failed: Iterable[FailedSample]) -> None:
        """Skip samples for good."""
        for one in failed:
            logger.warning("%a is set aside after %d tries: %a", one.key, one.tries, one.error)
            self.set_aside.append(replace(one, set_aside=True))
            del self.tried[one.key]

    def write(self, change: Change, state: State, without: Collection[int] = ()) -> list[int]:
        """Write everything down, except for samples in these places; return their numbers."""
        numbers = [
            0 if place in without else change.take(sample, state)
            for place, sample in enumerate(self.samples)
        ]
        for number in self.given_up:
            change.drop(number)
        change.keep_failures([*self.set_aside, *self.tried.values()])
        if self.cursor is not None:
            change.books.cursor = self.cursor
        change.books.read += self.read
        change.books.set_aside += len(self.set_aside)
        return numbers


@dataclass(frozen=True)
class Source:
    """Where a client's samples come from, and how they are paid for."""

    store: Store
    stream: Stream
    owner: str
    """Run and client, with which keys begin."""
    acquire: Acquire | None = None
    subject: Subject | None = None
    selection: Selection | None = None
    """How many candidates are read and may wait; None to take samples as they come."""
    limited: Limited | None = None
    """The stream, if it knows when its samples came to the device."""
    group: Group | None = None

    def origin(self, sample: Any) -> Origin | None:
        """Return since when the device holds a sample, and whose it is; None if forgotten."""
        arrived = 0 if self.limited is None else self.limited.arrived_at
        if self.subject is None:
            return Origin(arrived)
        named = self.subject(sample)
        if not named:
            return Origin(arrived, NOBODY)
        whose = self.store.whose(str(named))
        return None if whose is None else Origin(arrived, whose)

    def packed(self, sample: Any, key: str) -> tuple[bytes, str]:
        """Return a complete sample as it will be stored, and its group."""
        packed = self.store.pack(sample)
        if self.group is None:
            return packed, ""
        try:
            named = self.group(sample)
            group = "" if named is None else str(named)
        except Exception as wrong:
            raise ConfigurationError(
                f"group failed on {key!a} with {type(wrong).__name__}: {wrong}; it gets a complete "
                "sample and must return its group, or None"
            ) from wrong
        return packed, group[:LONGEST_GROUP]


class Buying:
    """What one order buys.

    Args:
        source: of the samples.
        order: that is applied.
        books: of the client.
        ordered: how many samples the order asks for.
        affordable: how many the device's own ceiling allows.
    """

    def __init__(
        self, source: Source, order: Order, books: Books, ordered: int, affordable: float
    ) -> None:
        self.wanted = int(min(ordered, affordable))
        self.is_capped = affordable < ordered
        self._source, self._store, self._stream = source, source.store, source.stream
        self._round = order.round_number
        self.books = books
        """After what is written down."""
        self.batch = Batch(to_try_again(source.store))
        """What is not."""
        self.takes_next = False
        """Whether samples are bought as they come."""
        self._has_ended = False
        """Whether the stream had no more samples."""
        self._taken = 0
        """Samples of it."""
        self.reads_on = False
        """Whether it passed over as many samples as an order may, and the stream has more."""
        self._asks = False
        """Whether the hook was asked for the sample that is being read."""

    def take_next(self, wanted: int) -> None:
        """Buy the next samples of the stream; a failure ends only the admission."""
        self.takes_next = True
        self._read(wanted, pays=True)

    def choose(self, wanted: int, worth: Worth | None) -> None:
        """Read candidates, choose among all that are kept, and write the choice down.

        Candidates that were chosen before but not paid for come first: an order whose reply was
        lost may have paid for them. A choice that was written down is not made again.
        """
        if self.books.chosen_round == self._round:
            return
        chosen = self._store.held("chosen")
        hopeful = sum(not self._is_hopeless(candidate.key) for candidate in chosen)
        needed = max(wanted - hopeful, 0)
        reads = self._reads(needed, self._store.count("candidate"))
        self._read(reads, pays=False)
        books = self.books  # with what was written down meanwhile
        waiting, picked, dropped = self._choice(needed, worth)
        if not (reads or picked or dropped):
            return  # nothing to write down
        # Candidates of the backlog may still be enough for an order.
        is_dry = self.is_dry() if len(picked) < needed else books.is_dry and not picked
        with self._store.step(self._round, books) as change:
            # What was read and is dropped at once is never held.
            passed = {place - len(waiting) for place in dropped}
            numbers = [*waiting, *self.batch.write(change, "candidate", without=passed)]
            for place in picked:
                change.move(numbers[place], "chosen")
            for place in dropped:
                if place < len(waiting):
                    change.drop(numbers[place])
            if change.has_moved:
                change.note("taken")
            change.books.is_dry = is_dry
            change.books.chosen_round = self._round
        self._is_written(change)

    def pay(self, wanted: int) -> None:
        """Pay for chosen candidates, in the order of the choice."""
        failed: list[FailedSample] = []
        given_up: list[int] = []
        paid = 0
        for candidate in self._store.held("chosen"):
            if paid == wanted or len(failed) == MOST_IN_A_ROW:
                break
            packed = self._store.content(candidate.number)
            if packed is None:
                continue  # it was swept meanwhile
            try:
                sample = self._store.unpack(packed)
                if self._source.acquire is not None:
                    sample = self._source.acquire(sample, candidate.key)
                packed, group = self._source.packed(sample, candidate.key)
            except ConfigurationError:
                raise
            except Exception as wrong:
                failure = self.batch.fails(candidate.key, wrong)
                if failure.tries < TRIES:
                    logger.exception(
                        "%a could not be acquired; it is asked for again", candidate.key
                    )
                    break
                failed.append(failure)
                given_up.append(candidate.number)
                continue
            self.batch.tried.pop(candidate.key, None)
            self.batch.takes(
                Fresh(candidate.key, packed, number=candidate.number, group=group), failed
            )
            self.batch.given_up += given_up
            failed, given_up, paid = [], [], paid + 1
            self._write_if_large("paid")
        self._tell_of_row(failed)

    def is_dry(self) -> bool:
        """Return whether the stream has no more samples; log it if it still had some before."""
        was_dry = self.books.is_dry
        if self._has_ended and not was_dry:
            logger.warning(
                "the stream of %s has run dry: the client buys fewer samples than ordered until "
                "the stream has more",
                self.books.client,
            )
        return self._has_ended or (was_dry and not self._taken)

    def _read(self, wanted: int, *, pays: bool) -> None:
        """Take the next samples of the stream.

        Args:
            wanted: how many.
            pays: whether they are bought as they come; else they are candidates.
        """
        stream, failed = self._stream, list[FailedSample]()
        # Failures of samples that were read before stay noted.
        kept = {
            key
            for key in self.batch.tried
            if self._store.has(key, "candidate", "chosen", "under way")
        }
        taken_up_to = stream.cursor
        passed_over = forgotten = 0
        others_fail = False  # the codec or the supplier, and not the stream
        while (
            self._taken < wanted
            and len(failed) < MOST_IN_A_ROW
            and passed_over + forgotten < MOST_PASSED
        ):
            before, self._asks, was_read = stream.cursor, False, False
            try:
                samples = stream.take(1)
                was_read = True
                fresh = self._complete(samples[0], pays=pays) if samples else None
            except ConfigurationError:
                raise
            except Exception as wrong:
                if self._stays(before, wrong, failed):
                    break
                others_fail |= was_read
                continue
            if not samples:
                self._has_ended = True
                break
            if fresh is not None:
                self._forget_failures(fresh.key, kept, failed)
                self.batch.takes(fresh, failed)
                self._taken += 1
            else:
                forgotten += 1
                if others_fail:
                    continue
                self.batch.sets_aside(failed)
            self.batch.read += (fresh is not None) + len(failed) + forgotten
            passed_over, forgotten, failed, others_fail = passed_over + forgotten, 0, [], False
            self.batch.cursor = taken_up_to = stream.cursor
            self._write_if_large("paid" if pays else "candidate")
        self.reads_on = passed_over + forgotten >= MOST_PASSED
        self._tell_of_row(failed)
        if stream.cursor != taken_up_to:
            stream.seek(taken_up_to)

    def _complete(self, sample: Any, *, pays: bool) -> Fresh | None:
        """Return the sample to store; None if its subject is forgotten, or it was paid for."""
        key = f"{self._source.owner}/{self._stream.cursor}"
        origin = self._source.origin(sample)
        if origin is None or (self.books.begun != "[]" and self._store.has(key, "stored", "kept")):
            return None
        if pays and self._source.acquire is not None:
            self._asks = True
            sample = self._source.acquire(sample, key)
        if not pays:
            return Fresh(key, self._store.pack(sample), origin)
        packed, group = self._source.packed(sample, key)
        return Fresh(key, packed, origin, group=group)

    def _stays(self, before: str, wrong: Exception, failed: list[FailedSample]) -> bool:
        """Note a failure at the stream's next sample; return whether the order ends there."""
        after = self._stream.cursor
        key = f"{self._source.owner}/{after}"
        failure = None if after == before else self.batch.fails(key, wrong)
        if failure is None or (self._asks and failure.tries < TRIES):
            logger.exception(
                "the sample after %a could not be had; it stays in the stream",
                f"{self._source.owner}/{before}",
            )
            return True
        if failure.tries < TRIES:
            self._stream.seek(before)
        else:
            failed.append(failure)
        return False

    def _forget_failures(
        self, key: str, kept: Collection[str], failed: Sequence[FailedSample]
    ) -> None:
        """Forget failures up to a sample that was taken; files may have left the stream, too."""
        in_row = {failure.key for failure in failed}
        keys = [tried for tried in self.batch.tried if tried not in kept]
        for done in keys[: keys.index(key) + 1] if key in keys else keys:
            if done not in in_row:
                del self.batch.tried[done]

    def _write_if_large(self, state: State) -> None:
        """Write down what was read, if there is much of it, or was paid for a while ago."""
        batch = self.batch
        is_old = state == "paid" and time.monotonic() - batch.begun >= BATCH_SECONDS
        if batch.size < BATCH_BYTES and not is_old:
            return
        with self._store.step(self._round, self.books) as change:
            batch.write(change, state)
            change.note("taken")
        self._is_written(change)

    def _is_written(self, change: Change) -> None:
        self.books, self.batch = change.books, Batch(self.batch.tried)

    def _is_hopeless(self, key: str) -> bool:
        failure = self.batch.tried.get(key)
        return failure is not None and failure.tries >= TRIES

    def _reads(self, needed: int, waiting: int) -> int:
        """Return how many samples of the stream to read for an order that needs so many."""
        selection = self._source.selection
        if selection is None:
            return max(needed - waiting, 0)
        if not needed and not selection.backlog:
            return 0  # nobody would look at them
        return max(selection.candidates, needed)

    def _choice(
        self, needed: int, worth: Worth | None
    ) -> tuple[Sequence[int], Sequence[int], Sequence[int]]:
        """Choose among candidates that wait, oldest first, and those that were read after them.

        Returns:
            The numbers of those that wait, as far as they matter; the places of those that are
            chosen, best first; and the places of those that the backlog has no room for.
        """
        store, selection, fresh = self._store, self._source.selection, len(self.batch.samples)
        if selection is None:  # it chose before: waiting candidates come first in the stream
            first = store.numbers("candidate", most=needed)
            return first, range(min(needed, len(first) + fresh)), ()
        if not needed:
            over = max(store.count("candidate") + fresh - selection.backlog, 0)
            return store.numbers("candidate", most=over), (), range(over)
        waiting, worths = self._worths(worth)
        picked = selection.choose(worths, needed, (self.books.client, self._round))
        left = sorted({*range(len(worths))} - {*picked})
        return waiting, picked, left[: max(len(left) - selection.backlog, 0)]

    def _worths(self, worth: Worth | None) -> tuple[Sequence[int], Sequence[float]]:
        """Return the numbers of candidates that wait, and what all candidates are worth.

        Without a function all are worth the same.
        """
        waiting = self._store.numbers("candidate")
        fresh = [sample.packed for sample in self.batch.samples]
        count = len(waiting) + len(fresh)
        if worth is None or not count:
            return waiting, [0.0] * count
        stored = self._store.numbers("stored")
        candidates = self._store.candidates(waiting, fresh)
        try:
            worths = [float(number) for number in worth(candidates)]
        except SampleGoneError:
            if (self._store.numbers("candidate"), self._store.numbers("stored")) == (
                waiting,
                stored,
            ):
                raise
            return self._worths(worth)  # without what was swept meanwhile
        finally:
            candidates.close()
        if len(worths) != count:
            raise ConfigurationError(
                f"worth returned {len(worths)} numbers for {count} candidates; it must return one "
                "for each, in their order"
            )
        return waiting, worths

    def _tell_of_row(self, failed: Sequence[FailedSample]) -> None:
        if failed:
            logger.error(
                "%d samples in a row of %s failed, and none after them could be taken; they stay "
                "in the stream. The first is %a: %a",
                *(len(failed), self._source.owner, failed[0].key, failed[0].error),
            )
