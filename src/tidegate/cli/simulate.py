"""``tidegate simulate``: policies over seeds, on the control plane alone."""

import csv
import dataclasses
import json
from pathlib import Path
from typing import Annotated

import numpy as np
import typer

from tidegate._internal.arrays import FloatArray
from tidegate.cli.running import (
    AsJson,
    PolicyNames,
    PresetName,
    Seeds,
    chosen_seeds,
    described,
    problem_in_words,
    run_policies,
    screen,
    show_summaries,
)
from tidegate.cli.setting_flags import Flags, with_setting
from tidegate.errors import ConfigurationError
from tidegate.report.figures import check_drawable, draw_runs
from tidegate.report.tables import difference_table
from tidegate.simulation.limits import most_effective
from tidegate.simulation.rounds import RoundRow, Run
from tidegate.simulation.summary import Estimate, paired_differences, summarise

BASELINE = "constant_admission"
"""The policy that others are compared with, if it is among them; else the first."""
WHOLE = {entry.name for entry in dataclasses.fields(RoundRow) if entry.type is int}


@with_setting
def simulate(
    flags: Flags,
    *,
    policy: PolicyNames = None,
    preset: PresetName = "as_printed",
    seeds: Seeds = None,
    out: Annotated[
        Path | None, typer.Option(help="CSV file to write: one row a policy, seed and round.")
    ] = None,
    plot: Annotated[
        Path | None, typer.Option(help="Picture to draw (.png, .svg or .pdf); needs matplotlib.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Simulate policies on counts and prices, without learning and without a network.

    Every policy gets the same prices on the same seed, so differences come from the policies.

    The paper's MNIST setting, all policies, ten seeds:

        tidegate simulate

    Two policies, a row for every round, and a picture:

        tidegate simulate --policy acdpp --policy hybrid --out rounds.csv --plot runs.png

    The settings of the paper's released scripts:

        tidegate simulate --preset released_settings --policy acdpp

    Labels from people, which arrive 1 to 20 rounds after the purchase:

        tidegate simulate --delay uniform:1,20

    Prices that are known a day of 24 rounds ahead:

        tidegate simulate --policy tide --known-ahead 24
    """
    setting = flags.setting()
    _check_files(out, plot)
    seeds = chosen_seeds(setting, seeds)
    runs = run_policies(setting, policy, preset=preset, seeds=seeds)
    if out is not None:
        _write_rows(runs, out)
    if plot is not None:
        draw_runs(runs, plot)
    for file in filter(None, (out, plot)):
        typer.echo(f"wrote {file}", err=True)
    summaries = [summarise(name, group) for name, group in runs.items()]
    limit = most_effective(setting.problem, setting.price_law)
    baseline = BASELINE if BASELINE in runs else next(iter(runs))
    differences = {
        name: paired_differences(group, runs[baseline])
        for name, group in runs.items()
        if name != baseline
    }
    if as_json:
        facts = {
            "problem": described(setting),
            "preset": preset,
            "seeds": len(setting.seeds(seeds)),
            "limit": limit,
            "policies": [summary.row() for summary in summaries],
            "baseline": baseline,
            "differences": {name: _told(values) for name, values in differences.items()},
        }
        typer.echo(json.dumps(facts, indent=2))
        return
    screen().print(f"{problem_in_words(setting)}\n", highlight=False)
    show_summaries(summaries, limit)
    if differences and len(setting.seeds(seeds)) > 1:
        screen().print()
        screen().print(difference_table(differences, baseline), highlight=False)


def _check_files(out: Path | None, plot: Path | None) -> None:
    """Refuse, before any work is done, files that cannot be written."""
    for file in filter(None, (out, plot)):
        if not file.absolute().parent.is_dir():
            raise ConfigurationError(
                f"cannot write {file}: its folder does not exist; create it first"
            )
        if file.is_dir():
            raise ConfigurationError(f"cannot write {file}: it is a folder; name a file")
    if out is not None and out.suffix.lower() != ".csv":
        raise ConfigurationError(
            f"cannot write {out}: --out writes CSV, so the name must end in .csv"
        )
    if plot is not None:
        check_drawable(plot)


def _told(values: dict[str, Estimate]) -> dict[str, list[float] | None]:
    """Return mean, lower and upper end of each difference; nothing for a single seed."""
    return {
        name: None if one.interval is None else [one.mean, *one.interval]
        for name, one in values.items()
    }


def _write_rows(runs: dict[str, list[Run]], path: Path) -> None:
    names = list(next(iter(runs.values()))[0].columns)
    with path.open("w", newline="", encoding="utf-8") as lines:
        writer = csv.writer(lines)
        writer.writerow(["policy", "seed", *names])
        for policy, group in runs.items():
            for run in group:
                columns = (_plain(name, run.columns[name]) for name in names)
                table = zip(*columns, strict=True)
                writer.writerows([policy, run.seed, *row] for row in table)


def _plain(name: str, column: FloatArray) -> list[float]:
    """Return a column as whole numbers if the row's field is one."""
    values: list[float] = (column.astype(np.int64) if name in WHOLE else column).tolist()
    return values
