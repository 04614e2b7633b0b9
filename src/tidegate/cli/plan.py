"""``tidegate plan``: what this budget and this memory give."""

import json
import shlex
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from tidegate.cli.plan_curves import traced_curves
from tidegate.cli.plan_from_run import replay_run
from tidegate.cli.plan_paper import guarantees_of, paper_plan, unmet_conditions, with_estimates
from tidegate.cli.running import (
    AsJson,
    PolicyNames,
    PresetName,
    Seeds,
    chosen_seeds,
    described,
    run_policies,
    run_with_more,
    screen,
    show_summaries,
)
from tidegate.cli.setting import Setting
from tidegate.cli.setting_flags import Flags, with_setting
from tidegate.errors import ConfigurationError
from tidegate.prices import ConstantPrice
from tidegate.report.answer import answer
from tidegate.report.page import check_page
from tidegate.report.plan_page import Plan, write_plan_page
from tidegate.report.tables import candidate_table, guarantee_table
from tidegate.simulation.limits import full_buffers, most_effective
from tidegate.simulation.rounds import Run
from tidegate.simulation.summary import summarise

CURVES = ("constant_admission", "acdpp", "tide")
"""Policies whose curves a page shows, unless others are chosen."""
PAPERS = "For the paper's policies:"


@with_setting
def plan(  # noqa: PLR0913 - one for each flag
    flags: Flags,
    *,
    policy: PolicyNames = None,
    preset: PresetName = "as_printed",
    seeds: Seeds = None,
    offline: Annotated[
        bool,
        typer.Option("--offline", help="Also choose K by the paper's offline selection (slower)."),
    ] = False,
    estimate: Annotated[
        Path | None,
        typer.Option(
            help="Take D, sigma and B of the bound from a run whose server measured them at its "
            "models, in place of other settings."
        ),
    ] = None,
    from_run: Annotated[
        Path | None,
        typer.Option(
            "--from",
            metavar="RUN",
            help="Replay the prices and clients of a saved run, with other policies or another "
            "--budget, --memory or --spend-ahead.",
        ),
    ] = None,
    memory: Annotated[
        float | None, typer.Option(help="With --from: a factor for every buffer's size.")
    ] = None,
    html: Annotated[
        Path | None,
        typer.Option(
            help="Also write a page with the curves of money, of memory and of a cap on uses (a "
            "minute or two more)."
        ),
    ] = None,
    currency: Annotated[str, typer.Option(help="Currency to show, such as EUR.")] = "",
    as_json: AsJson = False,
) -> None:
    """Plan a budget before you buy anything.

    It says which policy to use for this memory, budget and prices, how many effective samples a
    round it gains, what it pays for a sample, what more money or memory would add, and what is
    possible at all. Then it says how to set up the paper's policies, and what every policy would
    spend, store and gain. Nothing is spent ahead of the budget and memory is a hard limit, as in a
    run on Flower. Without flags it plans the fleet of the paper's MNIST setting.

    Ten clients that hold 100 samples together, 55 to spend a round, prices from 1 to 10:

        tidegate plan --capacities 8x2,9x2,10x2,11x2,12x2 --budget 55 --price uniform:1,10

    A thousand clients, prices from a file:

        tidegate plan --capacities 10x1000 --budget 5000 --price trace:prices.csv:eur

    No sample may train in more than ten rounds:

        tidegate plan --most-uses 10

    What would other policies, or half the budget, have done at the prices of a recorded run?

        tidegate plan --from run

        tidegate plan --from run --policy tide --budget 27.5

    The paper's game, with the guarantees of ACDPP beside what is measured:

        tidegate plan --as-in-paper --policy constant_admission --policy acdpp

    A page for the people who decide on the budget, with what more money or memory would buy, and
    what a cap on uses would cost:

        tidegate plan --html plan.html
    """
    if html is not None:
        check_page(html)
    if from_run is not None:
        if html is not None:
            raise ConfigurationError(
                f"--html and --from cannot be combined; tidegate report {from_run} writes a page"
            )
        replay_run(from_run, flags.given, policy, memory=memory, as_json=as_json)
        return
    if memory is not None:
        raise ConfigurationError("--memory needs --from RUN; else give sizes with --capacities")
    setting = flags.setting()
    if estimate is not None:
        setting = with_estimates(setting, estimate)
    seeds = chosen_seeds(setting, seeds)
    runs = run_policies(setting, policy, preset=preset, seeds=seeds)
    planned = _plan(
        setting,
        runs,
        seeds=seeds,
        preset=preset,
        offline=offline,
        currency=currency,
        estimate=estimate,
    )
    if as_json:
        typer.echo(json.dumps(_row(planned, setting, preset, seeds), indent=2))
    else:
        _show(planned, setting, screen())
    if html is not None:
        names = [name for name in policy or CURVES if name in runs]
        curves = traced_curves(setting, names, preset)
        command = shlex.join(["tidegate", *sys.argv[1:]])
        settings = {**described(setting), "preset": preset}
        write_plan_page(planned, curves, html, command=command, settings=settings)
        typer.echo(f"wrote {html}", err=True)


def _plan(
    setting: Setting,
    runs: Mapping[str, Sequence[Run]],
    *,
    seeds: int,
    preset: str,
    offline: bool,
    currency: str,
    estimate: Path | None,
) -> Plan:
    """Return the numbers of a plan, from its runs."""
    problem, law = setting.problem, setting.price_law
    summaries = [summarise(name, group) for name, group in runs.items()]
    sizes: Counter[int] = Counter()
    for size, count in setting.capacities:
        sizes[size] += count
    unmet = unmet_conditions(setting, runs, preset)
    full = full_buffers(problem, law, setting.most_uses)
    return Plan(
        problem=problem,
        price=setting.price,
        recorded=setting.recorded,
        price_is_constant=isinstance(law, ConstantPrice),
        sizes=sorted(sizes.items(), reverse=True),
        most_uses=setting.most_uses,
        currency=currency,
        summaries=summaries,
        answer=answer(
            problem,
            summaries,
            runs,
            partial(run_with_more, setting, preset=preset, seeds=seeds),
        ),
        limit=most_effective(problem, law),
        full=full,
        paper=paper_plan(setting, setting.seeds(seeds), offline=offline),
        unmet=unmet,
        quantities=(
            guarantees_of(setting, runs["acdpp"]) if setting.as_in_paper and not unmet else []
        ),
        estimate=estimate,
    )


def _row(planned: Plan, setting: Setting, preset: str, seeds: int) -> dict[str, Any]:
    """Return a plan for JSON."""
    found = planned.answer
    answered = None if found is None else {**vars(found), "beyond": [*map(vars, found.beyond)]}
    row: dict[str, Any] = {
        "problem": described(setting),
        "answer": answered,
        "currency": planned.currency,
        "preset": preset,
        "seeds": len(setting.seeds(seeds)),
        **planned.paper.row(),
        "limit": planned.limit,
        "full_buffers": planned.full and vars(planned.full),
        "policies": [summary.row() for summary in planned.summaries],
    }
    if planned.quantities:
        row["guarantees"] = {
            one.name: {
                "printed": one.printed,
                "repaired": one.repaired,
                "measured": one.measured.mean,
                "interval": one.measured.interval,
            }
            for one in planned.quantities
        }
    return row


def _show(planned: Plan, setting: Setting, out: Console) -> None:
    """Print a plan for people."""

    def say(about: str, indent: str = "", style: str = "") -> None:
        for sentence in planned.sentences(about):
            out.print(indent + sentence, highlight=False, soft_wrap=True, style=style)

    say("problem")
    say("given")
    out.print()
    say("answer")
    out.print(f"\n{PAPERS}", highlight=False)
    say("advice", "  ")
    out.print()
    if planned.paper.selected is not None:
        out.print(candidate_table(planned.paper.candidates, planned.paper.selected))
    if setting.as_in_paper:
        if planned.quantities:
            table = guarantee_table(planned.quantities, setting.rounds)
            out.print(table, highlight=False)
        say("guarantees", style="dim" if planned.quantities else "")
        out.print()
    show_summaries(list(planned.summaries), planned.limit)
