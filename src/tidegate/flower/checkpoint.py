"""Policy state, ledger and model of a run on disk, always of the same round.

A folder holds ``control.npz``, the model that it names, and ``rounds.jsonl`` with one row a round.
``control.npz`` is replaced in one step, after everything that it speaks of is on disk: once when a
round is decided, so that a server which dies afterwards sends the same orders again, and once when
it is settled.
"""

import dataclasses
import json
import os
import re
import reprlib
import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path
from typing import IO, Any

import numpy as np
from flwr.app import Array, ArrayRecord
from flwr.serverapp.strategy import Strategy

from tidegate._internal.saving import Archive, array_from, reading, replace_file
from tidegate.flower.updates import NUMPY
from tidegate.flower.wrapped import give_back, kept_by
from tidegate.runs.folder import CONTROL, FORMAT_VERSION, METRICS, REMEDY, ROUNDS
from tidegate.runs.reader import control_of, settled_rounds
from tidegate.server.controller import Controller
from tidegate.server.fleet import Terms
from tidegate.server.fleet_round import FleetRound

MODEL_NAME = re.compile(r"model-\d{6,20}\.npz", re.ASCII)


@dataclasses.dataclass(frozen=True)
class Resumed:
    """What a checkpoint gave back."""

    controller: Controller
    arrays: ArrayRecord
    rounds: list[FleetRound]


class Checkpoint:
    """The folder of one run."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._model = ""

    @contextmanager
    def held(self) -> Iterator[None]:
        """Keep other servers out of the folder; the lock goes with the process that holds it."""
        self._folder.mkdir(parents=True, exist_ok=True)
        lock = sqlite3.connect(self._folder / "lock", timeout=0, isolation_level=None)
        with closing(lock):
            try:
                lock.execute("BEGIN EXCLUSIVE")
            except sqlite3.OperationalError:
                raise ValueError(
                    f"another run is using {self._folder}; wait for it, or take another folder"
                ) from None
            yield

    @property
    def buffers(self) -> Path:
        """Where clients in this process keep their samples."""
        return self._folder / "buffers"

    def load(self, terms: Terms, strategy: Strategy) -> Resumed | None:
        """The run that the folder holds, if any; the strategy gets its own state back."""
        path = self._folder / CONTROL
        if not path.exists():
            rounds_file = self._folder / ROUNDS
            if rounds_file.exists() and rounds_file.stat().st_size:
                raise ValueError(f"{path} is missing, and {rounds_file} tells of a run; {REMEDY}")
            return None
        with reading(path, REMEDY):
            with path.open("rb") as file, Archive(file) as archive:
                content = control_of(archive, path)
                state = archive.array("state").tobytes() if "state" in archive else None
            controller = Controller.from_record(terms, {**content["controller"], "state": state})
            name = content["model"]
            if not MODEL_NAME.fullmatch(name):
                raise ValueError(f"{path} names a model {reprlib.repr(name)}; {REMEDY}")
        if not (self._folder / name).exists():
            raise ValueError(f"{self._folder / name} is missing; {REMEDY}")
        arrays, kept = _read_model(self._folder / name)
        rounds = self._rounds_before(controller.round_number)
        give_back(strategy, kept)
        self._model = name
        for model in self._folder.glob("model-*.npz"):
            if model.name != self._model:
                model.unlink()  # left over by a server that died while it saved
        return Resumed(controller, arrays, rounds)

    def begin(self, controller: Controller, arrays: ArrayRecord, strategy: Strategy) -> None:
        """A new run, before its first round."""
        (self._folder / ROUNDS).write_bytes(b"")
        (self._folder / METRICS).unlink(missing_ok=True)
        self._save_model(0, arrays, strategy)
        self.save_control(controller)

    def save_control(self, controller: Controller) -> None:
        """What was decided, before it is sent."""
        record = controller.to_record()
        state = record.pop("state")
        content = {"version": FORMAT_VERSION, "model": self._model, "controller": record}
        parts = {"control": np.frombuffer(json.dumps(content).encode(), dtype=np.uint8)}
        if state is not None:
            parts["state"] = np.frombuffer(state, dtype=np.uint8)

        def write(file: IO[bytes]) -> None:
            np.savez(file, **parts)  # type: ignore[arg-type]

        replace_file(self._folder / CONTROL, write)

    def save_round(
        self, controller: Controller, arrays: ArrayRecord, strategy: Strategy, row: FleetRound
    ) -> None:
        """A round that is settled, with the model that it led to."""
        older = self._folder / self._model
        self._save_model(row.round_number, arrays, strategy)
        with (self._folder / ROUNDS).open("a") as file:
            file.write(_row(row))
            file.flush()
            os.fsync(file.fileno())
        self.save_control(controller)
        older.unlink(missing_ok=True)

    def _save_model(self, round_number: int, arrays: ArrayRecord, strategy: Strategy) -> None:
        self._model = f"model-{round_number:06}.npz"
        kept = kept_by(strategy)

        def write(file: IO[bytes]) -> None:
            _write_model(file, arrays, kept)

        replace_file(self._folder / self._model, write)

    def _rounds_before(self, round_number: int) -> list[FleetRound]:
        """The rows of settled rounds; one of a round that was not is dropped from the file."""
        path = self._folder / ROUNDS
        if not path.exists():
            raise ValueError(f"{path} is missing; {REMEDY}")
        rounds = settled_rounds(path, round_number - 1)
        text = "".join(map(_row, rounds))

        def write(file: IO[bytes]) -> None:
            file.write(text.encode())

        replace_file(path, write)
        return rounds


def _row(row: FleetRound) -> str:
    """One line of ``rounds.jsonl``."""
    return json.dumps(dataclasses.asdict(row)) + "\n"


def _write_model(file: IO[bytes], arrays: ArrayRecord, kept: Mapping[str, Any]) -> None:
    """Model and strategy state as one archive; Flower's arrays are bytes already."""
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
        elif isinstance(value, list):
            state[name] = {"listed": [place(part) for part in value]}
        else:
            state[name] = {"number": float(value)}
    text = json.dumps({"version": FORMAT_VERSION, "model": model, "strategy": state})
    named = {f"part_{number}": part for number, part in enumerate(parts)}
    np.savez(file, index=np.frombuffer(text.encode(), dtype=np.uint8), **named)


def _read_model(path: Path) -> tuple[ArrayRecord, dict[str, Any]]:
    with reading(path, REMEDY), path.open("rb") as file, Archive(file) as archive:
        index = archive.json("index")
        arrays = ArrayRecord({one["name"]: _array(one, archive) for one in index["model"]})
        kept: dict[str, Any] = {}
        for name, value in index["strategy"].items():
            if "named" in value:
                named = value["named"].items()
                kept[name] = {key: archive.array(f"part_{part}") for key, part in named}
            elif "listed" in value:
                kept[name] = [archive.array(f"part_{part}") for part in value["listed"]]
            else:
                kept[name] = float(value["number"])
    return arrays, kept


def _array(about: Mapping[str, Any], archive: Archive) -> Array:
    """One of a model's arrays; where Flower keeps it as NumPy's, it is what it is said to be."""
    data = archive.array(f"part_{about['part']}").tobytes()
    shape, dtype, stype = tuple(about["shape"]), about["dtype"], about["stype"]
    if stype == NUMPY:
        content = array_from(data)
        if (content.shape, str(content.dtype)) != (shape, dtype):
            raise ValueError(
                f"the model's array {reprlib.repr(about['name'])} is {content.shape} "
                f"{content.dtype}, and should be {reprlib.repr(shape)} {reprlib.repr(dtype)}"
            )
    return Array(dtype=dtype, shape=shape, stype=stype, data=data)
