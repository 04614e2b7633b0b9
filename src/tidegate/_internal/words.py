"""Numbers with the words that belong to them."""


def counted(count: int, what: str) -> str:
    """Return a number of things, in the singular or the plural.

    >>> counted(1, "file"), counted(2000, "round"), counted(0, "client")
    ('1 file', '2,000 rounds', '0 clients')
    """
    return f"{count:,} {what}{'s' * (count != 1)}"
