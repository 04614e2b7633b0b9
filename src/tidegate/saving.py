"""Save a state made of frozen dataclasses, numbers, arrays and tuples of these two; no pickles.

The file is a NumPy archive: one JSON text that keeps the shape of the state, and its arrays. It
replaces an older one in a single step, so a crash leaves the old state or the new, never half.
"""

import dataclasses
import json
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import IO, Any, TypeVar

import numpy as np
from numpy.typing import NDArray

FORMAT_VERSION = 1
FIXED: Mapping[str, bool] = MappingProxyType({"fixed": True})
"""Metadata of a field that belongs to the policy: a saved state must have the same value."""

Saved = TypeVar("Saved")


def save(state: object, path: Path) -> None:
    """Write a state; ``restore`` gives back one that goes on exactly as this one would."""
    replace_file(path, lambda file: write(state, file))


def replace_file(path: Path, write_content: Callable[[IO[bytes]], None]) -> None:
    """Write a file that is the old one or the new one, and on disk, whatever happens."""
    unfinished = path.with_name(path.name + ".part")
    try:
        with unfinished.open("wb") as file:
            write_content(file)
            file.flush()
            os.fsync(file.fileno())
        unfinished.replace(path)
    finally:
        unfinished.unlink(missing_ok=True)
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)  # the new name, too, survives a loss of power
    finally:
        os.close(folder)


def restore(template: Saved, path: Path) -> Saved:
    """Read a state back into the shape of ``template``, a state of the same policy and problem."""
    with path.open("rb") as file:
        return read(template, file)


def write(state: object, file: IO[bytes]) -> None:
    """Write a state to an open file."""
    arrays: list[NDArray[Any]] = []
    content = {"version": FORMAT_VERSION, "state": _to_tree(state, arrays)}
    text = np.frombuffer(json.dumps(content).encode(), dtype=np.uint8)
    named = {f"array_{number}": array for number, array in enumerate(arrays)}
    np.savez(file, tree=text, **named)  # type: ignore[arg-type]


def read(template: Saved, file: IO[bytes]) -> Saved:
    """Read a state from an open file."""
    with np.load(file, allow_pickle=False) as archive:
        content = json.loads(archive["tree"].tobytes())
        version = content["version"]
        if type(version) is not int or version != FORMAT_VERSION:
            raise ValueError(f"the file has format {version}, this program reads {FORMAT_VERSION}")
        restored: Saved = _from_tree(template, content["state"], archive)
    return restored


def _to_tree(value: object, arrays: list[NDArray[Any]]) -> object:
    if isinstance(value, np.ndarray) and not value.dtype.hasobject:
        arrays.append(value)
        return {"array": len(arrays) - 1}
    if dataclasses.is_dataclass(value):
        fields = dataclasses.fields(value)
        return {"fields": {one.name: _to_tree(getattr(value, one.name), arrays) for one in fields}}
    if isinstance(value, tuple):
        return [_to_tree(item, arrays) for item in value]
    if isinstance(value, int | float):
        return value
    raise TypeError(f"cannot save a {type(value).__name__}: {value!r}")


def _from_tree(template: Any, tree: Any, archive: Any) -> Any:
    if isinstance(tree, list):
        return tuple(_from_tree(None, item, archive) for item in tree)
    if not isinstance(tree, dict):
        if type(tree) not in (int, float, bool):
            raise ValueError(f"the file holds {tree!r} where a number should be")
        return tree
    if "array" in tree:
        array = archive[f"array_{tree['array']}"]
        kind = array.shape, array.dtype
        if template is not None and kind != (template.shape, template.dtype):
            raise ValueError(
                f"the file holds an array of {array.shape} {array.dtype}, "
                f"not of {template.shape} {template.dtype}"
            )
        array.setflags(write=False)
        return array
    fields = dataclasses.fields(template)
    if {one.name for one in fields} != set(tree["fields"]):
        raise ValueError(
            f"the file holds {sorted(tree['fields'])}, which is no {type(template).__name__}: "
            "it was saved by another policy or version"
        )
    parts = {}
    for one in fields:
        mine = getattr(template, one.name)
        parts[one.name] = _from_tree(mine, tree["fields"][one.name], archive)
        if one.metadata.get("fixed") and not np.array_equal(parts[one.name], mine):
            raise ValueError(
                f"the file was saved with {one.name} = {parts[one.name]}, this policy has {mine}"
            )
    return type(template)(**parts)
