"""Words: numbers with what they count, and texts that somebody else wrote."""

LONGEST_TEXT = 500
"""Characters that are kept of a text of somebody else."""


def on_a_line(text: object) -> str:
    r"""Return the beginning of a text in one line: it may hold any character.

    >>> on_a_line("gone\nthe server stops: never")
    'gone the server stops: never'
    """
    printable = "".join(
        character if character.isprintable() else " " for character in str(text)[:LONGEST_TEXT]
    )
    return " ".join(printable.split())


def counted(count: int, what: str) -> str:
    """Return a number of things, in the singular or the plural.

    >>> counted(1, "file"), counted(2000, "round"), counted(0, "client")
    ('1 file', '2,000 rounds', '0 clients')
    """
    return f"{count:,} {what}{'s' * (count != 1)}"
