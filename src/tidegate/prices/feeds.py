"""Prices for a running fleet, asked for round by round, and recorded prices."""

import contextlib
import itertools
import math
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, runtime_checkable

import numpy as np

from tidegate._internal.arrays import FloatArray
from tidegate._internal.randomness import PRICES, generator
from tidegate.errors import ConfigurationError, SupplierError
from tidegate.prices.amounts import rates_of
from tidegate.prices.csv_file import FORM, csv_header, csv_lines, price_in, read_text
from tidegate.prices.laws import Price, PriceLaw
from tidegate.wire import LARGEST_AMOUNT


class PriceFeed(Protocol):
    """Prices for a running fleet, asked for one round after another."""

    def mean(self, num_rounds: int) -> float:
        """Return c̄_T, the expected average cost of a sample."""
        ...

    def at(self, round_number: int, clients: Sequence[str]) -> float | Mapping[str, float]:
        """Return c(t): one price for all clients, or one for each of these clients."""
        ...


@runtime_checkable
class FarSightedFeed(PriceFeed, Protocol):
    """A feed that knows prices of coming rounds, such as a day-ahead market."""

    def known(self, round_number: int, horizon: int) -> Sequence[float]:
        """Return known prices of the rounds after this one, for all clients.

        Args:
            round_number: t.
            horizon: the most rounds that are asked for: t + 1, ..., t + horizon.
        """
        ...


@runtime_checkable
class PricedByAmounts(PriceFeed, Protocol):
    """A feed whose price is a sum of amounts, each at a rate."""

    @property
    def rates(self) -> Mapping[str, float]:
        """Return what one unit of each amount counts for in the price."""
        ...

    def amounts(self, round_number: int) -> Mapping[str, float]:
        """Return what a sample takes of each in a round; nothing for a round not asked for."""
        ...


def fed_price(price: object, round_number: int, whose: str = "all clients") -> float:
    """Return a feed's price if it is valid; a text is not, whatever it says.

    >>> fed_price(3, round_number=1)
    3.0
    """
    value = math.nan
    if not isinstance(price, str | bytes | bool):
        with contextlib.suppress(TypeError, ValueError):
            value = float(price)  # type: ignore[arg-type]
    if not 0 <= value <= LARGEST_AMOUNT:
        raise SupplierError(
            "the price feed",
            (
                f"must return a number from 0 to {LARGEST_AMOUNT:g} as the price of round "
                f"{round_number} for {whose}, got {price!r}"
            ),
        )
    return value + 0.0  # no price is -0.0, which a database does not tell from 0


class PricePath:
    """The feed of a price law and a seed: one price a round for all clients.

    >>> from tidegate.prices import UniformPrice
    >>> path = PricePath(UniformPrice(1, 10), seed=7)
    >>> first = path.at(1), path.at(2)
    >>> (path.at(1), path.at(2)) == first
    True
    >>> PricePath(RecordedPrices([3.0, 1.0, 2.0]), seed=0, known_ahead=1).known(1, horizon=48)
    (1.0,)
    """

    def __init__(self, law: PriceLaw, seed: int, known_ahead: int = 0) -> None:
        columns = np.shape(law.mean(1))
        if columns:
            raise ConfigurationError(
                f"the price law has {columns[0]} prices a round, but this feed returns one for "
                "all clients; name one column of the trace, or write a feed whose `at` returns "
                "one for each client"
            )
        self.law = law
        """What the prices are drawn from."""
        self._seed, self._known_ahead = seed, known_ahead
        self._first = 1
        self._rounds = law.rounds(generator(seed, PRICES))
        self._drawn: deque[float] = deque()

    def mean(self, num_rounds: int) -> float:
        """Return the law's own mean."""
        return float(np.asarray(self.law.mean(num_rounds)))

    def at(self, round_number: int, clients: Sequence[str] = ()) -> float:
        """Return the price of a round; going back restarts the path."""
        if round_number < self._first:
            self._first, self._drawn = 1, deque()
            self._rounds = self.law.rounds(generator(self._seed, PRICES))
        while self._first < round_number:
            self._draw(1)
            self._drawn.popleft()
            self._first += 1
        self._draw(1)
        return self._drawn[0]

    def known(self, round_number: int, horizon: int) -> Sequence[float]:
        """Return the prices of the next rounds, if the path may look ahead."""
        self.at(round_number)
        last = min(horizon, self._known_ahead)
        if isinstance(self.law, RecordedPrices):
            last = min(last, len(self.law) - round_number)
        self._draw(last + 1)
        return tuple(itertools.islice(self._drawn, 1, last + 1))

    def _draw(self, count: int) -> None:
        """Draw so many prices, including that of the round that was asked for last."""
        while len(self._drawn) < count:
            self._drawn.append(float(np.asarray(next(self._rounds))))


@dataclass(frozen=True, eq=False)
class RecordedPrices:
    """Recorded prices: one column for all clients, or one column a client.

    >>> trace = RecordedPrices([3.0, 1.0, 2.0])
    >>> trace.mean(num_rounds=2)
    2.0
    """

    values: Sequence[float] | Sequence[Sequence[float]] | FloatArray

    def __post_init__(self) -> None:
        values = np.array(self.values, dtype=np.float64)
        if values.ndim not in (1, 2) or values.size == 0:
            raise ConfigurationError(
                "recorded prices need at least one round, and one or more columns"
            )
        wrong = np.argwhere(~((values >= 0) & (values <= LARGEST_AMOUNT)))
        if len(wrong):
            place = tuple(int(index) for index in wrong[0])
            raise ConfigurationError(
                f"recorded price {values[place]} in row {place[0] + 1} is invalid; prices are "
                f"from 0 to {LARGEST_AMOUNT:g}"
            )
        values.setflags(write=False)
        object.__setattr__(self, "values", values)

    @classmethod
    def from_csv(cls, path: Path, columns: Sequence[str]) -> "RecordedPrices":
        """Read one column (one price for all) or several (one a client) of a CSV file.

        A column may be a sum of several, each at a rate: ``eur+0.08*gco2``.
        """
        return cls.from_text(read_text(path), path, columns)

    @classmethod
    def from_text(
        cls, text: str, path: Path, columns: Sequence[str], floor: float | None = None
    ) -> "RecordedPrices":
        """Read the same from a file's text; its path is for messages.

        Args:
            text: of the file.
            path: of the file.
            columns: one, or one a client.
            floor: lower prices count as this; None to refuse prices below 0.
        """
        header = csv_header(text, path)
        wanted = [rates_of(column, header) for column in columns]
        for column in itertools.chain.from_iterable(wanted):
            if column not in header:
                named = (name if name.isprintable() else repr(name) for name in header)
                raise ConfigurationError(
                    f"{path} has no column {column!r}; it has {', '.join(named)[:1000]}. {FORM}"
                )
        rows = [
            [
                math.fsum(
                    rate * price_in(path, line, column, row[column], floor)
                    for column, rate in rates.items()
                )
                for rates in wanted
            ]
            for line, row in csv_lines(text, path)
        ]
        if not rows:
            raise ConfigurationError(f"{path} has a header but no prices below it. {FORM}")
        table = np.array(rows)
        return cls(table[:, 0] if len(columns) == 1 else table)

    def __len__(self) -> int:
        """Rounds recorded."""
        return len(self._table)

    @property
    def num_columns(self) -> int:
        """Prices in each round."""
        return 1 if self._table.ndim == 1 else self._table.shape[1]

    @property
    def _table(self) -> FloatArray:
        return np.asarray(self.values)

    def mean(self, num_rounds: int) -> Price:
        """Return the average of the rows that a run of this length uses, for each column."""
        mean = self._table[:num_rounds].mean(axis=0)
        return mean if np.ndim(mean) else float(mean)

    def rounds(self, draw: np.random.Generator, size: int | None = None) -> Iterator[Price]:
        """Yield the recorded rows, in order; refuse a run that is longer than the record."""
        table, columns = self._table, self.num_columns
        if columns not in (1, size):
            wanted = "one price for all clients" if size is None else f"{size} prices a round"
            raise ConfigurationError(
                f"the record has {columns} prices a round, but the run needs {wanted}; give one "
                "column, or one a client"
            )
        for row in table:
            if size is None:
                yield float(row)
            else:
                yield np.broadcast_to(row, size)
        raise ConfigurationError(
            f"the record ends after {len(table)} rounds; shorten the run or record more"
        )
