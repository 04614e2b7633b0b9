"""``tidegate export``: write the samples that buffers hold, for other tools and other models."""

import csv
import io
import json
import os
import re
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import fields
from itertools import chain
from math import prod
from pathlib import Path
from typing import IO, Annotated, Any, NamedTuple, TypeVar

import numpy as np
import typer

from tidegate._internal.saving import replace_file, sync_folder
from tidegate._internal.sqlite_file import OWNER_ONLY
from tidegate._internal.words import counted
from tidegate.cli.running import AsJson, progress_bar
from tidegate.cli.sweep import check_folder
from tidegate.client.buffer_files import find_buffers, may_be_buffer, read_buffer
from tidegate.client.device_file import OWNER_ONLY_FOLDER
from tidegate.client.exporting import HeldSample, HeldSamples
from tidegate.errors import ConfigurationError, DamagedFileError

OURS = [column.name for column in fields(HeldSample) if column.name != "sample"]
"""Columns that each sample has; its own with such names get ``field_`` in front."""
TABLE = "samples.csv"
MARKS = {b"\x89PNG\r\n\x1a\n": ".png", b"\xff\xd8\xff": ".jpg"}
"""With which images begin."""
LONG = 200
"""Characters from which a text is a file."""
PLAIN = (type(None), bool, int, float, str, bytes)

Row = TypeVar("Row")


def export(
    place: Annotated[
        Path, typer.Argument(metavar="FOLDER|FILE", help="A folder of buffers, or one buffer.")
    ],
    *,
    to: Annotated[
        Path,
        typer.Option("--to", metavar="OUT", help="A new file that ends in .parquet, or a folder."),
    ],
    as_json: AsJson = False,
) -> None:
    """Write the samples that clients bought, for other tools and other models.

    The command writes every complete sample of every buffer in FOLDER: those stored, and those that
    ClientGate(keep_bought=True) keeps. It changes no buffer, and the node may be running. Samples
    past their limit in days, and those of a forgotten person, stay behind.

    **An export leaves the protection of the buffer.** `tidegate forget`, limits in days and audits
    do not reach it: delete it when you no longer need it. Only its owner can read it.

    With OUT.parquet it is one table (`pip install 'tidegate[export]'`), which pandas, Polars and
    `datasets.load_dataset("parquet", data_files="OUT.parquet")` read. Otherwise OUT becomes a
    folder with samples.csv, which names a file for each array (.npy), image (.png, .jpg), long text
    (.txt), and for other bytes (.bin) and lists (.json).

    Columns: key, run, client, group, bought_round, price, held_since (UTC), state (stored or kept),
    and the fields of the sample. A tuple has field_0, field_1, ...; a dictionary has its names
    (with field_ in front of those above). Arrays are lists in Parquet, and images the bytes of PNG.

    If a sample cannot be read, for example because the app has a codec of its own, the command
    names it, writes the others and exits with 1.

        tidegate export /var/lib/tidegate --to samples.parquet

        tidegate export run/buffers --to samples
    """
    write = _write_parquet if to.suffix == ".parquet" else _write_folder
    _check_out(to)
    with ExitStack() as opened:
        buffers, wrong = list[HeldSamples](), list[str]()
        for path in _buffers(place, wrong):
            try:
                buffers.append(opened.enter_context(HeldSamples(path)))
            except DamagedFileError as reason:
                wrong.append(str(reason))
        count = sum(map(len, buffers))
        if not count:
            raise ConfigurationError("; ".join([f"{place} holds no complete sample", *wrong]))
        with progress_bar("exporting", 2 * count) as step:
            written = write(to, _Read(buffers, step))
    for buffer in buffers:
        if buffer.unreadable:
            first = next(iter(buffer.unreadable.values()))
            failed = f"{len(buffer.unreadable):,} of {counted(len(buffer), 'sample')}"
            wrong.append(f"{buffer.path}: {failed} cannot be exported; the first, {first}")
    if as_json:
        unreadable = [reason for buffer in buffers for reason in buffer.unreadable.values()]
        facts = {"out": str(to), "samples": written, "buffers": len(buffers), "failed": wrong}
        facts["unreadable"] = unreadable
        typer.echo(json.dumps(facts, indent=2))
    else:
        typer.echo(
            f"{counted(written, 'sample')} of {counted(len(buffers), 'buffer')} in {to}; forget "
            "and limits in days do not reach this copy"
        )
        for line in wrong:
            typer.echo(line, err=True)
    if wrong:
        raise typer.Exit(1)


class _Read:
    """Samples of several buffers, each time under the rules of that moment."""

    def __init__(self, buffers: Sequence[HeldSamples], step: Callable[[], None]) -> None:
        self._buffers = buffers
        self._step = step
        self.count = 0
        """Samples that were read the last time."""

    def groups(self, convert: Callable[[HeldSample], Row]) -> Iterator[list[Row]]:
        """Yield samples in groups; refuse to end if somebody was forgotten meanwhile."""
        self.count = 0
        for buffer in self._buffers:
            for group in buffer.groups(convert):
                self.count += len(group)
                for _ in group:
                    self._step()
                yield group
            buffer.check()
        if not self.count:
            reasons = [reason for buffer in self._buffers for reason in buffer.unreadable.values()]
            raise ConfigurationError(
                f"nothing can be exported: {len(reasons):,} failed; the first, {reasons[0]}"
                if reasons
                else "all samples are past their limit in days, or of somebody who is forgotten"
            )


def _check_out(out: Path) -> None:
    """Refuse a place that holds something, or where nothing can be written."""
    is_table = out.suffix == ".parquet"
    if not out.absolute().parent.is_dir():
        raise ConfigurationError(f"cannot write {out}: its folder does not exist; create it first")
    if out.is_dir() and is_table:
        raise ConfigurationError(f"cannot write {out}: it is a folder; name a file")
    if out.exists() and (any(out.iterdir()) if out.is_dir() else out.stat().st_size):
        raise ConfigurationError(f"{out} exists, and is not empty; name another place")
    if out.is_file() and not is_table:
        raise ConfigurationError(f"cannot write {out}: it is a file; end its name in .parquet")
    part = _part(out)
    if part.exists():
        raise ConfigurationError(f"{part} is left of an export that was ended; delete it first")


def _part(out: Path) -> Path:
    """Return where an export is until it is complete."""
    return out.with_name(f"{out.name}.part")


def _buffers(place: Path, wrong: list[str]) -> list[Path]:
    """Return the buffers in a place; add to ``wrong`` what is unreadable there."""
    if place.is_file():
        return [read_buffer(place).path]
    check_folder(place)
    buffers, unreadable = find_buffers(place)
    wrong += [str(error) for error in unreadable if may_be_buffer(Path(str(error.source)))]
    return [buffer.path for buffer in buffers]


def _columns(held: HeldSample) -> dict[str, Any]:
    """Return the fields of a sample, by names that none of ``OURS`` has."""
    theirs = re.compile(f"(field_)*({'|'.join(OURS)})")
    parts = _parts(held.sample)
    return {f"field_{name}" if theirs.fullmatch(name) else name: parts[name] for name in parts}


def _parts(value: Any) -> Mapping[str, Any]:
    """Return the parts of a value by name; what has none is the first of one."""
    if type(value) is dict:
        return value
    items = value if type(value) in (tuple, list) else (value,)
    return {f"field_{place}": item for place, item in enumerate(items)}


def _as_array(value: Any) -> Any:
    """Return an array of NumPy, JAX or torch as one of NumPy, in the machine's byte order."""
    try:
        made = np.asarray(value)
    except TypeError:  # torch's bfloat16, which NumPy has not; a float32 holds the same
        made = np.asarray(value.float())
    return made.astype(made.dtype.newbyteorder("="), copy=False)


# One table.


def _write_parquet(out: Path, samples: _Read) -> int:
    """Write a Parquet file whose columns hold what all samples have; return how many."""
    try:
        import pyarrow as pa  # noqa: PLC0415 - an extra
        from pyarrow import parquet  # noqa: PLC0415
    except ImportError:
        raise ConfigurationError(
            "Parquet needs pyarrow: pip install 'tidegate[export]', or export to a folder"
        ) from None

    def table(held: HeldSample) -> Any:
        ours = {name: pa.array([getattr(held, name)]) for name in OURS}
        theirs = {name: _column(pa, value) for name, value in _columns(held).items()}
        return pa.table(ours | theirs)

    def write(file: IO[bytes]) -> None:
        os.fchmod(file.fileno(), OWNER_ONLY)
        with parquet.ParquetWriter(file, schema) as writer:
            for group in samples.groups(table):
                rows = [schema.empty_table(), *group]
                joined = pa.concat_tables(rows, promote_options="permissive")
                writer.write_table(joined.combine_chunks())

    schema = pa.schema([])
    try:
        for group in samples.groups(table):
            for row in group:
                if row.schema != schema:
                    both = [schema, row.schema]
                    schema = pa.unify_schemas(both, promote_options="permissive")
        replace_file(out, write)
    except pa.ArrowException as wrong:
        raise ConfigurationError(
            f"one table cannot hold all samples ({wrong}); export each buffer for itself, or to a "
            "folder"
        ) from wrong
    return samples.count


def _column(pa: Any, value: Any) -> Any:
    """Return an Arrow array whose only element is this value."""
    kind = type(value)
    if kind in PLAIN or (kind is list and all(type(item) in PLAIN for item in value)):
        return pa.array([value])
    if kind in (tuple, dict):
        parts = {name: _column(pa, part) for name, part in _parts(value).items()}
        return pa.StructArray.from_arrays(list(parts.values()), names=list(parts))
    if kind is list:
        items = [pa.table({"item": _column(pa, item)}) for item in value]
        joined = pa.concat_tables(items, promote_options="permissive")["item"].combine_chunks()
        return pa.ListArray.from_arrays(pa.array([0, len(value)], pa.int32()), joined)
    made = _as_array(value)
    column = pa.array(made.reshape(-1))
    for axis in reversed(range(made.ndim)):
        ends = np.arange(prod(made.shape[:axis]) + 1) * made.shape[axis]
        column = pa.ListArray.from_arrays(pa.array(ends, pa.int32()), column)
    return column


# A folder of files with a table.


class _Content(NamedTuple):
    """A field that becomes a file."""

    ending: str
    content: bytes


def _write_folder(out: Path, samples: _Read) -> int:
    """Write a table and files, in a folder that gets its name when all is written."""
    part = _part(out)
    part.mkdir(mode=OWNER_ONLY_FOLDER)
    try:
        are_files = dict[str, bool]()
        for group in samples.groups(_columns):
            for columns in group:
                for name, value in columns.items():
                    are_files[name] = are_files.get(name, False) or not _is_short(value)

        def row(held: HeldSample) -> dict[str, Any]:
            theirs = {
                name: _content(value) if are_files[name] else _cell(value)
                for name, value in _columns(held).items()
            }
            return {name: getattr(held, name) for name in OURS} | theirs

        with _new(part / TABLE).open("w", newline="", encoding="utf-8") as file:
            table = csv.DictWriter(file, [*OURS, *are_files])
            table.writeheader()
            rows = chain.from_iterable(samples.groups(row))
            for number, cells in enumerate(rows, 1):
                for place, name in enumerate(are_files):
                    if isinstance(cell := cells.get(name), _Content):
                        cells[name] = f"{number:06d}_{place}{cell.ending}"
                        _new(part / cells[name]).write_bytes(cell.content)
                table.writerow(cells)
        part.rename(out)
    except BaseException:
        shutil.rmtree(part)
        raise
    sync_folder(out.absolute().parent)
    return samples.count


def _new(path: Path) -> Path:
    """Create a file that only its owner can read."""
    path.touch(mode=OWNER_ONLY, exist_ok=False)
    return path


def _is_short(value: Any) -> bool:
    """Return whether a value has room in a cell: a number, a line of text, nothing."""
    if type(value) is str:
        return len(value) <= LONG and len(value.splitlines()) <= 1
    is_plain = type(value) in PLAIN and type(value) is not bytes
    return is_plain or (hasattr(value, "shape") and not value.shape)


def _cell(value: Any) -> Any:
    """Return what stands in a cell; refuse what is no Unicode."""
    if hasattr(value, "shape"):
        return str(_as_array(value)[()])
    return value.encode().decode() if type(value) is str else value


def _content(value: Any) -> _Content | None:
    """Return the file of a value."""
    if value is None:
        return None
    if type(value) is str:
        return _Content(".txt", value.encode())
    if type(value) is bytes:
        endings = (ending for mark, ending in MARKS.items() if value.startswith(mark))
        return _Content(next(endings, ".bin"), value)
    if type(value) in (*PLAIN, tuple, list, dict):
        return _Content(".json", json.dumps(value, default=_as_json).encode())
    file = io.BytesIO()
    np.save(file, _as_array(value), allow_pickle=False)
    return _Content(".npy", file.getvalue())


def _as_json(value: Any) -> Any:
    """Return an array as lists."""
    lists = _as_array(value).tolist()
    if type(lists) not in (*PLAIN[1:-1], list):
        raise TypeError(f"JSON has no {type(lists).__name__}; export to Parquet")
    return lists
