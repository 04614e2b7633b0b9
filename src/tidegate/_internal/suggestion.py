"""What somebody may have meant by a name that is not known."""

import difflib
from collections.abc import Iterable


def suggestion(name: str, known: Iterable[str], otherwise: str) -> str:
    """The nearest known name as a question, or what to say where none is near.

    >>> suggestion("acdp", ["acdpp", "hybrid"], otherwise="choose one")
    'did you mean acdpp?'
    """
    close = difflib.get_close_matches(name, list(known), n=1)
    return f"did you mean {close[0]}?" if close else otherwise
