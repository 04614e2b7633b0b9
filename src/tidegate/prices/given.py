"""Prices as users give them: a number, a text, a law or a feed."""

import math
import re
import reprlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import cast

import numpy as np

from tidegate._internal.arguments import check_number, check_whole_number, is_number
from tidegate.errors import ConfigurationError
from tidegate.prices.feeds import PriceFeed, PricePath, RecordedPrices, fed_price
from tidegate.prices.growing import ClockPrices, GrowingPrices
from tidegate.prices.laws import ConstantPrice, Price, PriceLaw, as_price
from tidegate.prices.words import price_law

GROWING = "growing:"
CLOCK = "clock:"
"""Prefixes of texts that name a file to which rows are added during the run: one row a round, or by
time."""
Prices = float | str | PriceLaw | PriceFeed
"""What a sample costs: always the same, a law in words, a law, or a feed."""


def price_feed(prices: Prices, seed: int = 0, known_ahead: int = 0) -> PriceFeed:
    """Return a feed of prices for a running fleet.

    Args:
        prices: a number, which is the price in every round; a text such as ``"uniform:1,10"``
            (``price_law``), ``"growing:FILE.csv:COLUMN"`` for a file to which rows are added
            (``GrowingPrices``), or ``"clock:FILE.csv:COLUMN:30m"`` for one whose rows have a time
            (``ClockPrices``); a law; or a feed, which is returned unchanged.
        seed: of the path that is drawn from a law; 0 by default, so that a restarted server gets
            the same prices.
        known_ahead: rounds whose prices the server may know in advance; your own feed says itself
            what it knows (``FarSightedFeed``).

    >>> price_feed(5).at(1, ["a"])
    5.0
    >>> price_feed("uniform:1,10").mean(num_rounds=100)
    5.5
    """
    check_whole_number("known_ahead", known_ahead, least=0)
    if _is_feed(prices):
        return cast("PriceFeed", prices)
    if isinstance(prices, str) and prices.startswith(GROWING):
        path, _, column = prices.removeprefix(GROWING).rpartition(":")
        if not path:
            raise ConfigurationError(
                f"price {prices!r} must have the form {GROWING}FILE.csv:COLUMN"
            )
        return GrowingPrices(path, column)
    if isinstance(prices, str) and prices.startswith(CLOCK):
        return _clock_prices(prices)
    return PricePath(law_of(prices), seed, known_ahead)


def _clock_prices(text: str) -> ClockPrices:
    """The feed of ``clock:FILE.csv:COLUMN:30m``."""
    path, column, length = (*text.removeprefix(CLOCK).rsplit(":", 2), "", "")[:3]
    parts = re.fullmatch(r"(\d{1,9})(s|m|h)", length)
    if not path or parts is None:
        raise ConfigurationError(
            f"price {text!r} must have the form {CLOCK}FILE.csv:COLUMN:LENGTH, with the length of "
            "a round, such as 90s, 30m or 1h"
        )
    return ClockPrices(path, column, int(parts[1]) * {"s": 1, "m": 60, "h": 3600}[parts[2]])


def law_of(prices: Prices) -> PriceLaw:
    """Return a price law; the prices of a feed are the same for all seeds.

    >>> law_of("constant:5.5"), law_of(5)
    (ConstantPrice(value=5.5), ConstantPrice(value=5.0))
    """
    if isinstance(prices, str):
        if prices.startswith(CLOCK):
            raise ConfigurationError(
                f"price {prices!r} depends on the present time, which a simulation does not have; "
                "simulate the same file with trace:FILE.csv:COLUMN, one row a round"
            )
        growing = prices.startswith(GROWING)
        return FedPrices(price_feed(prices)) if growing else price_law(prices)
    if is_number(prices):
        return ConstantPrice(float(cast("float", prices)))
    if _is_feed(prices):
        return FedPrices(cast("PriceFeed", prices))
    if _has(prices, "rounds", "mean"):
        return cast("PriceLaw", prices)
    raise ConfigurationError(
        "prices must be a number, a text such as 'uniform:1,10', a price law, or a feed with "
        f"`mean` and `at`; got {reprlib.repr(prices)}"
    )


@dataclass(frozen=True)
class FedPrices:
    """The prices of a feed as a law, for a simulation.

    Clients are called ``partition-0``, ``partition-1`` and so on, as on in-process engines.
    """

    feed: PriceFeed

    def mean(self, num_rounds: int) -> float:
        """Return what the feed expects."""
        return self.feed.mean(num_rounds)

    def rounds(self, draw: np.random.Generator, size: int | None = None) -> Iterator[Price]:
        """Yield the feed's prices of rounds 1, 2, ..."""
        clients = [f"partition-{number}" for number in range(size or 0)]
        round_number = 0
        while True:
            round_number += 1
            price = self.feed.at(round_number, clients)
            if not isinstance(price, Mapping):
                same = fed_price(price, round_number)
                yield same if size is None else np.full(size, same)
            elif size is None:
                raise ConfigurationError(
                    "the price feed has a price for each client; simulate it with "
                    "price_per_client=True"
                )
            else:
                yield as_price(
                    [fed_price(price.get(client), round_number, client) for client in clients]
                )


def length_of(prices: PriceLaw | PriceFeed) -> int | None:
    """Return the rounds that a trace has prices for; None if prices have no end.

    >>> length_of(RecordedPrices([3.0, 1.0])), length_of(ConstantPrice(5.5))
    (2, None)
    """
    fed = prices.feed if isinstance(prices, FedPrices) else prices
    law = fed.law if isinstance(fed, PricePath) else fed
    return len(law) if isinstance(law, RecordedPrices) else None


def check_length(prices: PriceLaw | PriceFeed, num_rounds: int) -> None:
    """Refuse a trace that ends before the run does.

    Args:
        prices: a law or a feed; only traces, and what is made from them, have an end.
        num_rounds: rounds of the run.

    >>> check_length(RecordedPrices([3.0, 1.0]), num_rounds=2)
    """
    length = length_of(prices)
    if length is not None and length < num_rounds:
        raise ConfigurationError(
            f"the trace has prices for {length} rounds, but the run has {num_rounds}; shorten the "
            f"run to {length} rounds, or record more prices"
        )


def check_mean(prices: PriceFeed, num_rounds: int) -> None:
    """Refuse prices that cost nothing, or do not say what they cost on average.

    Args:
        prices: of the run.
        num_rounds: rounds of the run.

    >>> check_mean(price_feed(0), num_rounds=2)
    Traceback (most recent call last):
    ...
    tidegate.errors.ConfigurationError: prices must be more than 0 on average..., got 0.0; ...
    """
    check_number(
        "prices",
        prices.mean(num_rounds),
        f"more than 0 on average over {num_rounds} rounds, as `mean` returns them",
        lambda mean: 0 < mean < math.inf,
        "if samples cost nothing, there is nothing to decide",
    )


def _is_feed(prices: object) -> bool:
    return _has(prices, "at", "mean")


def _has(prices: object, *methods: str) -> bool:
    """Return whether this is an object with these methods, and not a class."""
    return not isinstance(prices, type) and all(
        callable(getattr(prices, name, None)) for name in methods
    )
