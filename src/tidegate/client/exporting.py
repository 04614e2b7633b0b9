"""Read what a buffer holds complete, for other tools: in groups, under the rules of training."""

import json
import time
from array import array
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Self, TypeVar

from tidegate._internal.sqlite_file import check_tables, opened_to_read
from tidegate.client.codec import ArrayCodec
from tidegate.client.device_file import KIND, DeviceFile
from tidegate.client.forgotten import Forgotten
from tidegate.client.limits import Clock, OwnTime, milliseconds
from tidegate.client.samples import BYTES_AT_ONCE
from tidegate.errors import ConfigurationError, DamagedFileError

ROW_BYTES = 1_000
"""What a sample takes in memory beside its content."""
CODEC = ArrayCodec(images="bytes")
MOST_OF_ERROR = 300
"""Characters."""
COMPLETE = "state IN ('stored', 'kept') AND mark != ''"

Converted = TypeVar("Converted")


@dataclass(frozen=True)
class HeldSample:
    """A complete sample, and what the device knows of it."""

    key: str
    """As ``acquire`` got it; bytes of a file name that are not Unicode as ``\\\\udc..``."""
    run: str
    client: str
    group: str
    bought_round: int
    price: float
    held_since: datetime
    state: str
    """``"stored"``, or ``"kept"`` after it has left the buffer."""
    sample: Any = None


class HeldSamples:
    """The complete samples of a buffer's file, which may be in use.

    Nothing that is past its limit, or about somebody who is forgotten, is read.

    Args:
        path: of the file.
        clock: says the time.
    """

    def __init__(self, path: Path, clock: Clock = time.time) -> None:
        self.path = path
        self.unreadable = dict[int, str]()
        """Why samples could not be read or converted, by their numbers in the file."""
        self._clock = clock
        self._forgotten = Forgotten(path.parent)
        self._forgotten.check()
        self._at_first = self._forgotten.hashes()
        with closing(opened_to_read(path)) as file:
            check_tables(file, path, KIND)
        self._file = DeviceFile(path, is_reader=True)
        self._numbers, self._sizes = array("q"), array("q")
        with self._file.opening():
            for number, size in self._file.execute(
                "SELECT number, CASE WHEN file = '' THEN length(content) ELSE ? END "  # noqa: S608
                f"FROM samples LEFT JOIN contents USING (number) WHERE {COMPLETE} ORDER BY number",
                (BYTES_AT_ONCE,),
            ):
                self._numbers.append(number)
                self._sizes.append(ROW_BYTES + (size or 0))

    def __len__(self) -> int:
        return len(self._numbers)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def groups(self, convert: Callable[[HeldSample], Converted]) -> Iterator[list[Converted]]:
        """Yield samples in groups of a few megabytes, converted; note those that fail."""
        numbers, size = list[int](), 0
        for number, more in zip(self._numbers, self._sizes, strict=True):
            if numbers and size + more > BYTES_AT_ONCE:
                yield self._group(numbers, convert)
                numbers, size = [], 0
            numbers.append(number)
            size += more
        yield self._group(numbers, convert)

    def check(self) -> None:
        """Refuse what was read if somebody was forgotten meanwhile, whose samples may be in it."""
        if self._forgotten.hashes() - self._at_first:
            raise ConfigurationError(
                f"somebody was forgotten in {self.path.parent} meanwhile; export again"
            )

    def _group(
        self, numbers: Sequence[int], convert: Callable[[HeldSample], Converted]
    ) -> list[Converted]:
        converted = list[Converted]()
        try:
            contents = dict(self._file.contents.read(numbers))
            rows = list(self._rows(numbers))  # after the contents: what has a row had its content
        except DamagedFileError as wrong:
            self.unreadable |= dict.fromkeys(numbers, wrong.reason)
            return converted
        for number, about in rows:
            if number not in contents:
                self.unreadable[number] = f"{about.key}: its content is missing"
                continue
            try:
                sample = CODEC.decode(contents.pop(number))
                converted.append(convert(replace(about, sample=sample)))
            except DamagedFileError as wrong:
                reason = f"it {wrong.reason}, or was packed by a codec of the app's own"
                self.unreadable[number] = f"{about.key}: {reason}"
            except Exception as wrong:  # whatever is wrong with one, the others are read
                reason = f"{type(wrong).__name__}: {str(wrong)[:MOST_OF_ERROR]}"
                self.unreadable[number] = f"{about.key}: {reason}"
        return converted

    def _rows(self, numbers: Sequence[int]) -> Iterator[tuple[int, HeldSample]]:
        """Yield what is known of those samples that may be used at this moment."""
        rows = self._file.rows(
            (int, str, str, str, str, int, float, int, str, str, int, int, int),
            "SELECT samples.number, key, run, clients.client, in_group, bought_round, price, "  # noqa: S608
            "held_at, state, subject, keep, own_time, wall_time FROM samples "
            f"JOIN clients ON clients.number = samples.client WHERE {COMPLETE} "
            "AND samples.number IN (SELECT value FROM json_each(?)) ORDER BY samples.number",
            json.dumps(list(numbers)),
        )
        forgotten, wall = self._forgotten.hashes(), milliseconds(self._clock)
        for number, *texts, bought_round, price, held_at, state, subject, keep, own, last in rows:
            is_over = 0 < keep <= OwnTime(own, last).at(wall).own - held_at
            if not is_over and subject not in forgotten:
                since = datetime.fromtimestamp(held_at / 1000, UTC)
                key, run, client, group = map(_printable, texts)
                about = HeldSample(key, run, client, group, bought_round, price, since, state)
                yield number, about


def _printable(text: str) -> str:
    """Return a text that can be written as Unicode: a key may hold any file name."""
    return text.encode("utf-8", "backslashreplace").decode()
