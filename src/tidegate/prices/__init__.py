"""c(t): the price of one sample, revealed at the start of a round.

A price law yields one price a round, either one number for the whole fleet or, asked for a
``size``, one number a client. A path depends only on the generator, never on the number of
rounds, so a longer run begins exactly like a shorter one.
"""

from tidegate.prices.feeds import PriceFeed, PricePath, RecordedPrices, check_length
from tidegate.prices.laws import ConstantPrice, MarkovPrice, Price, PriceLaw, UniformPrice, as_price
from tidegate.prices.words import price_law

__all__ = [
    "ConstantPrice",
    "MarkovPrice",
    "Price",
    "PriceFeed",
    "PriceLaw",
    "PricePath",
    "RecordedPrices",
    "UniformPrice",
    "as_price",
    "check_length",
    "price_law",
]
