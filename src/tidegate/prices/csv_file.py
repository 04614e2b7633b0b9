"""Files of prices: CSV with a header and a line for each round."""

import csv
import io
import math
import reprlib
from collections.abc import Iterator
from pathlib import Path

from tidegate.errors import ConfigurationError
from tidegate.wire import LARGEST_AMOUNT

FORM = "Its first line must name the columns, and each further line must hold the prices of a round"


def csv_header(text: str, path: Path) -> list[str]:
    """Return the names of a CSV file's columns."""
    try:
        names = list(_reader(text).fieldnames or [])
    except csv.Error as wrong:
        raise ConfigurationError(f"{path} has no header: {wrong}") from None
    twice = [name for name in names if names.count(name) > 1]
    if twice:
        raise ConfigurationError(f"{path} has two columns {twice[0]!r}; rename one")
    if len(names) == 1 and (";" in names[0] or "\t" in names[0]):
        raise ConfigurationError(f"{path} has one column, {names[0]!r}; separate columns by commas")
    return names


def csv_rows(text: str, path: Path, column: str) -> Iterator[tuple[int, str | None]]:
    """Yield the lines of a CSV file, each with its cell of one column."""
    header = csv_header(text, path)
    if column not in header:
        raise ConfigurationError(
            f"{path} has no column {column!r}; it has {', '.join(header)[:1000]}"
        )
    for line, row in csv_lines(text, path):
        yield line, row[column]


def csv_lines(text: str, path: Path) -> Iterator[tuple[int, dict[str, str | None]]]:
    """Yield the lines of a CSV file below its header, each with its number."""
    reader = _reader(text)
    try:
        for row in reader:
            more = row.pop(None, None) or []
            if any(cell.strip() for cell in more):
                fields = len(reader.fieldnames or []) + len(more)
                raise ConfigurationError(
                    f"{path}, line {reader.line_num}, has {fields} fields, but the header has "
                    f"{fields - len(more)}; write decimals with a point, 1.5"
                )
            yield reader.line_num, row
    except csv.Error as wrong:
        raise ConfigurationError(f"{path}, line {reader.line_num}, is not CSV: {wrong}") from None


def read_text(path: Path) -> str:
    """Return the text of a file of prices, or say what is wrong with it and what to do."""
    try:
        text = path.read_text(encoding="utf-8-sig")
    except FileNotFoundError:
        remedy = "give the path of a CSV file, as in trace:FILE.csv:COLUMN"
        raise ConfigurationError(f"there is no file {path}; {remedy}") from None
    except IsADirectoryError:
        raise ConfigurationError(f"{path} is a folder; give a CSV file in it") from None
    except UnicodeDecodeError as wrong:
        line = wrong.object[: wrong.start].count(b"\n") + 1
        told = f"{path} is not a text file in UTF-8 (see its line {line}); save it as CSV in UTF-8"
        raise ConfigurationError(told) from None
    if not text.strip():
        raise ConfigurationError(f"{path} is empty. {FORM}")
    return text


def price_in(
    path: Path, line: int, column: str, text: str | None, floor: float | None = None
) -> float:
    """Return the price in a cell.

    Args:
        path: the file.
        line: the number of the line.
        column: its name in the header.
        text: the cell; None if the line has none.
        floor: what lower prices count as; None to refuse prices below 0.
    """
    try:
        price = float(text if text is not None else "")
    except ValueError:
        price = math.nan
    if floor is not None and price < floor:
        price = floor
    if not 0 <= price <= LARGEST_AMOUNT:
        raise ConfigurationError(
            f"{path}, line {line}, column {column}: {reprlib.repr(text)} is not a price; write a "
            f"number from 0 to {LARGEST_AMOUNT:g}"
        )
    return price


def _reader(text: str) -> "csv.DictReader[str]":
    return csv.DictReader(io.StringIO(text, newline=""), skipinitialspace=True)
