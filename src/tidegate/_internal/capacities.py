"""Sizes of clients' memories as texts, for the command line and configuration files."""

from tidegate.errors import ConfigurationError

MOST_CLIENTS = 100_000_000


def capacity_groups(given: object) -> tuple[tuple[int, int], ...]:
    """Return groups of clients, each with its size and how many there are.

    Args:
        given: a list of sizes, or a text such as ``8,9,10x1000``.

    Raises:
        ConfigurationError: it is neither, or there are no clients or too many of them.

    >>> capacity_groups("8, 9, 10 x 1000"), capacity_groups([5, 5])
    (((8, 1), (9, 1), (10, 1000)), ((5, 2),))
    """
    parts = given.split(",") if isinstance(given, str) else given
    if not isinstance(parts, list | tuple):
        raise ConfigurationError("write a list [8, 9, 10] or a text such as 10x1000")
    groups: list[tuple[int, int]] = []
    for part in parts:
        size, times, count = (piece.strip() for piece in str(part).partition("x"))
        if not (size.isdecimal() and (count if times else "1").isdecimal()):
            raise ConfigurationError(f"{part!r} is not a capacity; write 8,9,10 or 10x1000")
        if int(size) < 1:
            raise ConfigurationError(f"{part!r}: every client needs room for at least 1 sample")
        before = groups.pop() if groups and groups[-1][0] == int(size) else (int(size), 0)
        groups.append((int(size), before[1] + int(count or "1")))
    clients = sum(count for _, count in groups)
    if not 1 <= clients <= MOST_CLIENTS:
        raise ConfigurationError(f"this is {clients:,} clients; give 1 to {MOST_CLIENTS:,}")
    return tuple(groups)
