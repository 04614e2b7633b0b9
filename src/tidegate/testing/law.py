"""A law, the input that it is tried on, and what is said where it is broken."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass


class LawBrokenError(AssertionError):
    """Code that breaks a law.

    Args:
        law: its name.
        given: the input on which it was broken.
        found: what happened there.
    """

    def __init__(self, law: str, given: str, found: str) -> None:
        super().__init__(f"{law} is broken: {found}; tried on {given}")
        self.law = law
        self.given = given
        self.found = found


@dataclass(frozen=True)
class Trial:
    """A law that is tried on one input."""

    law: str
    given: str

    def expect(self, holds: object, found: str) -> None:
        """Raise ``LawBrokenError`` with what was found, unless something holds."""
        if not holds:
            raise LawBrokenError(self.law, self.given, found)

    @contextmanager
    def raises_nothing(self) -> Iterator[None]:
        """Whatever the code under test raises breaks the law."""
        try:
            yield
        except LawBrokenError:
            raise
        except Exception as wrong:
            found = f"it raised {type(wrong).__name__}: {wrong}"
            raise LawBrokenError(self.law, self.given, found) from wrong
