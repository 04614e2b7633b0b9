"""Save a state made of frozen dataclasses, numbers, arrays and tuples of these two; no pickles.

The file is a NumPy archive: one JSON text that keeps the shape of the state, and its arrays. It
replaces an older one in a single step, so a crash leaves the old state or the new, never half.
"""

import dataclasses
import functools
import io
import json
import math
import os
import reprlib
import struct
import tokenize
import tomllib
import typing
import zipfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType
from typing import IO, Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from tidegate.errors import ConfigurationError, DamagedFileError, RunDiffersError

FORMAT_VERSION = 1
FIXED: Mapping[str, bool] = MappingProxyType({"fixed": True})
"""Metadata of a field that belongs to the policy: a saved state must have the same value."""

UNREADABLE = (
    *(ArithmeticError, AttributeError, EOFError, LookupError, NotImplementedError),
    *(RecursionError, SyntaxError, TypeError, UnicodeError, Warning),
    *(json.JSONDecodeError, struct.error, tokenize.TokenError, zipfile.BadZipFile),
)
"""What malformed content makes parsers raise, besides a ``ValueError``."""

Saved = TypeVar("Saved")


@contextmanager
def reading(source: object, remedy: str) -> Iterator[None]:
    """Name the unreadable file and the remedy, whatever exception its content caused.

    Only parsers may run within it: a mistake in a user's code is not damage.
    """
    try:
        yield
    except (DamagedFileError, RunDiffersError):
        raise
    except (ValueError, *UNREADABLE) as wrong:
        reason = f"{type(wrong).__name__}: {str(wrong)[:500]}"
        raise DamagedFileError(source, f"is damaged ({reason})", remedy) from wrong


def save(state: object, path: Path) -> None:
    """Write a state; ``restore`` returns one that continues exactly as this one would."""
    replace_file(path, lambda file: write(state, file))


def replace_file(path: Path, write_content: Callable[[IO[bytes]], None]) -> None:
    """Write a file that is the old or the new one, and on disk, whatever happens."""
    unfinished = path.with_name(path.name + ".part")
    try:
        with unfinished.open("wb") as file:
            write_content(file)
            file.flush()
            os.fsync(file.fileno())
        unfinished.replace(path)
    finally:
        unfinished.unlink(missing_ok=True)
    sync_folder(path.parent)  # the new name, too, survives a loss of power


def sync_folder(folder: Path) -> None:
    """Have the names in a folder on disk."""
    opened = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)


def restore(template: Saved, path: Path) -> Saved:
    """Read a state back into the shape of ``template``, a state of the same policy and problem."""
    with path.open("rb") as file:
        return read(template, file, path)


def write(state: object, file: IO[bytes]) -> None:
    """Write a state to an open file."""
    arrays: list[NDArray[Any]] = []
    content = {"version": FORMAT_VERSION, "state": _to_tree(state, arrays)}
    text = np.frombuffer(json.dumps(content).encode(), dtype=np.uint8)
    named = {f"array_{number}": array for number, array in enumerate(arrays)}
    np.savez(file, tree=text, **named)  # type: ignore[arg-type]


def read(template: Saved, file: IO[bytes], what: object = "a saved state") -> Saved:
    """Read a state from an open file; ``what`` names it where it cannot be read."""
    with reading(what, "use an older copy, or start again"), Archive(file) as archive:
        content = archive.json("tree")
        version = content["version"]
        if type(version) is not int or version != FORMAT_VERSION:
            raise RunDiffersError(
                f"{what} has format {reprlib.repr(version)}, but this program reads "
                f"{FORMAT_VERSION}: another version of Tidegate wrote it; continue with that "
                "version, or start again",
                name="format",
                saved=version,
                given=FORMAT_VERSION,
            )
        restored: Saved = _from_tree(template, content["state"], archive)
    return restored


class Archive:
    """The parts of a file that ``np.savez`` wrote, without pickles and compression.

    Each part can be read once, and all together are no larger than the file, so that a small file
    cannot claim much memory.
    """

    def __init__(self, file: IO[bytes]) -> None:
        self._zip = zipfile.ZipFile(file)
        self._left = file.seek(0, os.SEEK_END)
        self._names = set(self._zip.namelist())

    def __enter__(self) -> "Archive":
        return self

    def __exit__(self, *_: object) -> None:
        self._zip.close()

    def __contains__(self, name: str) -> bool:
        return f"{name}.npy" in self._names

    def array(self, name: str) -> NDArray[Any]:
        """Return a part that was not read before."""
        if name not in self:
            raise ValueError(f"the file has no unread part {reprlib.repr(name)}")
        self._names.remove(f"{name}.npy")
        about = self._zip.getinfo(f"{name}.npy")
        self._left -= about.file_size
        if about.compress_type != zipfile.ZIP_STORED or about.flag_bits & 1 or self._left < 0:
            raise ValueError(
                f"part {name} of the file is compressed, encrypted or larger than the file: it was "
                "not written by this program"
            )
        return array_from(self._zip.read(about))

    def json(self, name: str) -> Any:
        """What the JSON text of a part holds."""
        return json.loads(self.array(name).tobytes())


def array_from(content: bytes) -> NDArray[Any]:
    """Return the array that ``np.save`` wrote; refuse a pickle, or more bytes than there are."""
    file = io.BytesIO(content)
    # The third version differs from the second in how it spells the names of fields.
    old = np.lib.format.read_magic(file) == (1, 0)
    head = np.lib.format.read_array_header_1_0 if old else np.lib.format.read_array_header_2_0
    try:
        shape, _, dtype = head(file)
    except MemoryError:  # of Python's parser, whose stack a long expression fills
        raise ValueError("the header of an array is too complex") from None
    announced, there = math.prod(shape) * dtype.itemsize, len(content) - file.tell()
    if not dtype.hasobject and announced != there:
        raise ValueError(f"an array announces {announced} bytes, but has {there}")
    file.seek(0)
    array: NDArray[Any] = np.lib.format.read_array(file, allow_pickle=False)
    return array


def read_toml(file: Path) -> dict[str, Any]:
    """Read a TOML file, or raise a ``ValueError`` that names it."""
    try:
        return tomllib.loads(file.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as wrong:
        raise ConfigurationError(f"{file} is not TOML: {wrong}") from None


def plain(kind: type[Saved], values: Mapping[str, Any]) -> Saved:
    """Build a dataclass from JSON; refuse a plain field of another type."""
    hints = _hints(kind)  # type: ignore[arg-type]
    for name, value in values.items():
        if name not in hints:
            raise ValueError(f"{kind.__name__} has no {reprlib.repr(name)}")
        if not _is_of(value, hints[name]):
            wanted = getattr(hints[name], "__name__", hints[name])
            raise ValueError(
                f"{name} must be {wanted} in {kind.__name__}, got {reprlib.repr(value)}"
            )
    return kind(**values)


@functools.cache
def _hints(kind: type) -> dict[str, Any]:
    """What kind each field is of; finding it out takes longer than anything else in a store."""
    return typing.get_type_hints(kind)


def _is_of(value: object, hint: object) -> bool:
    """Whether a value is of a plain kind; a whole number will do for a float, and not for truth."""
    if hint is float:
        return type(value) in (int, float) and math.isfinite(value)  # type: ignore[arg-type]
    if hint in (int, str, bool):
        return type(value) is hint
    if hint is type(None):
        return value is None
    options = typing.get_args(hint)
    if type(None) in options:
        return any(_is_of(value, option) for option in options)
    return True


def _to_tree(value: object, arrays: list[NDArray[Any]]) -> object:
    if isinstance(value, np.ndarray) and not value.dtype.hasobject:
        arrays.append(value)
        return {"array": len(arrays) - 1}
    if dataclasses.is_dataclass(value):
        fields = dataclasses.fields(value)
        return {
            "fields": {field.name: _to_tree(getattr(value, field.name), arrays) for field in fields}
        }
    if isinstance(value, tuple):
        return [_to_tree(item, arrays) for item in value]
    if isinstance(value, int | float):
        return value
    raise TypeError(f"cannot save a {type(value).__name__}: {value!r}")


def _from_tree(template: Any, tree: Any, archive: Archive) -> Any:
    if isinstance(tree, list):
        _need_kind(template, tuple, tree)
        return tuple(_from_tree(None, item, archive) for item in tree)
    if not isinstance(tree, dict):
        if type(tree) not in (int, float, bool):
            raise ValueError(f"the file holds {reprlib.repr(tree)} where a number should be")
        _need_kind(template, int | float, tree)
        return tree
    if "array" in tree:
        _need_kind(template, np.ndarray, tree)
        array = archive.array(f"array_{tree['array']}")
        kind = array.shape, array.dtype
        if template is not None and kind != (template.shape, template.dtype):
            raise ValueError(
                f"the file holds an array of {array.shape} {array.dtype}, "
                f"not of {template.shape} {template.dtype}"
            )
        return array
    saved, fields = tree["fields"].keys(), dataclasses.fields(template)
    if {field.name for field in fields} != set(saved):
        raise RunDiffersError(
            f"the file holds {reprlib.repr(sorted(tree['fields']))}, which is not a "
            f"{type(template).__name__}: it was saved by another policy or version",
            name=type(template).__name__,
            saved=sorted(saved),
            given=sorted(field.name for field in fields),
        )
    parts = {}
    for field in fields:
        mine = getattr(template, field.name)
        parts[field.name] = _from_tree(mine, tree["fields"][field.name], archive)
        if field.metadata.get("fixed") and not np.array_equal(parts[field.name], mine):
            raise RunDiffersError(
                f"the file was saved with {field.name} = {parts[field.name]}, but this policy has "
                f"{mine}",
                name=field.name,
                saved=parts[field.name],
                given=mine,
            )
    return dataclasses.replace(template, **parts)


def _need_kind(template: object, kind: Any, tree: object) -> None:
    """Refuse what has not the shape of the template; within a tuple there is none."""
    if template is not None and not isinstance(template, kind):
        raise ValueError(
            f"the file holds {reprlib.repr(tree)} where a {type(template).__name__} should be"
        )
