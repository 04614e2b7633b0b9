"""Save any state made of frozen dataclasses, numbers, tuples and arrays; no pickles.

The file is a NumPy archive: one JSON text that keeps the shape of the state, and its arrays.
"""

import dataclasses
import json
from pathlib import Path
from typing import IO, Any, TypeVar

import numpy as np
from numpy.typing import NDArray

Saved = TypeVar("Saved")


def save(state: object, file: Path | IO[bytes]) -> None:
    """Write a state; ``restore`` gives back one that goes on exactly as this one would."""
    arrays: list[NDArray[Any]] = []
    tree = json.dumps(_to_tree(state, arrays)).encode()
    named = {f"array_{number}": array for number, array in enumerate(arrays)}
    np.savez(file, tree=np.frombuffer(tree, dtype=np.uint8), **named)  # type: ignore[arg-type]


def restore(template: Saved, file: Path | IO[bytes]) -> Saved:
    """Read a state back into the shape of ``template``, a state of the same kind."""
    with np.load(file, allow_pickle=False) as archive:
        tree = json.loads(archive["tree"].tobytes())
        restored: Saved = _from_tree(template, tree, archive)
    return restored


def _to_tree(value: object, arrays: list[NDArray[Any]]) -> object:
    if isinstance(value, np.ndarray):
        arrays.append(value)
        return {"array": len(arrays) - 1}
    if dataclasses.is_dataclass(value):
        return {
            entry.name: _to_tree(getattr(value, entry.name), arrays)
            for entry in dataclasses.fields(value)
        }
    if isinstance(value, tuple):
        return [_to_tree(item, arrays) for item in value]
    if isinstance(value, int | float):
        return value
    raise TypeError(f"cannot save a {type(value).__name__}: {value!r}")


def _from_tree(template: Any, tree: Any, archive: Any) -> Any:
    if isinstance(tree, list):
        return tuple(_from_tree(None, item, archive) for item in tree)
    if not isinstance(tree, dict):
        return tree
    if "array" in tree:
        array = archive[f"array_{tree['array']}"]
        array.setflags(write=False)
        return array
    names = {entry.name for entry in dataclasses.fields(template)}
    if names != set(tree):
        raise ValueError(
            f"the file holds {sorted(tree)}, a {type(template).__name__} needs {sorted(names)}; "
            "it was saved by another policy or version"
        )
    parts = {name: _from_tree(getattr(template, name), tree[name], archive) for name in names}
    return type(template)(**parts)
