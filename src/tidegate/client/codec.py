"""Store samples as bytes, without pickles, so that what comes back is what went in.

Anything else than the types of ``ArrayCodec`` is refused when it would be stored, before its reader
finds out what was lost.
"""

import functools
import importlib
import io
import json
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, Protocol

import numpy as np

from tidegate._internal.saving import array_from, reading

KIND = re.compile(r"[<>|=][A-Za-z]\d*(\[\w+\])?")
"""What NumPy calls a type without fields, such as ``<f4`` or ``<M8[ns]``."""
TENSORS = (
    *("bool", "uint8", "int8", "int16", "int32", "int64"),
    *("float16", "bfloat16", "float32", "float64", "complex64", "complex128"),
)
"""Types of torch's tensors that can be stored."""
MODES = ("1", "L", "LA", "P", "RGB", "RGBA")
"""Modes of images that PNG keeps."""
MOST_REMEMBERED = 1000
"""Bytes of a structure whose builder is remembered; samples of a stream are alike."""
REMEDIES: Mapping[str, str] = {
    "Series": "store row.to_dict(), or its values as an array",
    "DataFrame": "store its columns as arrays",
    "MaskedArray": "store its data and its mask",
    "UserDict": "store dict(it)",
    "OrderedDict": "store dict(it)",
    "defaultdict": "store dict(it)",
    "Decimal": "store str(it) or float(it)",
    "datetime": "store its isoformat()",
    "Timestamp": "store its isoformat()",
    "set": "store a sorted list",
    "str_": "store str(it)",
    "bytes_": "store bytes(it)",
    "void": "store its item(), a tuple",
}
"""What to do about types that data sets give, by their names."""
OTHERWISE = "turn it into arrays, numbers, texts or bytes, or give the gate a codec of your own"


Read = Callable[[memoryview], Any]
Build = Callable[[Sequence[memoryview]], Any]
Readers = Mapping[str, Callable[..., Read]]


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

    A sample is None, a bool, an int, a float, a text, bytes, a NumPy array or number, a tensor of
    torch, an array of JAX, an image of Pillow, or a tuple, a list or a dictionary (with texts as
    keys) of these. Tensors come back on the CPU and without their gradients, images without their
    metadata.

    Args:
        images: stores images of Pillow as ``"png"``, which come back as images, or as their
            ``"array"``, which is larger and read faster. With ``"bytes"`` they come back as the
            bytes of a PNG file.

    >>> codec = ArrayCodec()
    >>> codec.decode(codec.encode((np.arange(3), 7, "label")))
    (array([0, 1, 2]), 7, 'label')
    """

    def __init__(self, images: Literal["png", "array", "bytes"] = "png") -> None:
        self._images = images

    def encode(self, sample: Any) -> bytes:
        """Return the sample as bytes; refuse what would not come back as it is."""
        parts: list[bytes] = []
        head = json.dumps(self._shape(sample, parts, "the sample")).encode()
        return b"".join(len(part).to_bytes(8, "big") + part for part in [head, *parts])

    def decode(self, data: bytes) -> Any:
        """Return the sample that the bytes hold; refuse anything else."""
        with reading("a stored sample", "delete the buffer; the client then begins again"):
            content, parts, place = memoryview(data), list[memoryview](), 0
            while place < len(data):
                size = int.from_bytes(content[place : place + 8], "big")
                place += 8 + size
                if place > len(data):
                    raise ValueError("it is cut short")
                parts.append(content[place - size : place])
            if not parts:
                raise ValueError("it is empty")
            head = bytes(parts[0])
            build = _builder if len(head) <= MOST_REMEMBERED else _builder.__wrapped__
            return build(head, self._images == "bytes")(parts[1:])

    def _shape(self, value: Any, parts: list[bytes], place: str) -> Any:
        """Return the structure of a value, and append its arrays to the parts."""
        kind = type(value)
        if value is None or kind in (bool, int, float, str):
            return {"plain": value}
        if kind in (tuple, list):
            items = [self._shape(item, parts, f"{place}[{n}]") for n, item in enumerate(value)]
            return {kind.__name__: items}
        if kind is dict:
            if not all(type(name) is str for name in value):
                raise TypeError(
                    f"cannot store {place}: the keys of a dictionary must be texts, got "
                    f"{list(value)[:10]}"
                )
            return {
                "dict": {
                    name: self._shape(item, parts, f"{place}[{name!r}]")
                    for name, item in value.items()
                }
            }
        name, content = self._packed(value, place)
        parts.append(content)
        return {name[0]: [len(parts) - 1, *name[1:]]}

    def _packed(self, value: Any, place: str) -> tuple[tuple[Any, ...], bytes]:
        """Return what a value is, with what is needed to rebuild it, and its bytes."""
        kind = type(value)
        if kind is bytes:
            return ("bytes",), value
        if isinstance(value, np.number | np.bool_ | np.datetime64 | np.timedelta64):
            if _is_named_by_text(value.dtype):
                return ("number", value.dtype.str), value.tobytes()
        elif kind in (np.ndarray, np.memmap) and _is_plain(value):
            return _packed_array(value)
        torch, jax, images = map(sys.modules.get, ("torch", "jax", "PIL.Image"))
        if torch is not None and kind is torch.Tensor and value.layout is torch.strided:
            dtype = str(value.dtype).removeprefix("torch.")
            if dtype in TENSORS:
                flat = value.detach().cpu().contiguous().reshape(-1).view(torch.uint8)
                return ("tensor", dtype, tuple(value.shape)), flat.numpy().tobytes()
        if jax is not None and isinstance(value, jax.Array) and _is_plain(value):
            return ("jax", value.dtype.str, value.shape), np.asarray(value).tobytes()
        if images is not None and isinstance(value, images.Image):
            return self._packed_image(value, place)
        if isinstance(value, tuple):
            remedy = "store tuple(it), or its _asdict() to keep its names"
        else:
            remedy = REMEDIES.get(kind.__name__, OTHERWISE)
        name = f"{kind.__module__}.{kind.__qualname__}".removeprefix("builtins.")
        raise TypeError(f"cannot store {place}: a {name} would not come back as it is; {remedy}")

    def _packed_image(self, image: Any, place: str) -> tuple[tuple[Any, ...], bytes]:
        if image.mode not in MODES or (image.mode == "P" and self._images == "array"):
            raise TypeError(
                f"cannot store {place}: an image of mode {image.mode!r} would lose its colours; "
                "use image.convert('RGB')"
            )
        if self._images == "array":
            return _packed_array(np.array(image))
        file = io.BytesIO()
        image.save(file, format="PNG", compress_level=1)
        return ("png",), file.getvalue()


def _is_named_by_text(dtype: Any) -> bool:
    """Return whether the text that stands for a type is enough; others know more types."""
    return bool(np.dtype(dtype.str) == dtype)


def _is_plain(array: Any) -> bool:
    """Return whether NumPy's own format keeps an array as it is, without pickles."""
    kind = array.dtype
    return not kind.hasobject and (kind.names is not None or _is_named_by_text(kind))


def _packed_array(array: Any) -> tuple[tuple[Any, ...], bytes]:
    if array.nbytes and array.dtype.names is None:
        return ("raw", array.dtype.str, array.shape), array.tobytes()
    file = io.BytesIO()  # nothing, or records of fields, whose type one text cannot name
    np.save(file, array, allow_pickle=False)
    return ("array",), file.getvalue()


@functools.lru_cache(maxsize=1024)
def _builder(head: bytes, images_as_bytes: bool) -> Build:
    """Return what builds samples of one structure from their parts."""
    readers = {**READERS, "png": READERS["bytes"]} if images_as_bytes else READERS
    return _structure(json.loads(head), set(), readers)


def _structure(shape: Any, used: set[int], readers: Readers) -> Build:
    """Return what builds a structure; each part is used once, so samples cannot blow up."""
    ((kind, content),) = shape.items()
    if kind == "plain" and (content is None or type(content) in (bool, int, float, str)):
        return lambda _: content
    if kind == "tuple":
        items = [_structure(item, used, readers) for item in content]
        return lambda parts: tuple([build(parts) for build in items])
    if kind == "list":
        items = [_structure(item, used, readers) for item in content]
        return lambda parts: [build(parts) for build in items]
    if kind == "dict":
        named = {name: _structure(item, used, readers) for name, item in content.items()}
        return lambda parts: {name: build(parts) for name, build in named.items()}
    if kind in readers:
        place, *about = content
        if type(place) is not int or place < 0 or place in used:
            raise KeyError(place)
        used.add(place)
        read = readers[kind](*about)
        return lambda parts: read(parts[place])
    raise ValueError(f"it holds an unknown part {kind[:50]!r}")


def _kind_of(dtype: str) -> Any:
    if not KIND.fullmatch(dtype):
        raise ValueError(f"it holds an array of an unknown kind {dtype[:50]!r}")
    return np.dtype(dtype)


def _array(dtype: str, sizes: list[int]) -> Read:
    kind = _kind_of(dtype)
    # Bytes cannot be written to, a sample can.
    return lambda part: np.frombuffer(part, kind).reshape(sizes).copy()


def _number(dtype: str) -> Read:
    kind = _kind_of(dtype)
    return lambda part: np.frombuffer(part, kind).reshape(())[()]


def _tensor(dtype: str, sizes: list[int]) -> Read:
    if dtype not in TENSORS:
        raise ValueError(f"it holds a tensor of an unknown kind {dtype[:50]!r}")

    def read(part: memoryview) -> Any:
        torch = importlib.import_module("torch")
        kind = getattr(torch, dtype)
        if not part:
            return torch.empty(sizes, dtype=kind)
        return torch.frombuffer(bytearray(part), dtype=kind).reshape(sizes)

    return read


def _of_jax(dtype: str, sizes: list[int]) -> Read:
    read = _array(dtype, sizes)
    return lambda part: importlib.import_module("jax.numpy").asarray(read(part))


def _image(part: memoryview) -> Any:
    return importlib.import_module("PIL.Image").open(io.BytesIO(part), formats=["PNG"]).copy()


READERS: Readers = {
    "bytes": lambda: bytes,
    "number": _number,
    "raw": _array,
    "array": lambda: lambda part: array_from(bytes(part)),
    "tensor": _tensor,
    "jax": _of_jax,
    "png": lambda: _image,
}
"""By the name of a part, what returns its reader, given what the head says of it."""
