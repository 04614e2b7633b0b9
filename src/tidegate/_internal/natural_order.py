"""Order names as people do: numbers in them count as numbers."""

import re

NUMBERS = re.compile("([0-9]+)")


def natural_order(name: str) -> tuple[tuple[int, str], ...]:
    """Return the key by which names are sorted, numbers by their size.

    >>> sorted(["client-10", "client-2", "client-1"], key=natural_order)
    ['client-1', 'client-2', 'client-10']
    """
    parts = NUMBERS.split(name)  # text and digits in turns
    places = [(len(part.lstrip("0")), part.lstrip("0")) for part in parts[1::2]]
    keys = [(0, part) for part in parts]
    keys[1::2] = places
    return (*keys, (0, name))  # "1" and "01" differ
