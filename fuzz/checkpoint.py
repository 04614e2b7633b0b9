"""A server's checkpoint, one of its files damaged."""

import contextlib
import functools
import json
import sqlite3
from collections.abc import Mapping
from contextlib import closing
from dataclasses import asdict
from pathlib import Path

import numpy as np
from flwr.app import Array, ArrayRecord
from flwr.serverapp.strategy import FedAdam, Strategy

from fuzz.archives import packed, patched, unpacked
from fuzz.choices import Choices, text_of
from fuzz.limits import empty_folder, may_refuse
from tidegate.client.gate import Gate
from tidegate.client.store import Store
from tidegate.client.streams import IndexedStream
from tidegate.flower.checkpoint import Checkpoint
from tidegate.policies import DEFAULT_OPTIONS
from tidegate.policies.presets import find_policy
from tidegate.prices import PricePath, UniformPrice
from tidegate.runs.books_file import TABLES, checksum
from tidegate.runs.reader import read_run
from tidegate.server.controller import Controller
from tidegate.server.fleet import Terms
from tidegate.wire import Introduction

BOOKS, ROWS, MODEL = "books.sqlite", "rounds.jsonl", "model-000002.npz"
CELLS = (
    *(("run", "name"), ("run", "model"), ("run", "terms"), ("run", "state"), ("run", "rule_state")),
    *(("accounts", "number"), ("accounts", "client"), ("accounts", "buffer_capacity")),
    *(("accounts", "lost_read"), ("accounts", "round_number"), ("accounts", "spent")),
    *(("accounts", "holding"), ("accounts", "health"), ("accounts", "plan")),
    *(("accounts", "ordered"), ("accounts", "credits"), ("orders", "number"), ("orders", "rule")),
    *(("orders", "count"), ("orders", "price"), ("orders", "credits"), ("rules", "thresholds")),
    *(("away", "since"), ("plans", "plan"), ("plans", "members"), ("plans", "credits")),
)
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
        for client in ("a", "b", "c"):
            known = Introduction(run="r", client=client, buffer_capacity=9, buffer_id=client)
            controller.join(known)
        gate = Gate(Store(None, "r", "a", 9), IndexedStream(range(100)))
        saved.begin(controller, arrays, strategy)
        for now in range(1, ROUNDS + 2):
            there = ["a", "b", "c"] if now == 1 else ["a", "b"]
            orders = controller.decide(["a", "b"], there)
            saved.save_orders(controller, orders)
            if now > ROUNDS:
                break
            controller.book("a", gate.apply(orders["a"]))
            saved.save_round(controller, arrays, strategy, controller.close())
        saved.close()
        return {path.name: path.read_bytes() for path in folder.iterdir()}


def damaged(data: bytes) -> dict[str, bytes]:
    """The files of a run, with one of them replaced, patched or edited."""
    choices = Choices(data)
    how, files = choices.number(3), dict(real_files())
    name = choices.pick((BOOKS, MODEL, ROWS))
    if how == 0:
        files[name] = choices.rest()
    elif how == 1:
        files[name] = patched(files[name], choices)
    elif name == ROWS:
        rows = [choices.edited(json.loads(line)) for line in files[ROWS].splitlines()]
        files[ROWS] = "".join(text_of(row) + "\n" for row in rows).encode()
    elif name == BOOKS:
        files[BOOKS] = edited_books(files[BOOKS], choices)
    else:
        parts = unpacked(files[name])
        parts["index"] = text_of(choices.edited(json.loads(parts["index"].tobytes()), most=5))
        if choices.number(7) == 1:
            parts[choices.pick(list(parts))] = choices.rest()
        files[name] = packed(**parts)
    return files


def edited_books(content: bytes, choices: Choices) -> bytes:
    """Books with one cell changed; their checksums may be made to fit."""
    with empty_folder() as folder:
        path = folder / BOOKS
        path.write_bytes(content)
        with closing(sqlite3.connect(path, isolation_level=None)) as connection:
            table, column = choices.pick(CELLS)
            query = f"SELECT rowid, {column} FROM {table}"  # noqa: S608
            found = connection.execute(query).fetchall()
            if found:
                row, before = choices.pick(found)
                values = (_edited(before, choices), row)
                update = f"UPDATE {table} SET {column} = ? WHERE rowid = ?"  # noqa: S608
                with contextlib.suppress(sqlite3.IntegrityError, OverflowError):
                    connection.execute(update, values)
            if choices.number(1):
                make_checksums_fit(connection)
            connection.execute("PRAGMA journal_mode = DELETE")
        return path.read_bytes()


def _edited(before: object, choices: Choices) -> object:
    if isinstance(before, bytes):
        return patched(before, choices)
    if isinstance(before, str) and before[:1] == "{":
        return text_of(choices.edited(json.loads(before), most=5))
    return choices.pick((before, 0, 1, -1, 2**40, -(2**62), 0.5, 1e308, "text", b"bytes"))


def make_checksums_fit(connection: sqlite3.Connection) -> None:
    """As somebody would who knows how they are made."""
    for table in TABLES:
        for row, *values, _ in connection.execute(f"SELECT rowid, * FROM {table}").fetchall():  # noqa: S608
            update = f"UPDATE {table} SET checksum = ? WHERE rowid = ?"  # noqa: S608
            connection.execute(update, (checksum(values), row))


def load(folder: Path, files: Mapping[str, bytes]) -> None:
    """Resume from files, and use what they gave."""
    for name, content in files.items():
        (folder / name).write_bytes(content)
    with closing(Checkpoint(folder)) as saved:
        _use(saved)


def _use(saved: Checkpoint) -> None:
    resumed = saved.load(terms(), _strategy())
    if resumed is None:
        raise AssertionError("the checkpoint was overlooked")
    for array in resumed.arrays.values():
        if array.stype == "numpy.ndarray":
            array.numpy()
    ledger = resumed.controller.ledger
    json.dumps([ledger.run, ledger.closed_round, asdict(ledger.booked)])
    for client in ledger.clients:
        json.dumps(asdict(ledger.account(client)))


def target(data: bytes) -> None:
    """Resume from a checkpoint with one file damaged; the model stays where it is."""
    files = damaged(data)
    with empty_folder() as folder:
        with may_refuse(ValueError, OSError):
            load(folder, files)
        with may_refuse(ValueError, OSError):
            read_run(folder)
        if not (folder / MODEL).exists():
            raise AssertionError("the model was deleted")


def seeds() -> list[bytes]:
    """Every file as it is, and some edits."""
    files, kinds = real_files(), range(3)
    whole = [bytes([0, n]) + files[name] for n, name in enumerate((BOOKS, MODEL, ROWS))]
    patches = [bytes([1, n, 2, 200, 0, 7, 90, 1, 255]) for n in kinds]
    edits = [bytes([2, n, 1, 3, one, 3, two, 0, 3, 9]) for n in kinds for one, two in PLACES]
    cells = [bytes([2, 0, cell, 0, *range(cell, cell + 9)]) for cell in range(len(CELLS))]
    last = [bytes([3, n, 2, *range(3, 40)]) for n in kinds]
    return [*whole, *patches, *edits, *cells, *last]


PLACES = ((0, 0), (1, 0), (2, 0), (2, 1), (2, 2), (2, 3))
