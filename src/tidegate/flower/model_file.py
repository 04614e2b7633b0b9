"""A model and the strategy's own state in one NumPy archive, without pickles."""

import json
import reprlib
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any

import numpy as np
from flwr.app import Array, ArrayRecord

from tidegate._internal.saving import Archive, array_from, reading
from tidegate.errors import RunDiffersError
from tidegate.flower.own_state import OwnState, from_tree, to_tree
from tidegate.flower.reading import NUMPY
from tidegate.runs.folder import FORMAT_VERSION, REMEDY


def write_model(file: IO[bytes], arrays: ArrayRecord, kept: Mapping[str, Any]) -> None:
    """Write model and strategy state as one archive; Flower's arrays are bytes already."""
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
    state: dict[str, Any] = {}
    for name, value in kept.items():
        if isinstance(value, dict):
            state[name] = {"named": {key: place(part) for key, part in value.items()}}
        elif isinstance(value, OwnState):
            state[name] = {"own": to_tree(value.values, place)}
        elif isinstance(value, list):
            state[name] = {"listed": [place(part) for part in value]}
        else:
            state[name] = {"number": float(value)}
    text = json.dumps({"version": FORMAT_VERSION, "model": model, "strategy": state})
    named = {f"part_{number}": part for number, part in enumerate(parts)}
    np.savez(file, index=np.frombuffer(text.encode(), dtype=np.uint8), **named)


def read_model(path: Path) -> tuple[ArrayRecord, dict[str, Any]]:
    """Read the model and the strategy's state from a file."""
    with reading(path, REMEDY), path.open("rb") as file, Archive(file) as archive:
        index = archive.json("index")
        _check_format(index["version"], path)
        arrays = ArrayRecord({one["name"]: _array(one, archive) for one in index["model"]})
        kept: dict[str, Any] = {}
        for name, value in index["strategy"].items():
            if "named" in value:
                named = value["named"].items()
                kept[name] = {key: archive.array(f"part_{part}") for key, part in named}
            elif "own" in value:
                kept[name] = OwnState(from_tree(value["own"], lambda n: archive.array(f"part_{n}")))
            elif "listed" in value:
                kept[name] = [archive.array(f"part_{part}") for part in value["listed"]]
            else:
                kept[name] = float(value["number"])
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
