"""Suggest what a user may have meant by an unknown name."""

import difflib
from collections import defaultdict
from collections.abc import Iterable

ALIKE = str.maketrans("ol", "01")
"""Letters that are taken for digits."""


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
    names = list(dict.fromkeys(known))
    by_case = [candidate for candidate in names if candidate.casefold() == name.casefold()]
    if len(by_case) == 1:
        return f"did you mean {by_case[0]}?"
    by_form = defaultdict[str, list[str]](list)
    for candidate in names:
        by_form[_form(candidate)].append(candidate)
    asked = _form(name)
    nearest, *others = [*difflib.get_close_matches(asked, by_form, n=2), ""]
    meant = by_form[nearest] if nearest else []
    if len(meant) != 1 or _likeness(asked, others[0]) == _likeness(asked, nearest):
        return otherwise
    return f"did you mean {meant[0]}?"


def _form(name: str) -> str:
    return name.casefold().translate(ALIKE)


def _likeness(one: str, other: str) -> float:
    return difflib.SequenceMatcher(None, other, one).ratio()
