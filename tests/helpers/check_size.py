"""How large the present check is; ``scripts/check`` sets it through ``TIDEGATE_CHECK``.

``quick`` and ``check`` play the small size of a test, ``full`` the large one; a few tests that take
long have a size of their own for ``quick``.
"""

import os
from typing import Literal, TypeVar

Value = TypeVar("Value")
Size = Literal["quick", "check", "full"]

SIZES: tuple[Size, ...] = ("quick", "check", "full")
_named = os.environ.get("TIDEGATE_CHECK", "check")
if _named not in SIZES:
    raise ValueError(f"TIDEGATE_CHECK must be one of {', '.join(SIZES)}, got {_named!r}")
SIZE: Size = next(size for size in SIZES if size == _named)


def at_size(check: Value, full: Value, *, quick: Value | None = None) -> Value:
    """What a test takes at each change, and at full size; before a commit, if that is less."""
    if SIZE == "quick" and quick is not None:
        return quick
    return full if SIZE == "full" else check
