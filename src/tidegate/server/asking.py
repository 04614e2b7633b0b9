"""Ask a price feed, and report its exceptions as failures of the feed."""

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager

from tidegate.errors import SupplierError, TidegateError
from tidegate.prices import FarSightedFeed, PriceFeed, fed_price

MOST_AHEAD = 512
"""Rounds whose prices a feed is asked for in advance."""
SHOWN = 3
"""Names of clients in a message."""
BY_NAME = (
    "prices are by client name: the SuperNode's registered name, or tidegate-client in its "
    "node-config, or partition-N for its partition-id"
)
NO_PRICE = f"no order for %s in round %d: the price feed only knows %s; {BY_NAME}"

logger = logging.getLogger(__name__)


def asked_price(
    feed: PriceFeed, round_number: int, clients: Sequence[str]
) -> float | Mapping[str, float]:
    """Return what a sample costs in a round: one price for all, or one for each known client."""
    with _fed(round_number):
        price = feed.at(round_number, clients)
    if isinstance(price, Mapping):
        unknown = [client for client in clients if client not in price]
        if unknown:
            logger.warning(NO_PRICE, _some(unknown), round_number, _some(price))
        if len(unknown) == len(clients):
            raise SupplierError(
                "the price feed",
                f"has no price for {_some(unknown)} in round {round_number}, only for "
                f"{_some(price)}; {BY_NAME}",
            )
    return price


def known_prices(feed: PriceFeed, round_number: int) -> tuple[float, ...]:
    """Return the prices of the next rounds that the feed knows; none if it cannot say."""
    if not isinstance(feed, FarSightedFeed):
        return ()
    with _fed(round_number):
        known = list(feed.known(round_number, MOST_AHEAD))[:MOST_AHEAD]
    return tuple(fed_price(one, round_number + n) for n, one in enumerate(known, start=1))


def _some(names: Iterable[object]) -> str:
    """Return the first names, and whether there are more."""
    told = [repr(name) for name in names]
    return ", ".join(told[:SHOWN]) + (" and others" if len(told) > SHOWN else "") or "nobody"


@contextmanager
def _fed(round_number: int) -> Iterator[None]:
    try:
        yield
    except TidegateError:
        raise
    except Exception as wrong:
        reason = f"failed in round {round_number} with {type(wrong).__name__}: {wrong}"
        raise SupplierError("the price feed", reason) from wrong
