"""Prices of a CSV file to which rows are added while the run goes on."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from tidegate._internal.arrays import FloatArray
from tidegate.errors import SupplierError
from tidegate.prices.feeds import RecordedPrices, read_text

FIRST = 24
"""Rows that the average is taken of: have them in the file before the run begins."""


class GrowingPrices:
    """The feed of a column of a CSV file: one row a round, and more rows as they become known.

    The file is read again when it has changed. Rows beyond the present round are prices known
    ahead. A row that is not ended by a new line is still being written, and waited for.
    """

    def __init__(self, path: Path | str, column: str) -> None:
        self._path, self._column = Path(path), column
        self._seen: tuple[int, int] | None = None
        self._prices: FloatArray = np.zeros(0)
        self._read()

    def mean(self, num_rounds: int) -> float:
        """Average of the first rows, which stays the same when others are added."""
        return float(self._read()[: min(num_rounds, FIRST)].mean())

    def at(self, round_number: int, clients: Sequence[str] = ()) -> float:
        """The row of a round."""
        prices = self._read()
        if round_number > len(prices):
            raise SupplierError(
                f"the price file {self._path}",
                f"has rows for {len(prices)} rounds, and round {round_number} needs its price; add "
                "rows, each ended by a new line, and start the run again: it goes on from here",
            )
        return float(prices[round_number - 1])

    def known(self, round_number: int, horizon: int) -> Sequence[float]:
        """The rows after that of a round."""
        rows: list[float] = self._read()[round_number : round_number + horizon].tolist()
        return rows

    def _read(self) -> FloatArray:
        """All rows, read again if the file has changed."""
        seen = None
        if self._path.exists():
            told = self._path.stat()
            seen = told.st_mtime_ns, told.st_size
        if seen is None or seen != self._seen:
            text = read_text(self._path)
            written = text[: text.rfind("\n") + 1]
            self._prices = np.asarray(
                RecordedPrices.from_text(written, self._path, [self._column]).values
            )
            self._seen = seen
        return self._prices
