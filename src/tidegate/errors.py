"""Errors that Tidegate raises on purpose, by what a caller can do about them.

All of them are a ``TidegateError``, and say what happened, what it means and what to do. Any other
exception that leaves the package is a bug in it, or comes from your own code.

Those about a value are a ``ValueError``, too, so ``except ValueError`` continues to work.
"""


class TidegateError(Exception):
    """Base class of all errors that Tidegate raises on purpose."""


class ConfigurationError(TidegateError, ValueError):
    """A setting is invalid: the message names the value, the limit and the remedy."""


class WireError(TidegateError, ValueError):
    """A message is refused: it is malformed, or contradicts what its sender said before."""


class DamagedFileError(TidegateError, ValueError):
    """A file does not hold what was written to it, or is missing while others refer to it.

    Args:
        source: the file, or what it was read for.
        reason: what is wrong with it.
        remedy: what to do now.
    """

    def __init__(self, source: object, reason: str, remedy: str) -> None:
        super().__init__(f"{source} {reason}; {remedy}")
        self.source = source
        self.reason = reason
        self.remedy = remedy


class RunDiffersError(TidegateError, ValueError):
    """A file belongs to another run: other terms, another client, another version.

    Args:
        message: which file, and what to do.
        name: of the term that differs.
        saved: its value in the file.
        given: its value here.
    """

    def __init__(self, message: str, *, name: str, saved: object, given: object) -> None:
        super().__init__(message)
        self.name = name
        self.saved = saved
        self.given = given


class NothingLearnedError(TidegateError):
    """A run has used no client's model in any round, or in as many as it may go without."""


class SampleGoneError(TidegateError):
    """A sample was deleted while a round trained on it: it may no longer be held."""


class SupplierError(TidegateError):
    """A part from outside failed: a price feed, or what acquires samples.

    Args:
        supplier: what failed.
        reason: how.
    """

    def __init__(self, supplier: str, reason: str) -> None:
        super().__init__(f"{supplier} {reason}")
        self.supplier = supplier
        self.reason = reason
