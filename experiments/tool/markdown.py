"""The table of a comparison for a page of documentation."""

from collections.abc import Mapping, Sequence

from tidegate.report.tables import ORACLE

TENFOLD = 10
"""Sums of money below it have two decimals."""

Row = Mapping[str, object]


def markdown_table(rows: Sequence[Row]) -> str:
    """Return the rows of a comparison as a table in Markdown, one line a policy.

    Its columns are best, gain, gap, mean, spent, stored, peak, effective, and one for each target.
    A test compares the tables of a page with their CSV files.

    Args:
        rows: the rows of ``Comparison.rows``, or of the ``summary.csv`` made from them.

    >>> row = {
    ...     "policy": "tide", "best_accuracy": 87.512, "best_accuracy_half_width": 0.3,
    ...     "best_accuracy_gain": 1.35, "best_accuracy_gain_half_width": 0.45,
    ...     "mean_accuracy": 82.1, "mean_accuracy_half_width": 0.5, "spent_per_round": 54.9,
    ...     "spent_per_round_half_width": 0.2, "mean_stored": 98.2, "peak_stored": 100,
    ...     "effective_per_round": 17.8, "effective_per_round_half_width": 1.2,
    ... }
    >>> print(markdown_table([row]).splitlines()[-1])
    | tide | 87.5 ± 0.3 | 1.35 ± 0.45 | 82.1 ± 0.5 | 54.9 ± 0.2 | 98 | 100 | 17.8 ± 1.2 |
    """
    least = min(_number(row, "spent_per_round") or 0.0 for row in rows)
    targets = [name.removeprefix("rounds_to_") for name in rows[0] if name.startswith("rounds_to_")]
    with_gap = any(_number(row, "best_accuracy_gap_closed") is not None for row in rows)
    lines: list[str] = []
    for row in rows:
        cells = {
            "policy": str(row["policy"]),
            "best, %": _with_interval(row, "best_accuracy", 1),
            "gain, points": "" if _is_baseline(row) else _with_interval(row, _GAIN, 2),
            "gap": _gap(row),
            "mean, %": _with_interval(row, "mean_accuracy", 1),
            "spent": _with_interval(row, "spent_per_round", 1 if least >= TENFOLD else 2),
            "stored": f"{_number(row, 'mean_stored') or 0.0:,.0f}",
            "peak": f"{_number(row, 'peak_stored') or 0.0:,.0f}",
            "effective": _with_interval(row, "effective_per_round", 1),
            **{f"to {target} %": _first_round(row, target) for target in targets},
        }
        if not with_gap:
            del cells["gap"]
        if not lines:
            lines += [_line(list(cells)), "|" + "---|" * len(cells)]
        lines.append(_line(list(cells.values())))
    return "\n".join(lines)


_GAIN = "best_accuracy_gain"


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _number(row: Row, name: str) -> float | None:
    """Return a value of a row; None if it is missing, or empty in a CSV file."""
    value = row.get(name)
    return None if value is None or value == "" else float(str(value))


def _is_baseline(row: Row) -> bool:
    """Return whether a row is the baseline: only it has no difference on any seed."""
    return not _number(row, _GAIN) and not _number(row, f"{_GAIN}_half_width")


def _with_interval(row: Row, name: str, digits: int) -> str:
    mean, half = _number(row, name), _number(row, f"{name}_half_width")
    told = "" if mean is None else f"{mean:,.{digits}f}"
    return told if half is None else f"{told} ± {half:,.{digits}f}"


def _gap(row: Row) -> str:
    """Return the gap in percent with its interval; ``?`` if the oracle's lead may be chance."""
    names = (f"best_accuracy_gap_closed{end}" for end in ("", "_low", "_high"))
    mean, low, high = (_number(row, name) for name in names)
    if mean is None:
        return ""
    told = f"{round(100 * mean)}%"
    if row["policy"] == ORACLE or _is_baseline(row):
        return told
    known = low is not None and high is not None
    return f"{told} ({round(100 * low)} to {round(100 * high)})" if known else f"{told} (?)"  # type: ignore[operator]


def _first_round(row: Row, target: str) -> str:
    """Return the median of the first rounds that reach a target, and how many runs if not all."""
    first, reached = _number(row, f"rounds_to_{target}"), str(row[f"reached_{target}"])
    told = "-" if first is None else f"{first:g}"
    return told if reached == str(row["seeds"]) else f"{told} ({reached} of {row['seeds']})"
