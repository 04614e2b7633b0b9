"""How large the present check is; ``scripts/check`` sets it through ``TIDEGATE_CHECK``.

``quick`` and ``check`` play the small size of a test, ``full`` the large one.
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


def at_size(check: Value, full: Value) -> Value:
    """What a test takes at each change, and what it takes at full size."""
    return full if SIZE == "full" else check
