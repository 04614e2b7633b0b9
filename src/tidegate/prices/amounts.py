"""Prices that consist of several amounts, such as money and carbon, each at a rate."""

from collections.abc import Collection

from tidegate.errors import ConfigurationError


def rates_of(text: str, columns: Collection[str]) -> dict[str, float]:
    """Return the columns that a price consists of, with the rate of each.

    Args:
        text: the name of a column, or several, each with its rate, as in ``eur+0.08*gco2``.
        columns: the existing columns.

    >>> rates_of("eur+0.08*gco2", ["time", "eur", "gco2"])
    {'eur': 1.0, 'gco2': 0.08}
    """
    if text in columns:
        return {text: 1.0}
    rates: dict[str, float] = {}
    for term in text.split("+"):
        rate, times, column = term.rpartition("*")
        try:
            value = float(rate) if times else 1.0
        except ValueError:
            value = -1.0
        if not (0 <= value < float("inf") and column.strip()):
            raise ConfigurationError(
                f"{term!r} must have the form RATE*COLUMN, with a rate of 0 or more, as in "
                "eur+0.08*gco2"
            )
        rates[column.strip()] = rates.get(column.strip(), 0.0) + value
    return rates
