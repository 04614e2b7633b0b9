"""Suggest what a user may have meant by an unknown name."""

import difflib
from collections.abc import Iterable

ALIKE = str.maketrans("ol", "01")
"""Letters that are taken for digits."""
NEAR = 0.6
"""Of two names, the part that must be the same for one to be meant by the other."""


def suggestion(name: str, known: Iterable[str], otherwise: str) -> str:
    """Return the nearest known name as a question, or a fallback if none is near.

    If two names are as near, it names neither: the wrong one could be retired or deleted.

    >>> suggestion("acdp", ["acdpp", "hybrid"], otherwise="choose one")
    'did you mean acdpp?'
    >>> sites = ["site-0", "site-1", "ward"]
    >>> suggestion("SITE-O", sites, otherwise="choose one")
    'did you mean site-0?'
    >>> suggestion("site-9", sites, otherwise="choose one")
    'choose one'
    """
    asked, names = _plain(name), list(known)
    near = sorted(((_likeness(asked, _plain(one)), one) for one in names), reverse=True)
    if not near or near[0][0] < NEAR or (len(near) > 1 and near[1][0] == near[0][0]):
        return otherwise
    return f"did you mean {near[0][1]}?"


def _plain(name: str) -> str:
    return name.casefold().translate(ALIKE)


def _likeness(one: str, other: str) -> float:
    return difflib.SequenceMatcher(None, one, other).ratio()
