"""Price laws as texts, for the command line and configuration files."""

import re
from collections.abc import Callable
from pathlib import Path

from tidegate._internal.arguments import is_number
from tidegate.errors import ConfigurationError
from tidegate.prices.feeds import RecordedPrices
from tidegate.prices.laws import ConstantPrice, MarkovPrice, PriceLaw, UniformPrice

DECIMAL_COMMA = re.compile(r"\d+,\d+")


def price_law(text: str) -> PriceLaw:
    """Return a price law from a short text, as on the command line.

    A number, which is the price in every round, ``constant:5.5``, ``uniform:1,10``,
    ``markov:LOW,HIGH,STAY_LOW,STAY_HIGH`` or ``trace:FILE.csv:COLUMN[,COLUMN...]``.

    >>> price_law("uniform:1,10"), price_law("5")
    (UniformPrice(low=1.0, high=10.0), ConstantPrice(value=5.0))
    """
    try:
        number = float(text)
    except ValueError:
        pass
    else:
        return ConstantPrice(number)
    kind, _, rest = text.partition(":")
    if kind == "trace":
        path, _, columns = rest.rpartition(":")
        if not path:
            raise ConfigurationError(f"price {text!r} must have the form trace:FILE.csv:COLUMN")
        return RecordedPrices.from_csv(Path(path), columns.split(","))
    laws: dict[str, tuple[Callable[..., PriceLaw], str]] = {
        "constant": (ConstantPrice, "constant:PRICE"),
        "uniform": (UniformPrice, "uniform:LOWEST,HIGHEST"),
        "markov": (MarkovPrice, "markov:LOW,HIGH,STAY_LOW,STAY_HIGH"),
    }
    if kind not in laws:
        if kind.lower().endswith(".csv"):
            column = rest or "COLUMN"
            raise ConfigurationError(
                f"unknown price law {text!r}; did you mean trace:{kind}:{column}?"
            )
        if DECIMAL_COMMA.fullmatch(text):
            raise ConfigurationError(
                f"price {text!r} is not a number; write decimals with a point, "
                f"{kind.replace(',', '.')}, or name a law, uniform:{kind}"
            )
        raise ConfigurationError(
            f"unknown price law {kind!r}; choose constant, uniform, markov or trace, "
            "for example uniform:1,10, or give a number"
        )
    law, form = laws[kind]
    try:
        numbers = [float(part) for part in rest.split(",")]
    except ValueError:
        raise ConfigurationError(
            f"price {text!r} must have the form {form}, with numbers"
        ) from None
    if len(numbers) != form.count(",") + 1:
        raise ConfigurationError(
            f"price {text!r} must have the form {form}; write decimals with a point: 1.5"
        )
    return law(*numbers)


def price_text(given: object) -> object:
    """Return a price of a configuration file as a text: TOML has numbers, and a number is a price.

    >>> price_text(5), price_text("uniform:1,10")
    ('5', 'uniform:1,10')
    """
    return str(given) if is_number(given) else given
