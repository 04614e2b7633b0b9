"""A server's checkpoint, one of its files damaged."""

import functools
import json
from collections.abc import Mapping
from pathlib import Path

import numpy as np
from flwr.app import Array, ArrayRecord
from flwr.serverapp.strategy import FedAdam, Strategy

from fuzz.archives import packed, patched, unpacked
from fuzz.choices import Choices, text_of
from fuzz.limits import empty_folder, may_refuse
from tidegate.client.gate import Gate
from tidegate.client.memory_store import MemoryStore
from tidegate.client.streams import IndexedStream
from tidegate.flower.checkpoint import Checkpoint
from tidegate.policies import DEFAULT_OPTIONS
from tidegate.policies.presets import find_policy
from tidegate.prices import PricePath, UniformPrice
from tidegate.server.controller import Controller
from tidegate.server.fleet import Terms
from tidegate.wire import Introduction

CONTROL, ROWS = "control.npz", "rounds.jsonl"
MODEL = "model-000002.npz"
ROUNDS = 2


def terms() -> Terms:
    """What the saved run was given."""
    return Terms(
        policy=lambda problem: find_policy("acdpp")(problem, DEFAULT_OPTIONS),
        policy_name="fuzzed",
        budget=16.5,
        prices=PricePath(UniformPrice(1, 10), seed=1),
        num_rounds=10,
    )


def _strategy() -> Strategy:
    return FedAdam(fraction_evaluate=0.0)


@functools.cache
def real_files() -> Mapping[str, bytes]:
    """The files of a run that was killed in its third round."""
    with empty_folder() as folder:
        saved = Checkpoint(folder)
        controller, strategy = Controller(terms(), "r"), FedAdam(fraction_evaluate=0.0)
        arrays = ArrayRecord({"w": Array(np.arange(3.0)), "b": Array(np.zeros(1))})
        strategy.m_t = {"w": np.ones(3), "b": np.ones(1)}
        for client in ("a", "b"):
            known = Introduction(run="r", client=client, buffer_capacity=9, buffer_id=client)
            controller.join(known)
        gate = Gate(MemoryStore("r", "a", 9), IndexedStream(range(100)))
        saved.begin(controller, arrays, strategy)
        for now in range(1, ROUNDS + 2):
            orders = controller.decide(["a", "b"], ["a", "b"])
            saved.save_orders(controller, orders)
            if now > ROUNDS:
                break
            controller.book("a", gate.apply(orders["a"]))
            saved.save_round(controller, arrays, strategy, controller.close())
        return {path.name: path.read_bytes() for path in folder.iterdir()}


def damaged(data: bytes) -> dict[str, bytes]:
    """The files of the run, with one of them replaced, patched or edited."""
    choices, files = Choices(data), dict(real_files())
    how, name = choices.number(3), choices.pick((CONTROL, MODEL, ROWS))
    if how == 0:
        files[name] = choices.rest()
    elif how == 1:
        files[name] = patched(files[name], choices)
    elif name == ROWS:
        rows = [choices.edited(json.loads(line)) for line in files[ROWS].splitlines()]
        files[ROWS] = "".join(text_of(row) + "\n" for row in rows).encode()
    else:
        text = "control" if name == CONTROL else "index"
        parts = unpacked(files[name])
        parts[text] = text_of(choices.edited(json.loads(parts[text].tobytes()), most=5))
        if choices.number(7) == 1:
            parts[choices.pick(list(parts))] = choices.rest()
        files[name] = packed(**parts)
    return files


def load(folder: Path, files: Mapping[str, bytes]) -> None:
    """Resume from files, and use what they gave."""
    for name, content in files.items():
        (folder / name).write_bytes(content)
    resumed = Checkpoint(folder).load(terms(), _strategy())
    if resumed is None:
        raise AssertionError("the checkpoint was overlooked")
    for array in resumed.arrays.values():
        if array.stype == "numpy.ndarray":
            array.numpy()
    json.dumps(resumed.controller.to_record()["ledger"])


def target(data: bytes) -> None:
    """Resume from a checkpoint with one file damaged; the model stays where it is."""
    files = damaged(data)
    with empty_folder() as folder:
        with may_refuse(ValueError, OSError):
            load(folder, files)
        if not (folder / MODEL).exists():
            raise AssertionError("the model was deleted")


def seeds() -> list[bytes]:
    """Every file as it is, and some edits."""
    files = real_files()
    whole = [bytes([0, n]) + files[name] for n, name in enumerate((CONTROL, MODEL, ROWS))]
    patches = [bytes([1, n, 2, 200, 0, 7, 90, 1, 255]) for n in range(3)]
    edits = [bytes([2, n, 1, 3, one, 3, two, 0, 3, 9]) for n in range(3) for one, two in PLACES]
    return [*whole, *patches, *edits, *(bytes([3, n, 2, *range(3, 40)]) for n in range(3))]


PLACES = ((0, 0), (1, 0), (2, 0), (2, 1), (2, 2), (2, 3))
