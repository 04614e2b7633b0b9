"""Everything that reads bytes from outside, given bytes that nobody meant: a reason, no crash."""

import contextlib
import io
import itertools
import json
import pickle
import sqlite3
import zipfile
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from check_size import at_size
from flwr.app import ConfigRecord, RecordDict

import fuzz
from fuzz import buffer, checkpoint, run, state
from fuzz.archives import packed, unpacked
from fuzz.limits import empty_folder
from fuzz.mutations import inputs
from tidegate._internal import saving
from tidegate.client.codec import ArrayCodec
from tidegate.errors import WireError
from tidegate.flower.records import LONGEST_TEXT, TEXT, expect, key_of
from tidegate.theory.reuse import ReuseTally
from tidegate.wire import Order

MUTATIONS = at_size(50, 200)


@pytest.mark.parametrize("name", fuzz.NAMES)
def test_seeds_and_mutations_of_them_lead_to_nothing_else_than_refusals(name: str) -> None:
    target = fuzz.load(name)
    for data in inputs(target.seeds(), MUTATIONS, seed=7):
        target.run(data)


@pytest.mark.parametrize(
    ("name", "data"),
    [
        pytest.param("records", b"\0\1" + b"[" * 2000, id="nested deeper than a parser follows"),
        pytest.param(
            "fleet",
            b"\x04\x04\x01\x01\x03\x03\0\0\0\xe1\xf5\x05\0\0\0\0\0" + bytes(range(60)),
            id="a capacity that no plan can be made for",
        ),
        pytest.param("checkpoint", b"\0\0", id="an empty control file"),
        pytest.param("checkpoint", b"\0\1", id="an empty model"),
        pytest.param("checkpoint", b"\1\0\2\xc8\0\7Z\1\xff", id="a wrong byte, a wrong checksum"),
        pytest.param("checkpoint", b"\2\2\1\3\2\3\2\0\3\t", id="a row that is a number"),
        pytest.param("checkpoint", b"\2\0\1\3\1\3\0\0\3\t", id="a model named by a number"),
        pytest.param("checkpoint", b"\2\1\1\3\2", id="strategy state that is a number"),
        pytest.param("checkpoint", b"\2\0\1\3\2\3\3\0\3\1", id="clients that are no names"),
        pytest.param(
            "checkpoint",
            b"\2\2\0\0\1\1\2\1\0\2\xc81\0\7\1\2\xff\xff\xff\xff\x83\3\2\3\2\0\3\t",
            id="books without a controller",
        ),
        pytest.param(
            "checkpoint",
            b"\2\2\0\0\1\3\2\3\0\1\0\3\0\1\0\x15\3\2\1\3\x83\2\0\3\t",
            id="terms without a budget",
        ),
        pytest.param("state", b"\0\2\1\3\1\3\0\3\0\0\3\t", id="a state without fields"),
        pytest.param("state", b"\1\3\t\x7f\1\3\3\t", id="a number in place of a state"),
        pytest.param("buffer", b"\2~\25\0\xff\xfe\xfd\xff\xfc\xfey\r\xff\xff\r\25", id="a cursor"),
        pytest.param(
            "buffer",
            b"\2\x8b&\1A\2\1=\1\xfc\3\x18\10\7\1c\x9c\0\0XXXXXX\2\xfd/\1",
            id="a count that is too large for SQLite",
        ),
        pytest.param("buffer", b"\2\0\1\1\t\0", id="a purchase by an order that is to come"),
        pytest.param("prices", b'\1\0usd\n"' + b"1" * 140_000, id="a cell longer than csv reads"),
        pytest.param("experiment", b"\0a=" + b"[" * 3000, id="lists nested too deep in TOML"),
        pytest.param("setting", b"\4rounds=" + b"[" * 3000, id="the same in a file of settings"),
        pytest.param("setting", b"\0rounds=" + b"[" * 3000, id="the same in --set"),
        pytest.param("setting", b"\1rounds=" + b"[" * 3000, id="the same in an app's file"),
    ],
)
def test_what_once_crashed_is_refused(name: str, data: bytes) -> None:
    fuzz.load(name).run(data)


def content_of(text: str) -> RecordDict:
    return RecordDict({key_of(Order): ConfigRecord({TEXT: text})})


def test_a_text_of_megabytes_is_not_even_parsed() -> None:
    with pytest.raises(WireError, match="must be at most 100000 characters, got 100001"):
        expect(content_of(" " * (LONGEST_TEXT + 1)), Order)
    with pytest.raises(WireError, match="tidegate-order is not JSON"):
        expect(content_of("[" * LONGEST_TEXT), Order)


def npy(header: str, data: bytes = b"") -> bytes:
    """An array file with any header."""
    text = header.encode("latin1") + b"\n"
    return b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text + data


HUGE = npy("{'descr': '<f8', 'fortran_order': False, 'shape': (99999999999,)}", b"12345678")


def archive_of(compression: int = zipfile.ZIP_STORED, **parts: bytes) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", compression) as made:
        for name, part in parts.items():
            made.writestr(f"{name}.npy", part)
    return file.getvalue()


def npy_of(array: Any) -> bytes:
    file = io.BytesIO()
    np.save(file, array)
    return file.getvalue()


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (archive_of(tree=HUGE), "announces 799999999992 bytes, but has 8"),
        (
            archive_of(zipfile.ZIP_DEFLATED, tree=npy_of(np.zeros(10**7, np.uint8))),
            "part tree of the file is compressed, encrypted or larger than the file",
        ),
        (archive_of(other=b""), "no unread part 'tree'"),
        (archive_of(tree=b"nonsense"), "magic string"),
        (archive_of(tree=npy("{'descr': '<f8', 'shape': (1L,)}")), "is damaged|header"),
        (archive_of(tree=npy("-" * 9000 + "1")), "header of an array is too complex"),
        (packed(tree="[" * 100_000), "a state is damaged .RecursionError"),
        (packed(tree="{"), "a state is damaged .JSONDecodeError"),
        (packed(tree="\0"), "a state is damaged"),
        (b"", "a state is damaged .BadZipFile"),
    ],
)
def test_an_archive_is_checked_before_memory_is_set_aside(content: bytes, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        saving.read(ReuseTally(), io.BytesIO(content), "a state")


@pytest.mark.parametrize(
    ("parts", "reason"),
    [
        ([b'{"array": [0]}', HUGE], "announces"),
        ([b'{"list": [{"bytes": [0]}, {"bytes": [0]}]}', b"x"], "is damaged .KeyError"),
        ([b'{"bytes": [-1]}', b"x"], "is damaged .KeyError"),
        ([b'{"raw": [0, "i4,i4", [1]]}', b"12345678"], "unknown kind 'i4,i4'"),
        ([b'{"plain": {}}'], "unknown part 'plain'"),
        ([b"[" * 100_000], "is damaged .RecursionError"),
        ([b"7"], "is damaged .AttributeError"),
    ],
)
def test_a_stored_sample_is_checked_before_memory_is_set_aside(
    parts: list[bytes], reason: str
) -> None:
    data = b"".join(len(part).to_bytes(8, "big") + part for part in parts)
    with pytest.raises(ValueError, match=reason):
        ArrayCodec().decode(data)


@pytest.mark.parametrize("name", ["model-000009.npz", "../../etc/passwd", 7])
def test_a_checkpoint_that_cannot_be_read_deletes_no_model(tmp_path: Path, name: str | int) -> None:
    files = changed_books("run", "model", lambda _: name)
    with pytest.raises((ValueError, OSError), match=r"model|damaged"):
        checkpoint.load(tmp_path, files)
    assert (tmp_path / checkpoint.MODEL).exists()


def changed_books(
    table: str, column: str, change: Callable[[Any], Any], *, fits: bool = True
) -> dict[str, bytes]:
    """The files of a run; somebody changed a cell of each row of a table in its books."""
    files = dict(checkpoint.real_files())
    with empty_folder() as folder:
        path = folder / "books.sqlite"
        path.write_bytes(files["books.sqlite"])
        with closing(sqlite3.connect(path, isolation_level=None)) as books:
            query = f"SELECT rowid, {column} FROM {table}"  # noqa: S608
            rows = books.execute(query).fetchall()
            assert rows
            for row, before in rows:
                is_json = isinstance(before, str) and before.startswith("{")
                after = change(json.loads(before) if is_json else before)
                after = json.dumps(after) if isinstance(after, dict) else after
                update = f"UPDATE {table} SET {column} = ? WHERE rowid = ?"  # noqa: S608
                books.execute(update, (after, row))
            if fits:
                checkpoint.make_checksums_fit(books)
            books.execute("PRAGMA journal_mode = DELETE")
        files["books.sqlite"] = path.read_bytes()
    return files


def with_value(place: tuple[str, ...], value: object) -> Callable[[dict[str, Any]], Any]:
    def change(told: dict[str, Any]) -> dict[str, Any]:
        inner = told
        for name in place[:-1]:
            inner = inner[name]
        inner[place[-1]] = value
        return told

    return change


@pytest.mark.parametrize(
    ("cell", "value", "reason"),
    [
        ("accounts.buffer_capacity", 0, "the capacity of a is 0, which is not possible"),
        ("accounts.buffer_capacity", "nine", "the capacity of a is 'nine', which is not possible"),
        ("accounts.client", "a", "client a has two accounts"),
        ("plans.members", b"", "is damaged"),
        ("orders.ordered", 77, "the clients' orders do not add up to the total"),
        ("accounts.health", "{}x", "is damaged .JSONDecodeError"),
        ("accounts.holding", "7", "is damaged .TypeError"),
        ("accounts.admitted", 0.5, "in accounts has other kinds of values"),
        ("accounts.lost_read", "x", "in accounts has other kinds of values"),
        ("orders.rule", 9, "is damaged .KeyError"),
        ("accounts.bought", -1, "bought must be a whole number from 0"),
        ("orders.count", -1, "count must be a whole number from 0"),
        ("orders.credits", "much", "is damaged"),
        ("rules.retention", "never", "retention must be a known rule, got 'never'"),
        ("rules.thresholds", "[1,", "is damaged .JSONDecodeError"),
        ("plans.shares", b"12345678", "was saved with other shares"),
        ("plans.credits", b"1234567", "is damaged"),
        ("plans.plan", 9, "is damaged"),
        ("run.rule_state", b"no archive", "is damaged .BadZipFile"),
        ("run.terms", "7.5", "is damaged .TypeError"),
    ],
)
def test_books_whose_cells_cannot_be_are_refused(
    tmp_path: Path, cell: str, value: object, reason: str
) -> None:
    table, _, column = cell.partition(".")
    files = changed_books(table, column, lambda _: value)
    with pytest.raises(ValueError, match=reason):
        checkpoint.load(tmp_path, files)


@pytest.mark.parametrize(
    ("table", "column", "value"),
    [
        ("run", "state", with_value(("progress", "overspend"), 1.25)),
        ("accounts", "spent", lambda _: 1.0),
        ("orders", "price", lambda _: 1.0),
        ("rules", "round_number", lambda _: 7),
        ("away", "since", lambda told: told - 1),
        ("plans", "credits", lambda told: told[::-1]),
    ],
)
def test_books_that_changed_on_disk_are_noticed(
    tmp_path: Path, table: str, column: str, value: Callable[[Any], Any]
) -> None:
    """The values themselves could be; only the checksum tells."""
    files = changed_books(table, column, value, fits=False)
    with pytest.raises(ValueError, match=r"the checksum of .* is wrong"):
        checkpoint.load(tmp_path, files)


def changed_buffer(folder: Path, script: str) -> Path:
    path = folder / "buffer.sqlite"
    path.write_bytes(buffer.real_buffer())
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.executescript(script)
    return path


@pytest.mark.parametrize(
    ("script", "reason"),
    [
        *((scheme, "other tables than a buffer") for scheme in buffer.SCHEMES[-5:-1]),
        ("DROP TABLE answers", "other tables than a buffer"),
        (buffer.SCHEMES[-1], "it holds more than 6 samples"),
        ("UPDATE contents SET content = 'text'", "it holds .* in place of int, str, bytes"),
        ("UPDATE samples SET since = 'often'", "'often'.* in place of int, .*; copy it"),
        ("DELETE FROM clients", "it holds samples of no client"),
        ("UPDATE clients SET sums = '[]'", "is damaged .AttributeError"),
        ("UPDATE clients SET cursor = x'07'", "cursor must be str . None"),
        ("UPDATE clients SET last_round = 9.5", "last_round must be"),
        ("UPDATE answers SET receipt = 'x'", "is damaged .JSONDecodeError"),
        ("UPDATE answers SET receipt = x'ff'", "is damaged"),
    ],
)
def test_a_buffer_that_somebody_changed_is_refused_by_name(
    tmp_path: Path, script: str, reason: str
) -> None:
    path = changed_buffer(tmp_path, script)
    with pytest.raises(ValueError, match=reason) as refused:
        buffer.use(path)
    assert str(path) in str(refused.value)


def test_a_closed_buffer_is_not_called_damaged(tmp_path: Path) -> None:
    store = buffer.open_store(tmp_path / "buffer.sqlite")
    store.close()
    with pytest.raises(sqlite3.ProgrammingError, match="closed"):
        store.books()


class Payload:
    """A pickle that leaves a trace if anybody reads it."""

    def __init__(self, trace: Path) -> None:
        self._trace = trace

    def __reduce__(self) -> tuple[Callable[..., object], tuple[object, ...]]:
        return Path.touch, (self._trace,)


def test_no_pickle_is_ever_run(tmp_path: Path) -> None:
    trace, folder = tmp_path / "trace", tmp_path / "run"
    folder.mkdir()
    raw = pickle.dumps(Payload(trace))
    array = np.array([Payload(trace)], dtype=object)
    file = io.BytesIO()
    np.save(file, array, allow_pickle=True)
    saved, (template, content) = file.getvalue(), state.real_state("acdpp")
    for wrong in (raw, packed(tree=array), packed(**{**unpacked(content), "array_0": array})):
        with pytest.raises(ValueError, match=r"damaged|allow_pickle"):
            saving.read(template, io.BytesIO(wrong))
    whole, name = checkpoint.real_files(), checkpoint.MODEL
    parts = unpacked(whole[name])
    damaged = [raw, saved, *(packed(**{**parts, part: array}) for part in parts)]
    for wrong in damaged:
        with pytest.raises(ValueError, match=r"."):
            checkpoint.load(folder, {**whole, name: wrong})
    for part, inner in itertools.product(parts, (raw, saved)):  # bytes of no meaning to us
        with contextlib.suppress(ValueError):
            inside = {**whole, name: packed(**{**parts, part: inner})}
            checkpoint.load(folder, inside)
    listed, flat = b'{"array": [0]}', b'{"raw": [0, "<i2", [2]]}'
    for head, part in ((listed, saved), (listed, raw), (flat, raw)):
        pieces = [head, part]
        with pytest.raises(ValueError, match=r"."):
            ArrayCodec().decode(b"".join(len(one).to_bytes(8, "big") + one for one in pieces))
    for column in ("clients SET sums", "contents SET content", "answers SET sent_order"):
        with pytest.raises(ValueError, match=r"."):
            buffer.use(changed_buffer(tmp_path, f"UPDATE {column} = x'{raw.hex()}'"))
    with pytest.raises(WireError):
        expect(content_of(raw.decode("latin1")), Order)
    assert not trace.exists()
    pickle.loads(raw)  # noqa: S301 - the payload does what it says where somebody runs it
    assert trace.exists()


def test_an_input_is_replayed_without_atheris(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "input"
    path.write_bytes(b"\0\1[[")
    assert run.main(["--replay", str(path), "records"]) == 0
    assert "nothing happened" in capsys.readouterr().out
    assert run.main(["nothing"]) == 2
    assert "no target 'nothing'; choose from records" in capsys.readouterr().out
