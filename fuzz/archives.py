"""NumPy archives as ours are written, taken apart and put together again."""

import io
from typing import Any

import numpy as np

from fuzz.choices import Choices


def packed(**parts: Any) -> bytes:
    """An archive of arrays; a text or bytes become an array of bytes."""
    file = io.BytesIO()
    arrays: dict[str, Any] = {
        name: np.frombuffer(part.encode() if isinstance(part, str) else part, dtype=np.uint8)
        if isinstance(part, str | bytes)
        else part
        for name, part in parts.items()
    }
    np.savez(file, **arrays)
    return file.getvalue()


def unpacked(content: bytes) -> dict[str, Any]:
    """The arrays of an archive."""
    with np.load(io.BytesIO(content), allow_pickle=False) as archive:
        return dict(archive)


def patched(content: bytes, choices: Choices) -> bytes:
    """Content with some bytes changed, and perhaps cut."""
    changed = bytearray(content)
    for _ in range(choices.number(15)):
        changed[choices.number(len(changed) - 1)] = choices.number(255)
    if choices.number(7) == 1:
        del changed[choices.number(len(changed)) :]
    return bytes(changed)
