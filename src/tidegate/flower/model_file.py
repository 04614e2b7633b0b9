"""A model and the strategy's own state in one NumPy archive, without pickles."""

import json
import reprlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import IO, Any

import numpy as np
from flwr.app import Array, ArrayRecord
from numpy.typing import NDArray

from tidegate._internal.saving import Archive, array_from, reading
from tidegate.errors import ConfigurationError, RunDiffersError
from tidegate.flower.flower_internals import NUMPY
from tidegate.runs.folder import FORMAT_VERSION, REMEDY

ALLOWED = (
    "NumPy arrays, numbers, text, None, and lists, tuples and dicts (with text as keys) of these"
)


def write_model(file: IO[bytes], arrays: ArrayRecord, kept: Mapping[str, Any]) -> None:
    """Write model and strategy state as one archive; Flower's arrays are bytes already.

    Args:
        file: the archive.
        arrays: the model.
        kept: the state by key; what is None is not written.
    """
    parts: list[Any] = []

    def place(value: Any) -> int:
        parts.append(value)
        return len(parts) - 1

    model = [
        {
            "name": name,
            "dtype": array.dtype,
            "shape": list(array.shape),
            "stype": array.stype,
            "part": place(np.frombuffer(array.data, dtype=np.uint8)),
        }
        for name, array in arrays.items()
    ]
    state = {
        key: _to_tree(value, place, key.partition(".")[2])
        for key, value in kept.items()
        if value is not None
    }
    text = json.dumps({"version": FORMAT_VERSION, "model": model, "strategy": state})
    named = {f"part_{number}": part for number, part in enumerate(parts)}
    np.savez(file, index=np.frombuffer(text.encode(), dtype=np.uint8), **named)


def read_model(path: Path) -> tuple[ArrayRecord, dict[str, Any]]:
    """Read the model and the strategy's state from a file."""
    with reading(path, REMEDY), path.open("rb") as file, Archive(file) as archive:
        index = archive.json("index")
        _check_format(index["version"], path)
        arrays = ArrayRecord({about["name"]: _array(about, archive) for about in index["model"]})
        kept = {
            key: _from_tree(tree, lambda number: archive.array(f"part_{number}"))
            for key, tree in index["strategy"].items()
        }
    return arrays, kept


def _check_format(version: object, path: Path) -> None:
    """Refuse a format that this program does not understand."""
    if type(version) is not int:
        raise ValueError(f"its format is {reprlib.repr(version)}")
    if version != FORMAT_VERSION:
        raise RunDiffersError(
            f"{path} has format {reprlib.repr(version)}, but this program reads {FORMAT_VERSION}: "
            "another version of Tidegate wrote it; continue with that version, or start a new run "
            "in another folder",
            name="format",
            saved=version,
            given=FORMAT_VERSION,
        )


def _array(about: Mapping[str, Any], archive: Archive) -> Array:
    """Read one array of a model; if Flower keeps it as NumPy's, check its shape and type."""
    data = archive.array(f"part_{about['part']}").tobytes()
    shape, dtype, stype = tuple(about["shape"]), about["dtype"], about["stype"]
    if stype == NUMPY:
        content = array_from(data)
        if (content.shape, str(content.dtype)) != (shape, dtype):
            raise ValueError(
                f"the model's array {reprlib.repr(about['name'])} is {content.shape} "
                f"{content.dtype}, but should be {reprlib.repr(shape)} {reprlib.repr(dtype)}"
            )
    return Array(dtype=dtype, shape=shape, stype=stype, data=data)


def _to_tree(value: Any, place: Callable[[NDArray[Any]], int], where: str) -> Any:
    """Convert a state to JSON; arrays go to a list of their own, and only their places stay."""
    if isinstance(value, np.ndarray | np.generic) and not value.dtype.hasobject:
        kind = "array" if isinstance(value, np.ndarray) else "scalar"
        return {kind: place(np.asarray(value))}
    if value is None or isinstance(value, str | bool | int | float):
        return value
    if isinstance(value, list | tuple):
        items = [_to_tree(item, place, f"{where}[{n}]") for n, item in enumerate(value)]
        return {"tuple": items} if isinstance(value, tuple) else items
    if isinstance(value, dict) and all(isinstance(key, str) for key in value):
        parts = {key: _to_tree(item, place, f"{where}[{key!r}]") for key, item in value.items()}
        return {"dict": parts}
    raise ConfigurationError(
        f"{where} of the strategy is a {type(value).__name__}, which cannot be saved; use {ALLOWED}"
    )


def _from_tree(tree: Any, array: Callable[[int], NDArray[Any]]) -> Any:
    """Return the state that ``_to_tree`` was given."""
    if isinstance(tree, list):
        return [_from_tree(item, array) for item in tree]
    if not isinstance(tree, dict):
        return tree
    if "array" in tree:
        return array(tree["array"])
    if "scalar" in tree:
        return array(tree["scalar"])[()]
    if "tuple" in tree:
        return tuple(_from_tree(item, array) for item in tree["tuple"])
    return {key: _from_tree(item, array) for key, item in tree["dict"].items()}
