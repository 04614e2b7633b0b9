"""``tidegate simulate``: policies over seeds, on the control plane alone."""

import csv
import json
from pathlib import Path
from typing import Annotated

import typer

from tidegate.cli.running import (
    AsJson,
    PolicyNames,
    PresetName,
    Seeds,
    described,
    run_policies,
    screen,
)
from tidegate.cli.setting import Setting
from tidegate.report.figures import check_drawable, draw_runs
from tidegate.report.tables import LEGEND, summary_table
from tidegate.simulation import Run
from tidegate.summary import summarise


def simulate(
    setting: Setting,
    *,
    policy: PolicyNames = None,
    preset: PresetName = "as_printed",
    seeds: Seeds = 10,
    out: Annotated[
        Path | None, typer.Option(help="CSV file to write: one row a policy, seed and round.")
    ] = None,
    plot: Annotated[
        Path | None, typer.Option(help="Picture to draw (.png, .svg or .pdf); needs matplotlib.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Run policies on counts, prices and money alone: no learning, no network.

    Every policy meets the same prices on the same seed, so differences are the policies' own.

    The paper's MNIST setting, all policies, ten seeds:

        tidegate simulate

    Two policies, a row for every round, and a picture:

        tidegate simulate --policy acdpp --policy hybrid --out rounds.csv --plot runs.png

    The settings of the paper's released scripts:

        tidegate simulate --preset released_settings --policy acdpp
    """
    for file in (out, plot):
        if file is not None and not file.absolute().parent.is_dir():
            raise ValueError(f"cannot write {file}: its folder does not exist; create it first")
        if file is not None and file.is_dir():
            raise ValueError(f"cannot write {file}: it is a folder; name a file in it")
    if plot is not None:
        check_drawable(plot)
    runs = run_policies(setting, policy, preset=preset, seeds=seeds)
    if out is not None:
        _write_rows(runs, out)
    if plot is not None:
        draw_runs(runs, plot)
    summaries = [summarise(name, group) for name, group in runs.items()]
    if as_json:
        told = {
            "problem": described(setting),
            "preset": preset,
            "seeds": len(setting.seeds(seeds)),
            "policies": [summary.row() for summary in summaries],
        }
        typer.echo(json.dumps(told, indent=2))
        return
    screen().print(summary_table(summaries, budget=setting.budget))
    screen().print(LEGEND, style="dim", highlight=False)


def _write_rows(runs: dict[str, list[Run]], path: Path) -> None:
    names = list(next(iter(runs.values()))[0].columns)
    with path.open("w", newline="", encoding="utf-8") as lines:
        writer = csv.writer(lines)
        writer.writerow(["policy", "seed", *names])
        for policy, group in runs.items():
            for run in group:
                table = zip(*(run.columns[name].tolist() for name in names), strict=True)
                writer.writerows([policy, run.seed, *row] for row in table)
