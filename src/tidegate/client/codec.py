"""Store samples as bytes, without pickles.

A sample is an array, a number, a text, bytes, or a tuple or dictionary of these; anything that
NumPy can turn into an array (a torch tensor, a PIL image) comes back as an array.
"""

import io
import json
import re
from typing import Any, Protocol

import numpy as np

from tidegate._internal.saving import array_from, reading

KIND = re.compile(r"[<>|=][A-Za-z]\d*(\[\w+\])?")
"""What NumPy calls a type without fields, such as ``<f4`` or ``<M8[ns]``."""


class SampleCodec(Protocol):
    """Turns samples into bytes and back."""

    def encode(self, sample: Any) -> bytes:
        """Return the sample as bytes."""
        ...

    def decode(self, data: bytes) -> Any:
        """Return the sample that the bytes hold."""
        ...


class ArrayCodec:
    """Stores a sample as a JSON head with its structure, followed by its arrays.

    >>> codec = ArrayCodec()
    >>> codec.decode(codec.encode((np.arange(3), 7, "label")))
    (array([0, 1, 2]), 7, 'label')
    """

    def encode(self, sample: Any) -> bytes:
        """Return the sample as bytes."""
        parts: list[bytes] = []
        head = json.dumps(_shape(sample, parts)).encode()
        return b"".join(len(part).to_bytes(8, "big") + part for part in [head, *parts])

    def decode(self, data: bytes) -> Any:
        """Return the sample that the bytes hold; refuse anything else."""
        with reading("a stored sample", "delete the buffer's file; the client then begins again"):
            parts, place = [], 0
            while place < len(data):
                size = int.from_bytes(data[place : place + 8], "big")
                place += 8 + size
                if place > len(data):
                    raise ValueError("it is cut short")
                parts.append(data[place - size : place])
            if not parts:
                raise ValueError("it is empty")
            return _rebuild(json.loads(parts[0]), dict(enumerate(parts[1:])))


def _shape(value: Any, parts: list[bytes]) -> Any:
    if value is None or type(value) in (bool, int, float, str):
        return {"plain": value}
    if isinstance(value, tuple | list):
        kind = "tuple" if isinstance(value, tuple) else "list"
        return {kind: [_shape(item, parts) for item in value]}
    if isinstance(value, dict):
        if not all(type(name) is str for name in value):
            raise TypeError(f"cannot store a dictionary whose keys are not texts: {list(value)}")
        return {"dict": {name: _shape(item, parts) for name, item in value.items()}}
    if isinstance(value, bytes):
        parts.append(value)
        return {"bytes": len(parts) - 1}
    array = np.asarray(value)
    if array.dtype.hasobject:
        raise TypeError(
            f"cannot store a {type(value).__name__}: turn it into arrays or bytes first"
        )
    if array.nbytes and array.dtype.names is None:
        parts.append(array.tobytes())
        return {"raw": [len(parts) - 1, array.dtype.str, array.shape]}
    buffer = io.BytesIO()  # nothing, or records of fields, whose type one text cannot name
    np.save(buffer, array, allow_pickle=False)
    parts.append(buffer.getvalue())
    return {"array": len(parts) - 1}


def _rebuild(shape: Any, parts: dict[int, bytes]) -> Any:
    """Rebuild a sample from its structure; each part is used once, so samples cannot blow up."""
    ((kind, content),) = shape.items()
    if kind == "plain" and (content is None or type(content) in (bool, int, float, str)):
        return content
    if kind == "raw":
        part, dtype, sizes = content
        if not KIND.fullmatch(dtype):
            raise ValueError(f"it holds an array of an unknown kind {dtype[:50]!r}")
        array = np.frombuffer(parts.pop(part), dtype).reshape(sizes)
        return array.copy()  # bytes cannot be written to, a sample can
    if kind == "array":
        return array_from(parts.pop(content))
    if kind == "bytes":
        return parts.pop(content)
    if kind == "dict":
        return {name: _rebuild(item, parts) for name, item in content.items()}
    if kind in ("tuple", "list"):
        items = [_rebuild(item, parts) for item in content]
        return tuple(items) if kind == "tuple" else items
    raise ValueError(f"it holds an unknown part {kind[:50]!r}")
