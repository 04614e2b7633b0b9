"""Prices from a CSV file that grows during the run: one row a round, or by time."""

import itertools
import logging
import statistics
import time
from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path

import numpy as np

from tidegate._internal.arrays import FloatArray
from tidegate.errors import ConfigurationError, SupplierError
from tidegate.prices.amounts import rates_of
from tidegate.prices.csv_file import csv_header, csv_rows, read_text
from tidegate.prices.feeds import RecordedPrices

FIRST = 24
"""Rows that the average is taken of: they must be in the file before the run begins."""
HOLE = 4
"""Times what a row usually holds: longer is taken for a hole in the file. Some markets went from
hours to quarters of an hour."""
ADD_ROWS = "add rows, each ending with a newline, and start the run again: it resumes from here"

logger = logging.getLogger(__name__)


class PriceFile:
    """A CSV file of prices that is read again when it has changed.

    A row without a newline at its end is still being written and is not read yet. If the file can
    no longer be read, the prices stay as they were, with a warning. Prices below 0 count as 0:
    electricity markets have negative prices at times, but no client is paid for admitting a sample.

    Args:
        path: of the file.
        column: the column of prices, or several with their rates (``eur+0.08*gco2``).
        time_column: the column that says from when on each row holds; None if rows are rounds.
    """

    def __init__(self, path: Path | str, column: str, time_column: str | None = None) -> None:
        self.path, self._column, self._time_column = Path(path), column, time_column
        self._seen: tuple[int, int] | None = None
        self.rates: dict[str, float] = {}
        self.amounts: FloatArray = np.zeros((0, 1))
        """One row a row of the file, one column for each rate."""
        self.times: list[float] = []
        """From when on each row holds, in seconds since 1970."""
        self.longest = 0.0
        """Seconds that a row may hold."""
        self._prices: FloatArray = np.zeros(0)
        self.read()

    def read(self) -> FloatArray:
        """Return the price of each row."""
        seen = None
        if self.path.exists():
            status = self.path.stat()
            seen = status.st_mtime_ns, status.st_size
        if seen is None or seen != self._seen:
            try:
                self._take(read_text(self.path))
            except ConfigurationError as wrong:
                if self._seen is None or seen is None:
                    raise
                logger.warning(
                    "the price file could not be read, so the prices stay as they were: %s", wrong
                )
            self._seen = seen
        return self._prices

    def _take(self, text: str) -> None:
        """Take the complete rows of a text; nothing changes if one is invalid."""
        written = text[: text.rfind("\n") + 1]
        if not written:
            raise ConfigurationError(
                f"{self.path} has no complete line yet; end its first line with a newline"
            )
        rates = rates_of(self._column, csv_header(written, self.path))
        table = RecordedPrices.from_text(written, self.path, list(rates), floor=0.0).values
        if self._time_column is not None:
            self.times = _times(written, self.path, self._time_column)
            self.longest = HOLE * statistics.median_low(np.diff(self.times).tolist())
        self.rates, self.amounts = rates, np.asarray(table).reshape(-1, len(rates))
        self._prices = self.amounts @ np.array(list(rates.values()))

    def mean(self, num_rounds: int) -> float:
        """Return the average of the first rows, which stays the same unless they are changed."""
        prices, needed = self.read(), min(num_rounds, FIRST)
        if len(prices) < needed:
            raise ConfigurationError(
                f"{self.path} has {len(prices)} rows of prices, but a run of {num_rounds} rounds "
                f"is planned with the average of the first {needed}; add rows before the run "
                "begins"
            )
        return float(prices[:needed].mean())

    def amounts_of(self, row: int) -> dict[str, float]:
        """What a row has of each amount."""
        return dict(zip(self.rates, self.amounts[row].tolist(), strict=True))


class _FileFeed:
    """What feeds of a price file have in common."""

    def __init__(self, file: PriceFile) -> None:
        self._file = file

    @property
    def rates(self) -> Mapping[str, float]:
        """What one unit of each column counts for in the price."""
        return self._file.rates

    def mean(self, num_rounds: int) -> float:
        """Return the average of the first 24 rows, or of as many as there are rounds."""
        return self._file.mean(num_rounds)


class GrowingPrices(_FileFeed):
    """The feed of a CSV file's column: one row a round, and more rows as they become known.

    Rows beyond the present round are prices known ahead.

    Args:
        path: of the file, which is read again when it has changed.
        column: the column of prices, or several with their rates (``eur+0.08*gco2``).
    """

    def __init__(self, path: Path | str, column: str) -> None:
        super().__init__(PriceFile(path, column))

    def at(self, round_number: int, clients: Sequence[str] = ()) -> float:
        """Return the row of a round."""
        prices = self._file.read()
        if round_number > len(prices):
            raise SupplierError(
                f"the price file {self._file.path}",
                f"has rows for {len(prices)} rounds, but none for round {round_number}; {ADD_ROWS}",
            )
        return float(prices[round_number - 1])

    def known(self, round_number: int, horizon: int) -> Sequence[float]:
        """The rows after that of a round."""
        rows: list[float] = self._file.read()[round_number : round_number + horizon].tolist()
        return rows

    def amounts(self, round_number: int) -> Mapping[str, float]:
        """What the row of a round has of each column."""
        return self._file.amounts_of(round_number - 1)


class ClockPrices(_FileFeed):
    """The feed of a CSV file whose rows have a time: the price is that of now.

    Args:
        path: of the file, which is read again when it has changed.
        column: the column of prices, or several with their rates (``eur+0.08*gco2``).
        round_length: seconds that a round takes, about: with it, later rows are prices known ahead.
        time_column: the column of times, in ISO 8601 with an offset (``2026-01-31T13:00+01:00``). A
            row holds until the next one begins, or about as long as rows usually do: not over a
            hole in the file, nor long after its end.
        clock: returns seconds since 1970.
    """

    def __init__(
        self,
        path: Path | str,
        column: str,
        round_length: float,
        *,
        time_column: str = "time",
        clock: Callable[[], float] = time.time,
    ) -> None:
        if not 0 < round_length < float("inf"):
            raise ConfigurationError(f"round_length must be more than 0 s, got {round_length!r}")
        super().__init__(PriceFile(path, column, time_column))
        self._round_length, self._clock = round_length, clock
        self._asked = 0, 0.0

    def at(self, round_number: int, clients: Sequence[str] = ()) -> float:
        """Return the price of now, when the round begins."""
        prices, now = self._file.read(), self._clock()
        row = self._row(now)
        if row is None:
            first, end = (_told(at) for at in (self._file.times[0], self._end))
            raise SupplierError(
                f"the price file {self._file.path}",
                (
                    f"has prices from {first} to {end}, but none for {_told(now)}, when round "
                    f"{round_number} begins; {ADD_ROWS}"
                ),
            )
        self._asked = round_number, now
        return float(prices[row])

    def known(self, round_number: int, horizon: int) -> Sequence[float]:
        """Return the prices at the times when the next rounds will begin, if there are rows."""
        prices = self._file.read()
        of, begun = self._asked
        rows = (
            self._row(begun + n * self._round_length)
            for n in range(1, horizon + 1 if of == round_number else 1)
        )
        there = itertools.takewhile(lambda row: row is not None, rows)
        return [float(prices[row]) for row in there if row is not None]

    def amounts(self, round_number: int) -> Mapping[str, float]:
        """What the row of a round has of each column."""
        of, begun = self._asked
        row = self._row(begun) if of == round_number else None
        return {} if row is None else self._file.amounts_of(row)

    @property
    def _end(self) -> float:
        """When the last row ends: it holds as long as the one before."""
        times = self._file.times
        return times[-1] + min(times[-1] - times[-2], self._file.longest)

    def _row(self, at: float) -> int | None:
        """The row that holds at a time."""
        times = self._file.times
        row = bisect_right(times, at) - 1
        if row < 0 or at >= self._end or at - times[row] >= self._file.longest:
            return None
        return row


def _times(text: str, path: Path, column: str) -> list[float]:
    """The column of times: each later than the one before."""
    found: list[float] = []
    for line, cell in csv_rows(text, path, column):
        try:
            at = datetime.fromisoformat(cell or "")
        except ValueError:
            at = datetime.min  # noqa: DTZ901 - refused below, as it has no offset
        if at.tzinfo is None:
            raise ConfigurationError(
                f"{path}, line {line}, column {column}: {cell!r} is not a time with an offset; "
                "write it as 2026-01-31T13:00+01:00, or 2026-01-31T12:00Z"
            )
        if found and at.timestamp() <= found[-1]:
            raise ConfigurationError(
                f"{path}, line {line}, column {column}: {cell} is not later than the row before; "
                "sort the rows by time"
            )
        found.append(at.timestamp())
    if len(found) < 2:  # noqa: PLR2004 - nobody could say how long one row holds
        raise ConfigurationError(f"{path} needs at least two rows, got {len(found)}")
    return found


def _told(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%dT%H:%MZ")
