"""Check arguments: errors name the argument, the value and the limit."""

import inspect
import math
import reprlib
from collections.abc import Callable, Sequence
from numbers import Integral, Real

import numpy as np

from tidegate.errors import ConfigurationError


def is_number(value: object) -> bool:
    """Return whether this is a real number; booleans and texts are not.

    >>> is_number(np.float32(5)), is_number("5"), is_number(True)
    (True, False, False)
    """
    return isinstance(value, Real) and not isinstance(value, bool)


def check_number(
    name: str, value: object, limit: str, fits: Callable[[float], bool], remedy: str = ""
) -> None:
    """Refuse anything but a number within limits.

    Args:
        name: of the argument.
        value: its value.
        limit: what it must be, in words.
        fits: whether a number is within the limits; called only with numbers.
        remedy: what to do, if the limit does not say it.

    >>> check_number("budget", "55", "a number above 0", lambda given: given > 0)
    Traceback (most recent call last):
    ...
    tidegate.errors.ConfigurationError: budget must be a number above 0, got '55'
    """
    if not (is_number(value) and fits(value)):  # type: ignore[arg-type]
        message = f"{name} must be {limit}, got {shown(value)}"
        raise ConfigurationError(f"{message}; {remedy}" if remedy else message)


def check_whole_number(
    name: str, value: object, *, least: int = 1, most: float = math.inf, remedy: str = ""
) -> None:
    """Refuse anything but a whole number within limits.

    >>> check_whole_number("rounds", 2.5)
    Traceback (most recent call last):
    ...
    tidegate.errors.ConfigurationError: rounds must be a whole number of at least 1, got 2.5
    """
    limit = f"a whole number of at least {least}"
    if most < math.inf:
        limit += f" and at most {most}"
    is_whole = isinstance(value, Integral)
    check_number(name, value, limit, lambda given: is_whole and least <= given <= most, remedy)


def check_truth(name: str, value: object) -> None:
    """Refuse anything but True and False: Python takes every text but '' for true.

    >>> check_truth("sums_only", "no")
    Traceback (most recent call last):
    ...
    tidegate.errors.ConfigurationError: sums_only must be True or False, got 'no'
    """
    if not isinstance(value, bool | np.bool_):
        raise ConfigurationError(f"{name} must be True or False, got {shown(value)}")


def check_kind(name: str, value: object, kind: type, remedy: str) -> None:
    """Refuse anything but an instance of a class.

    Args:
        name: of the argument.
        value: its value.
        kind: the class.
        remedy: an example.

    >>> check_kind("seeds", 5, list, "such as [5]")
    Traceback (most recent call last):
    ...
    tidegate.errors.ConfigurationError: seeds must be a list, got 5; such as [5]
    """
    if not isinstance(value, kind):
        message = f"{name} must be a {kind.__qualname__}, got {shown(value)}; {remedy}"
        raise ConfigurationError(message)


def check_function(name: str, value: object, takes: Sequence[str], remedy: str) -> None:
    """Refuse what cannot be called with these arguments, as far as Python knows before the call.

    Args:
        name: of the argument.
        value: its value.
        takes: what it will be called with, in words.
        remedy: an example.
    """
    wanted = f"{name} must be a function of {' and '.join(takes)}"
    if not callable(value):
        raise ConfigurationError(f"{wanted}, got {shown(value)}; {remedy}")
    try:
        signature = inspect.signature(value)
    except (TypeError, ValueError):  # some functions written in C have no signature
        return
    try:
        signature.bind(*takes)
    except TypeError as wrong:
        named = getattr(value, "__qualname__", type(value).__qualname__)
        them = "them" if len(takes) > 1 else "it"
        raise ConfigurationError(
            f"{wanted}, got {named}{signature}, which does not accept {them}: {wrong}; {remedy}"
        ) from None


def shown(value: object) -> str:
    """Return a value on one line for an error, shortened if long; only the type of a large object.

    >>> shown(np.float64(2.5)), shown("55"), shown(np.zeros(3))
    ('2.5', "'55'", 'an object of ndarray')
    """
    if isinstance(value, np.generic):
        value = value.item()
    if value is None or isinstance(value, str | bytes | Real | list | tuple | dict | set | type):
        return " ".join(reprlib.repr(value).split())
    return f"an object of {type(value).__qualname__}"
