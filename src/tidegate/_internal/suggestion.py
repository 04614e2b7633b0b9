"""Suggest what a user may have meant by an unknown name."""

import difflib
from collections.abc import Iterable


def suggestion(name: str, known: Iterable[str], otherwise: str) -> str:
    """Return the nearest known name as a question, or a fallback if none is near.

    >>> suggestion("acdp", ["acdpp", "hybrid"], otherwise="choose one")
    'did you mean acdpp?'
    """
    close = difflib.get_close_matches(name, list(known), n=1)
    return f"did you mean {close[0]}?" if close else otherwise
