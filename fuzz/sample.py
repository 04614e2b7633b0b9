"""A stored sample."""

import functools
import json
from typing import Any

import numpy as np

from fuzz.choices import Choices, text_of
from fuzz.limits import may_refuse
from tidegate.client.codec import ArrayCodec

SAMPLES: tuple[Any, ...] = (
    (np.arange(6, dtype=np.uint8).reshape(2, 3), 7, "label"),
    {"x": np.float32(1.5), "y": [b"bytes", None, True]},
    np.array([(1, 2.0)], dtype=[("count", "i4"), ("value", "f8")]),
    np.zeros((0, 3)),
    np.array(["2026-01-01"], dtype="datetime64[D]"),
)


@functools.cache
def _parts(number: int) -> tuple[bytes, ...]:
    """Head and arrays of a packed sample."""
    data, parts = ArrayCodec().encode(SAMPLES[number]), []
    while data:
        size = int.from_bytes(data[:8], "big")
        parts.append(data[8 : 8 + size])
        data = data[8 + size :]
    return tuple(parts)


def _joined(parts: list[bytes]) -> bytes:
    return b"".join(len(part).to_bytes(8, "big") + part for part in parts)


def target(data: bytes) -> None:
    """Unpack any bytes, any head and part, or a sample whose head was edited."""
    choices = Choices(data)
    how, (head, *rest) = choices.number(3), _parts(choices.number(len(SAMPLES) - 1))
    if how == 0:
        content = choices.rest()
    elif how == 1:
        content = _joined([b'{"array": [0]}', choices.rest()])
    else:
        content = _joined([text_of(choices.edited(json.loads(head), most=4)).encode(), *rest])
    with may_refuse(ValueError):
        ArrayCodec().decode(content)


def seeds() -> list[bytes]:
    """Samples of every kind, whole and edited, and arrays as files."""
    numbers = range(len(SAMPLES))
    whole = [bytes([0, number]) + _joined(list(_parts(number))) for number in numbers]
    files = [bytes([1, 0]) + _parts(number)[-1] for number in (2, 3)]
    edits = [
        bytes([2, n, 2, 3, 0, 3, 0, 3, place, 0, 3, 9, 9]) for n in numbers for place in (0, 1)
    ]
    return [*whole, *files, *edits]
