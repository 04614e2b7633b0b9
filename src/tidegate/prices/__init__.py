"""c(t): the price of one sample, revealed at the start of a round.

A price *law* yields one price a round, either one number for the whole fleet or, asked for a
``size``, one number a client. What it yields depends only on the generator, never on the number of
rounds, so a longer run begins exactly like a shorter one. A price *feed* is asked round by round
by a running fleet: ``price_feed`` makes one from a number, a text or a law.
"""

from tidegate.prices.feeds import (
    FarSightedFeed,
    PricedByAmounts,
    PriceFeed,
    PricePath,
    RecordedPrices,
    fed_price,
)
from tidegate.prices.given import (
    FedPrices,
    Prices,
    check_length,
    check_mean,
    law_of,
    length_of,
    price_feed,
)
from tidegate.prices.growing import ClockPrices, GrowingPrices
from tidegate.prices.laws import (
    ConstantPrice,
    MarkovPrice,
    Price,
    PriceLaw,
    UniformPrice,
    as_price,
)
from tidegate.prices.words import price_law, price_text

__all__ = [
    "ClockPrices",
    "ConstantPrice",
    "FarSightedFeed",
    "FedPrices",
    "GrowingPrices",
    "MarkovPrice",
    "Price",
    "PriceFeed",
    "PriceLaw",
    "PricePath",
    "PricedByAmounts",
    "Prices",
    "RecordedPrices",
    "UniformPrice",
    "as_price",
    "check_length",
    "check_mean",
    "fed_price",
    "law_of",
    "length_of",
    "price_feed",
    "price_law",
    "price_text",
]
